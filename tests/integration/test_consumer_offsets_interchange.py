"""Groups in a data directory that changes hands: what one broker stored, the other finds, and goes on with.

Real clients commit and join on Apache Kafka 2.0.1 or on minibroker; the other broker is then started on the
directory and asked, by the same requests, what it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.apache_kafka import ApacheKafka
from minibroker.conformance.raw_connection import RawConnection
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.integration.conftest import StartMinibroker
from tests.integration.foreign_directory import apache_kafka_on
from tests.integration.kafka_tools import kafka_tool
from tests.integration.librdkafka import consumer_of
from tests.integration.members import answer_of, wait_until
from tests.integration.topics import create_topic_over
from tests.integration.wire import connection_to

TOPIC = "flights"
POLL_SECONDS = 0.1
SETTINGS: dict[str, str | int] = {"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0}
MEMBER, STATIC, SIMPLE, TRANSACTIONAL, EXPIRING = "with-member", "with-static", "simple", "transactional", "expiring"
GROUPS = (MEMBER, STATIC, SIMPLE, TRANSACTIONAL, EXPIRING)
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


class SeenGroup(NamedTuple):
    """A group as DescribeGroups and OffsetFetch tell it."""

    state: str
    protocol_type: str
    protocol: str
    members: list[tuple[str, str, str, bytes, bytes]]
    offsets: dict[tuple[str, int], tuple[int, str]]


@contextmanager
def groups_in_use(bootstrap: str) -> Iterator[None]:
    """Commit in every way there is; inside the block two groups have a member that lives."""
    with connection_to(bootstrap) as connection:
        create_topic_over(connection, TOPIC, 2)
    members = [joined(bootstrap, MEMBER), joined(bootstrap, STATIC, group_instance_id="gate")]
    members[0].commit(offsets=[TopicPartition(TOPIC, 0, 6), TopicPartition(TOPIC, 1, 7)], asynchronous=False)
    members[1].commit(offsets=[TopicPartition(TOPIC, 0, 8)], asynchronous=False)
    commit(bootstrap, SIMPLE, 3)
    commit(bootstrap, SIMPLE, 4)
    commit_in_transactions(bootstrap)
    commit_until(bootstrap, EXPIRING)
    yield  # none is closed: a consumer that is closed leaves its group
    del members


def joined(bootstrap: str, group: str, **settings: str) -> Consumer:
    consumer = consumer_of(bootstrap, group, client_id=f"{group}-client", session_timeout_ms=120_000, **settings)
    consumer.subscribe([TOPIC])
    wait_until(lambda: consumer.poll(POLL_SECONDS) is None and bool(consumer.assignment()), "partitions")
    return consumer


def commit(bootstrap: str, group: str, offset: int) -> None:
    """Commit without being a member."""
    consumer = consumer_of(bootstrap, group)
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def commit_in_transactions(bootstrap: str) -> None:
    """Offset 100 is committed, 200 aborted, and 300 left in a transaction that stays open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "exactly-once", "log_level": 0})
    reader = consumer_of(bootstrap, TRANSACTIONAL)
    producer.init_transactions()
    for offset, end in ((100, producer.commit_transaction), (200, producer.abort_transaction), (300, None)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, offset)], reader.consumer_group_metadata())
        if end is not None:
            end()
    reader.close()


def commit_until(bootstrap: str, group: str) -> None:
    """Commit with a retention time, as clients up to OffsetCommit v4 may ask for."""
    with connection_to(bootstrap) as connection:
        answer = connection.call(
            ApiKey.OFFSET_COMMIT,
            2,
            group_id=group,
            generation_id=-1,
            retention_time_ms=3_600_000,
            topics=[(TOPIC, [(0, 9, -1, -1, "for an hour")])],
        )
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def seen_groups(bootstrap: str) -> dict[str, SeenGroup]:
    """Describe GROUPS in terms of requests that Kafka 2.0.1 and minibroker both answer."""
    with connection_to(bootstrap) as connection:
        return {group: seen_group(connection, group) for group in GROUPS}


