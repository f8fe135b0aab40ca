"""Brokers and replicas at the handlers: what is there, where it lies, and that nothing is being moved."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.secured import Secured
from tests.integration.brokers import Minibroker

PREFERRED, UNCLEAN = 0, 1


@pytest.mark.parametrize("version", [0, 1])
async def test_the_cluster_is_this_broker(make_broker: MakeBroker, version: int) -> None:
    broker = make_broker(broker_rack="r1")

    answer = await broker.call(ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)

    assert (answer.error_code, answer.controller_id, answer.endpoint_type) == (ErrorCode.NONE, 0, 1)
    assert [tuple(row) for row in answer.brokers] == [(0, "127.0.0.1", 9092, "r1")]
    assert len(answer.cluster_id) == 22
    assert answer.cluster_authorized_operations == 0b1_1111_1010_0000
    assert (await broker.call(ApiKey.DESCRIBE_CLUSTER, 0)).cluster_authorized_operations == -(2**31), "not asked for"


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
async def test_controllers_are_not_described_here(broker: InMemoryBroker, endpoint_type: int, code: ErrorCode) -> None:
    answer = await broker.call(ApiKey.DESCRIBE_CLUSTER, 1, endpoint_type=endpoint_type)

    assert (answer.error_code, list(answer.brokers)) == (code, [])
    assert answer.error_message


@pytest.mark.parametrize("version", range(5))
async def test_log_directories_are_told_with_the_size_of_each_log(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t", 2)
    await broker.create_topic("u")
    await broker.produce("t", [b"x" * 100], partition=1)

    answer = await broker.call(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)

    (directory,) = answer.results
    sizes = {(name, row.partition): row.size_bytes for name, rows in directory.topics for row in rows}
    assert sizes == {("t", 0): 0, ("t", 1): broker.log_of("t", 1).size_bytes, ("u", 0): 0}
    assert sizes["t", 1] > 100
    assert directory.log_dir == str(broker.app._log_manager.log_dir)
    assert {(row.offset_lag, row.is_future_key) for _, rows in directory.topics for row in rows} == {(0, False)}


async def test_the_size_of_the_disk_is_told_from_v4(broker: InMemoryBroker) -> None:
    disk = os.statvfs(broker.app._log_manager.log_dir)

    answer = await broker.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[])

    assert answer.results[0].total_bytes == disk.f_blocks * disk.f_frsize
    assert 0 < answer.results[0].usable_bytes < answer.results[0].total_bytes


async def test_a_failed_directory_is_told_as_such(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t")
    with monkeypatch.context() as failed:
        failed.setattr(broker.app._log_manager, "is_offline", True)

        told = await broker.call(ApiKey.DESCRIBE_LOG_DIRS, 1, topics=None)
        path = told.results[0].log_dir
        moved = await broker.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, dirs=[(path, [("t", [0])])])

    assert [(row.error_code, list(row.topics)) for row in told.results] == [(ErrorCode.KAFKA_STORAGE_ERROR, [])]
    assert moved.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_there_is_one_directory_to_move_replicas_to(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    path = str(broker.app._log_manager.log_dir)

    async def moved(path: str, topic: str) -> ErrorCode:
        answer = await broker.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=[(path, [(topic, [0])])])
        ((name, ((partition, code),)),) = answer.topics
        assert (name, partition) == (topic, 0)
        return ErrorCode(code)

    assert [await moved(path, topic) for topic in ("t", "nope")] == [ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE]
    assert [await moved("/nowhere", topic) for topic in ("t", "nope")] == [ErrorCode.LOG_DIR_NOT_FOUND] * 2


@pytest.mark.parametrize("version", range(3))
async def test_elections_are_answered_by_partition(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")

    answer = await broker.call(
        ApiKey.ELECT_LEADERS, version, topic_partitions=[("t", [0, 1]), ("nope", [0])], timeout_ms=1000
    )

    assert answer.error_code == ErrorCode.NONE
    assert {(name, row.partition): row.error_code for name, rows in answer.topics for row in rows} == {
        ("t", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("t", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_who_asks_for_all_elections_is_told_those_that_failed(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await broker.call(ApiKey.CREATE_TOPICS, 3, topics=[("u", -1, -1, [(0, [5, 0]), (1, [5, 6])], [])], timeout_ms=1000)

    answer = await broker.call(ApiKey.ELECT_LEADERS, 1, election_type=UNCLEAN, topic_partitions=None, timeout_ms=1000)

    assert [(name, [row.partition for row in rows]) for name, rows in answer.topics] == [("u", [1])]
    assert answer.topics[0].partitions[0].error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


async def test_an_unknown_kind_of_election_is_refused(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.ELECT_LEADERS, 2, election_type=7, topic_partitions=[("t", [0])], timeout_ms=1)

    assert answer.error_code == answer.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("topics", [None, [("t", [0])]])
async def test_no_partition_is_being_reassigned(broker: InMemoryBroker, topics: list[Any] | None) -> None:
    await broker.create_topic("t")

    answer = await broker.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout_ms=1000)

    assert (answer.error_code, answer.error_message, list(answer.topics)) == (ErrorCode.NONE, None, [])


async def reassigned(broker: InMemoryBroker, *topics: tuple[str, list[tuple[int, list[int] | None]]]) -> Any:
    """The outcome of each partition, in the order of the request."""
    answer = await broker.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, topics=list(topics), timeout_ms=1000)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    return [(name, row.partition, row.error_code, row.error_message) for name, rows in answer.topics for row in rows]


# As kafka 3.9.1 answers with one broker, here 0.
REPLICAS: list[tuple[list[int] | None, ErrorCode, str | None]] = [
    (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ([0], ErrorCode.NONE, None),
    ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "an empty replica list."),
    ([7], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such broker is registered."),
    ([0, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such broker is registered."),
    ([0, -5, 0], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker -5, but no such broker is registered."),
    ([7, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 7, but no such broker is registered."),
    ([0, 0, 7], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 0 more than once."),
]


@pytest.mark.parametrize(("replicas", "code", "message"), REPLICAS)
async def test_a_partition_can_only_be_where_it_is(
    broker: InMemoryBroker, replicas: list[int] | None, code: ErrorCode, message: str | None
) -> None:
    await broker.create_topic("t")

    found = await reassigned(broker, ("t", [(0, replicas)]))

    assert found == [("t", 0, code, message and f"The manual partition assignment includes {message}")]


async def test_reassignments_are_answered_each_by_itself(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert await reassigned(broker, ("t", [(0, [0]), (9, None), (0, None)]), ("nope", [(0, [7])])) == [
        ("t", 0, ErrorCode.NONE, None),
        ("t", 9, missing, "Unable to find partition t:9."),
        ("t", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
        ("nope", 0, missing, "Unable to find a topic named nope."),
    ]


async def test_a_replica_on_a_broker_that_is_not_alive_stays(broker: InMemoryBroker) -> None:
    await broker.call(ApiKey.CREATE_TOPICS, 3, topics=[("u", -1, -1, [(0, [5, 0])], [])], timeout_ms=1000)

    ((*_, code, message),) = await reassigned(broker, ("u", [(0, [0])]))

    assert (code, message) == (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The partition stays on brokers [5, 0]: none can move.",
    )


async def test_reassignments_need_alter_on_the_cluster(make_broker: MakeBroker) -> None:
    secured = Secured(make_broker)
    await secured.create_topics("t")

    asked = {"timeout_ms": 1, "topics": [("t", [(0, None)])]}
    answer = await secured.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, **asked)

    codes = [answer.error_code, *(row.error_code for topic in answer.topics for row in topic.partitions)]
    assert codes == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2


# What the admin client of kafka-python gets: the error code of each partition.
REASSIGNING = """
import sys
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
admin.create_topics([NewTopic("t", 3, 1)])
asked = {("t", 0): [0], ("t", 1): [1], ("t", 2): None, ("nope", 0): None}
found = admin.alter_partition_reassignments({TopicPartition(*key): replicas for key, replicas in asked.items()})
print([found[key].errno if found[key] else 0 for key in asked])
"""


@pytest.mark.integration
def test_a_client_asks_for_reassignments(tmp_path: Path) -> None:
    broker = Minibroker(tmp_path)
    try:
        broker.wait_until_ready()
        command = [sys.executable, "-W", "ignore", "-c", REASSIGNING, f"{broker.host}:{broker.port}"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        broker.kill()

    codes = ("NONE", "INVALID_REPLICA_ASSIGNMENT", "NO_REASSIGNMENT_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION")
    assert ast.literal_eval(printed) == [ErrorCode[code] for code in codes]
