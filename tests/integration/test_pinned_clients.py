"""A client that is pinned to a release of Kafka speaks the versions which its own table has of that release.

The table itself is compared in `tests/protocol/test_releases.py`.
"""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from minibroker.broker.config.profiles import RELEASES as ACTED
from minibroker.protocol.api import ApiKey
from tests.integration.brokers import BrokerProcess
from tests.integration.conftest import StartMinibroker
from tests.integration.kafka_python import (
    BROKER_API_VERSIONS,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.integration.wire import connection_to

# With groups that the broker coordinates.
RELEASES = sorted(release for release in BROKER_API_VERSIONS if release >= (0, 10, 0))
FIRST_WITH_TRANSACTIONS = (0, 11)
READ_SECONDS = 20.0
VALUES = [b"0", b"1", b"2"]


def text_of(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


# Each writes or reads in versions of its own; between them is nothing new.
@pytest.mark.sample(of=lambda release: release in ((0, 10, 0), (2, 0), (3, 2), (3, 5), (3, 9), (4, 0), (4, 3)))
@pytest.mark.parametrize("release", RELEASES, ids=text_of)
def test_a_client_of_a_release_writes_reads_in_a_group_commits_and_leaves(
    release: tuple[int, ...], broker: BrokerProcess
) -> None:
    write_and_read(broker.bootstrap, release)


@pytest.mark.sample(of=lambda name: name == "1.1")
@pytest.mark.parametrize("name", ACTED)
def test_so_does_a_client_of_the_release_that_the_broker_acts_as(name: str, start_minibroker: StartMinibroker) -> None:
    broker = start_minibroker("--act-as", name).wait_until_ready()
    release = tuple(map(int, ACTED[name].split(".")))[:2]

    write_and_read(broker.bootstrap, max(each for each in RELEASES if each[:2] == release))


def write_and_read(bootstrap: str, release: tuple[int, ...]) -> None:
    topic = group = f"pinned-{text_of(release)}"
    partition = TopicPartition(topic, 0)
    has_transactions = release >= FIRST_WITH_TRANSACTIONS
    pinned = {"bootstrap_servers": bootstrap, "api_version": release}
    producer = KafkaProducer(transactional_id=topic if has_transactions else None, **pinned)
    if has_transactions:
        producer.init_transactions()
        producer.begin_transaction()
    for value in VALUES:
        producer.send(topic, value, partition=0).get(READ_SECONDS)
    if has_transactions:
        producer.send_offsets_to_transaction({partition: OffsetAndMetadata(2, "", -1)}, f"{group}-of-transactions")
        producer.commit_transaction()
    producer.close()

    isolation = {"isolation_level": "read_committed"} if has_transactions else {}
    consumer = KafkaConsumer(
        topic, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **isolation, **pinned
    )
    found: list[bytes] = []
    deadline = time.monotonic() + READ_SECONDS
    while len(found) < len(VALUES) and time.monotonic() < deadline:
        found += [record.value for record in consumer.poll(500).get(partition, ())]
    assert found == VALUES
    consumer.commit()
    assert consumer.committed(partition) == consumer.position(partition)
    consumer.close()

    with closing(connection_to(bootstrap)) as connection:
        (described,) = connection.call(ApiKey.DESCRIBE_GROUPS, 0, groups=[group]).groups
        assert described.group_state == "Empty"
        if has_transactions:
            asked = {"group_id": f"{group}-of-transactions", "topics": [(topic, [0])]}
            (row,) = connection.call(ApiKey.OFFSET_FETCH, 1, **asked).topics[0].partitions
            assert row.committed_offset == 2