def seen_group(connection: RawConnection, group: str) -> SeenGroup:
    described = answered(lambda: connection.call(ApiKey.DESCRIBE_GROUPS, 1, groups=[group]).groups[0])
    fetched = answered(lambda: connection.call(ApiKey.OFFSET_FETCH, 2, group_id=group, topics=None))
    return SeenGroup(
        described.group_state,
        described.protocol_type,
        described.protocol_data,
        sorted(
            (each.member_id, each.client_id, each.client_host, each.member_metadata, each.member_assignment)
            for each in described.members
        ),
        {
            (topic.name, row.partition): (row.committed_offset, row.metadata)
            for topic in fetched.topics
            for row in topic.partitions
        },
    )


def answered(ask: Callable[[], Any]) -> Any:
    """The answer, once the coordinator has loaded its groups."""
    answer = answer_of(ask, NOT_YET, "the coordinator")
    assert answer.error_code == ErrorCode.NONE, answer
    return answer


def described_by_kafkas_tool(jars: Path, bootstrap: str, group: str) -> list[list[str]]:
    """The rows of `kafka-consumer-groups.sh --describe`, as words."""
    options = ("--bootstrap-server", bootstrap, "--describe", "--group", group)
    printed = kafka_tool(jars, "kafka.admin.ConsumerGroupCommand", *options, shows_errors=True)
    rows = [line.split() for line in printed.splitlines() if line.startswith(TOPIC)]
    assert rows, printed
    return rows


@pytest.mark.parametrize("ending", [pytest.param("terminate", marks=pytest.mark.nightly), "kill"])
def test_apache_kafka_sees_the_groups_that_minibroker_stored(
    start_minibroker: StartMinibroker, tmp_path: Path, jars: Path, ending: str
) -> None:
    minibroker = start_minibroker(settings=SETTINGS).wait_until_ready()
    with groups_in_use(minibroker.bootstrap):
        stored = seen_groups(minibroker.bootstrap)
        getattr(minibroker, ending)()

    with apache_kafka_on(minibroker.data_dir, tmp_path / "kafka") as kafka:
        found = seen_groups(kafka.bootstrap)
        rows = described_by_kafkas_tool(jars, kafka.bootstrap, MEMBER)
        commit(kafka.bootstrap, SIMPLE, 5)
        kafka.stop()
    again = start_minibroker(settings=SETTINGS).wait_until_ready()

    assert found == stored
    check_what_was_written(stored)
    assert sorted((row[1], row[2]) for row in rows) == [("0", "6"), ("1", "7")]
    assert seen_groups(again.bootstrap) == stored | {SIMPLE: stored[SIMPLE]._replace(offsets={(TOPIC, 0): (5, "")})}


@pytest.mark.nightly  # by day minibroker reads what Kafka once stored: tests/broker/test_offset_store.py
def test_minibroker_sees_the_groups_that_apache_kafka_stored(
    start_minibroker: StartMinibroker, tmp_path: Path, jars: Path
) -> None:
    settings = {**SETTINGS, "transaction.state.log.num.partitions": 3}
    with ApacheKafka(jars, tmp_path / "kafka", settings=settings, heap="512m") as kafka:
        with groups_in_use(kafka.bootstrap):
            stored = seen_groups(kafka.bootstrap)
            kafka.stop()
        data_dir = kafka.data_dir

    minibroker = start_minibroker("--data-dir", str(data_dir), settings=SETTINGS).wait_until_ready()

    assert seen_groups(minibroker.bootstrap) == stored
    check_what_was_written(stored)


def check_what_was_written(groups: dict[str, SeenGroup]) -> None:
    """The offsets are those that the clients committed, from either broker."""
    assert {name: group.offsets for name, group in groups.items()} == {
        MEMBER: {(TOPIC, 0): (6, ""), (TOPIC, 1): (7, "")},
        STATIC: {(TOPIC, 0): (8, "")},
        SIMPLE: {(TOPIC, 0): (4, "")},
        TRANSACTIONAL: {(TOPIC, 0): (100, "")},
        EXPIRING: {(TOPIC, 0): (9, "for an hour")},
    }
    assert {name for name, group in groups.items() if group.state == "Stable"} == {MEMBER, STATIC}
    assert {name for name, group in groups.items() if group.state == "Empty"} == {SIMPLE, TRANSACTIONAL, EXPIRING}
