"""Records and commits by kafka-python itself, for tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any

from minibroker.any_cluster.kafka_python import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition, errors
from minibroker.client.address import parse_address
from minibroker.client.connection import Connection
from minibroker.protocol.api import API_TABLE, TESTS_CLIENT_ID, ApiKey

# kafka-python 3.0 forgets a rebalance that ends between two calls of poll, and joins again, perhaps for ever.
POLL_MS = 2000
SESSION_MS = 60_000
# What a consumer's metadata is not: a worker of Kafka Connect, a schema registry, and a consumer's cut short.
OTHER_GROUPS = {
    "connect": ("connect", b"\0\1\0\x12http://host:8083/\xff\xff\xff", b"\0\1\0\0\0\5abcdefgh"),
    "registry": ("sr", b'{"version":1,"host":"a"}', b'{"version":1,"error":0}'),
    "damaged": ("consumer", b"\0\1\0\0\0\5ab", b"\0\1\0\0\0\7\0\5abcde"),
}


class Records:
    """Writes, reads and commits, on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def write(self, topic: str, values: Sequence[str], *, partition: int = 0, timestamp_ms: int | None = None) -> None:
        """Each with the key k0, k1 and so on; `timestamp_ms` is of the first, a second lies between two."""
        if not values:
            return
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap)) as producer:
            for number, value in enumerate(values):
                at = None if timestamp_ms is None else timestamp_ms + 1000 * number
                producer.send(topic, value.encode(), f"k{number}".encode(), None, partition, at)
            producer.flush(20)

    def transaction(self, topic: str, values: Sequence[str], *, commit: bool) -> None:
        """A transaction with these values."""
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=f"of-{topic}")) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode())
            producer.flush(20)  # or an abort throws away what was not sent yet
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    @contextmanager
    def open_transaction(self, transactional_id: str, topic: str) -> Iterator[None]:
        """A transaction of one record in partition 0, which its producer leaves open."""
        producer: Any = KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=transactional_id)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"pending", partition=0)
        producer.flush(20)
        try:
            yield
        finally:
            with suppress(errors.KafkaTimeoutError):
                producer.close(timeout=0)

    def read(self, topic: str, count: int, *, partition: int = 0) -> list[Any]:
        """The first records, as kafka-python has them."""
        with closing(self._consumer()) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek_to_beginning()
            return [next(consumer) for _ in range(count)]

    def commit(self, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
        with closing(self._consumer(group)) as consumer:
            at = TopicPartition(topic, partition)
            consumer.assign([at])
            consumer.commit({at: OffsetAndMetadata(offset, "", -1)})

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """A member of the group that reads the topic, as long as this lasts."""
        with closing(self._consumer(group)) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(POLL_MS)
            yield

    @contextmanager
    def share(self, group: str, topic: str, *said: tuple[int, int, int]) -> Iterator[None]:
        """The member `m1` of a share group, which has fetched partition 0 from its start, and said this of records:
        first offset, last offset, kind."""
        from_start = [(32, group, [("share.auto.offset.reset", 0, "earliest")])]
        own: dict[str, Any] = {"group_id": group, "member_id": "m1"}
        first: dict[str, Any] = {"member_epoch": 0, "rack_id": None, "subscribed_topic_names": [topic]}
        size = {"max_wait_ms": 10_000, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        with Connection(parse_address(self._bootstrap), client_id="sharing") as connection:
            connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=from_start, validate_only=False)
            topic_id = connection.ask(ApiKey.METADATA, 12, topics=[(bytes(16), topic)]).topics[0].topic_id
            connection.ask(ApiKey.FIND_COORDINATOR, 1, key=group)  # which makes the topic of groups
            assert connection.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **own, **first).error_code == 0
            wanted: list[Any] = [(topic_id, [(0, [])])]
            connection.ask(ApiKey.SHARE_FETCH, 2, **own, **size, share_session_epoch=0, topics=wanted)
            if said:
                rows = [(topic_id, [(0, [(begin, end, [kind]) for begin, end, kind in said])])]
                connection.ask(ApiKey.SHARE_ACKNOWLEDGE, 2, **own, share_session_epoch=1, topics=rows)
            yield

    @contextmanager
    def other_groups(self, prefix: str) -> Iterator[None]:
        """`OTHER_GROUPS` with a member each, named with this prefix; the coordinator is there already."""
        join, sync = (API_TABLE[key].request.row for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
        members = {}
        with Connection(parse_address(self._bootstrap), client_id=TESTS_CLIENT_ID) as connection:
            for name, (protocol_type, metadata, assignment) in OTHER_GROUPS.items():
                group = prefix + name
                joined = connection.ask(
                    ApiKey.JOIN_GROUP,
                    2,
                    group_id=group,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=SESSION_MS,
                    member_id="",
                    protocol_type=protocol_type,
                    protocols=[join("protocols")(name="default", metadata=metadata)],
                )
                members[group] = joined.member_id
                connection.ask(
                    ApiKey.SYNC_GROUP,
                    1,
                    group_id=group,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    assignments=[sync("assignments")(member_id=joined.member_id, assignment=assignment)],
                )
            try:
                yield
            finally:
                for group, member in members.items():
                    connection.ask(ApiKey.LEAVE_GROUP, 1, group_id=group, member_id=member)

    def _consumer(self, group: str | None = None) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="by-hand",
            group_id=group,
            enable_auto_commit=False,
            consumer_timeout_ms=20_000,
        )
