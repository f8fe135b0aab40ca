"""Records of the topics in which coordinators keep their state, read by a coordinator that loads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minibroker.broker.apis.produce import ADMIN_CLIENT_ID
from minibroker.conformance.requests import frame
from minibroker.protocol import consumer_group_records, group_records, share_group_records, transaction_records
from minibroker.protocol.api import ApiKey
from minibroker.protocol.coordinator_records import RecordTypes, encoded
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import build_batch
from minibroker.protocol.schema import Message
from tests.fuzz.targets import COORDINATORS, OfBroker, packed, plausible, unpacked
from tests.requests import produce_body

TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
Row = tuple[bytes, bytes | None]


def plausible_record(message: Message, version: int, **fields: Any) -> bytes:
    value = plausible(message, version)._replace(**fields)
    return version.to_bytes(2, "big") + b"".join(message.encode(version, value))


def of_types(types: RecordTypes) -> list[Row]:
    """A record of each type of a coordinator's."""
    rows = []
    for number, key in types._keys.items():
        value = types._values.get(number)
        rows.append(
            (
                encoded(key, number, plausible(key, 0)),
                None if value is None else encoded(value, 0, plausible(value, 0)),
            )
        )
    return rows


def offsets() -> Iterator[Row]:
    key = plausible_record(group_records.OffsetCommitKey, 1)
    for version in versions_of(group_records.OffsetCommitValue):
        yield key, plausible_record(group_records.OffsetCommitValue, version)


def classic_groups() -> Iterator[Row]:
    key = plausible_record(group_records.GroupMetadataKey, 2)
    for version in versions_of(group_records.GroupMetadataValue):
        yield key, plausible_record(group_records.GroupMetadataValue, version, protocol_type="consumer")


def transactions() -> Iterator[Row]:
    key = plausible_record(transaction_records.TransactionLogKey, 0, transactional_id="g")
    value = transaction_records.TransactionLogValue
    for version in versions_of(value):
        yield key, plausible_record(value, version, topics=None)
        for status in range(1, 8):
            yield key, plausible_record(value, version, status=status, topics=[("t", [0, 1])], producer_id=1)


def versions_of(message: Message) -> range:
    return range(message.first_version, message.last_version + 1)


CONSUMER_GROUP, SHARE_GROUP, SHARE_STATES = map(
    of_types,
    (consumer_group_records.TYPES, share_group_records.GROUP_RECORDS, share_group_records.STATE_RECORDS),
)
# What is read together, each with the place of its topic.
TOGETHER: tuple[tuple[int, list[Row]], ...] = (
    (0, list(offsets())),
    (0, list(classic_groups())),
    (0, CONSUMER_GROUP),
    (0, SHARE_GROUP),
    (1, list(transactions())),
    (2, SHARE_STATES),
)


class StoredRecords(OfBroker):
    """Records of an internal topic, and then a request of each API of its coordinator's.

    A client with the id `__admin_client` may write any. The first byte of an input chooses the topic.
    """

    name = "stored"
    inputs_of_a_broker = 60  # the topic is read again for each

    def seeds(self) -> list[bytes]:
        """Each record by itself, all that are read together, and the group deleted that they make."""
        found = []
        for topic, rows in TOGETHER:
            found += [packed(topic, [row]) for row in rows]
            found += [packed(topic, rows), packed(topic, [*rows, *((key, None) for key, _ in rows)])]
        return found

    def run(self, data: bytes) -> None:
        if not (data and (records := unpacked(data))):
            return
        self.ready()
        partition = TopicPartition(TOPICS[data[0] % len(TOPICS)], 0)
        body = produce_body(partition.topic, build_batch(records))
        self.ask(frame(ApiKey.PRODUCE, 7, client_id=ADMIN_CLIENT_ID, **body)[4:])

        def load_again() -> None:
            for is_leader in (False, True):
                for notice in self._parts.own._on_leadership:
                    notice(partition, is_leader)
            for each in COORDINATORS:
                self.ask(each)

        self.check(load_again, is_slow_work=True)
