"""CreateTopics, DeleteTopics and DescribeConfigs at the handlers, and deletions that are interrupted.

What Apache Kafka 2.0.1 refuses, and in which order, is in tests/conformance/scripts/administering.py and changing.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.cluster.file_state import FILE_NAME
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID, TopicPartition
from minibroker.storage.data_dir.log_manager import LogManager
from tests.broker.asking import TOPIC, described
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.storage.logs import names_in


async def create(
    broker: InMemoryBroker, name: str = "t", *, partitions: int = 1, replicas: int = 1, version: int = 4, **more: Any
) -> Any:
    topic = (name, partitions, replicas, more.pop("assignments", []), more.pop("configs", []))
    return (await broker.call(ApiKey.CREATE_TOPICS, version, topics=[topic], timeout_ms=1000, **more)).topics[0]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"name": "x_y"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"partitions": 2**31 - 1}, ErrorCode.INVALID_PARTITIONS),
        ({"configs": [("retention.ms", None)]}, ErrorCode.INVALID_CONFIG),
        ({"partitions": -1, "replicas": -1, "assignments": [(1, [0])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_what_is_refused_is_not_created(broker: InMemoryBroker, options: dict[str, Any], code: ErrorCode) -> None:
    await create(broker, "x.y")

    row = await create(broker, version=7, **options)

    assert row.error_code == code
    assert row.error_message
    assert (row.num_partitions, row.replication_factor, list(row.configs), row.topic_id) == (-1, -1, [], ZERO_UUID)
    answer = await broker.call(ApiKey.METADATA, 1, topics=None)
    assert [topic.name for topic in answer.topics] == ["x.y"]


async def test_topics_with_their_records_ids_and_replicas_outlive_a_restart_and_deleted_ones_do_not(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tmp_path / "shared")
    topic_id = (await create(broker, partitions=2, configs=[("retention.ms", "12345")], version=7)).topic_id
    await create(broker, "some", partitions=-1, replicas=-1, assignments=[(0, [5, 0]), (1, [5, 6])])
    await create(broker, "gone")
    await broker.produce("t", [b"kept"], partition=1)
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["gone"], timeout_ms=1000)
    broker.close()

    broker = make_broker(tmp_path / "shared")
    metadata = await broker.call(ApiKey.METADATA, 10, topics=None)
    answer = await broker.fetch(("t", 1, 0))

    topics = {topic.name: topic for topic in metadata.topics}
    assert topics.keys() == {"t", "some"}
    assert topics["t"].topic_id == topic_id != ZERO_UUID
    assert [(row.partition, row.replica_nodes) for row in topics["some"].partitions] == [(0, [5, 0])]
    assert b"kept" in bytes(answer.topics[0].partitions[0].records)
    assert (await described(broker, TOPIC, "t", "retention.ms"))["retention.ms"].value == "12345"


async def test_topic_configs_say_where_their_values_come_from(make_broker: MakeBroker) -> None:
    broker = make_broker(log_segment_bytes=123456)
    await create(broker, configs=[("retention.ms", "1000")])

    configs = await described(broker, TOPIC, "t", include_synonyms=True)

    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", 1)
    assert (configs["segment.bytes"].value, configs["segment.bytes"].config_source) == ("123456", 4)
    assert (configs["cleanup.policy"].value, configs["cleanup.policy"].config_source) == ("delete", 5)
    assert [row.name for row in configs["segment.bytes"].synonyms] == ["log.segment.bytes", "log.segment.bytes"]


async def test_from_v5_a_created_topic_is_told_with_its_configs(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions=3)

    row = await create(broker, partitions=-1, replicas=-1, version=5, configs=[("retention.ms", "12345")])

    assert (row.num_partitions, row.replication_factor) == (3, 1)
    told = {config.name: (config.value, config.config_source) for config in row.configs}
    assert told["retention.ms"] == ("12345", 1)
    assert told["cleanup.policy"] == ("delete", 5)


async def test_a_topic_is_deleted_by_its_id(broker: InMemoryBroker) -> None:
    topic_id = (await create(broker, version=7)).topic_id

    answer = await broker.call(ApiKey.DELETE_TOPICS, 6, topics=[(None, topic_id)], timeout_ms=1000)

    assert [tuple(row) for row in answer.topics] == [("t", topic_id, ErrorCode.NONE, None)]
    again = await create(broker, version=7)
    assert (again.error_code, again.topic_id != topic_id) == (ErrorCode.NONE, True)


async def test_an_unknown_id_and_name_are_told_apart(broker: InMemoryBroker) -> None:
    answer = await broker.call(
        ApiKey.DELETE_TOPICS, 6, topics=[(None, b"0123456789abcdef"), ("nope", ZERO_UUID)], timeout_ms=1000
    )

    assert [(row.name, row.error_code) for row in answer.topics] == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("topic", [("t", b"0123456789abcdef"), (None, ZERO_UUID)])
async def test_a_topic_to_delete_is_named_once(broker: InMemoryBroker, topic: tuple[str | None, bytes]) -> None:
    await create(broker)

    answer = await broker.call(ApiKey.DELETE_TOPICS, 6, topics=[topic], timeout_ms=1000)

    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert (await create(broker)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_without_time_it_is_done_and_answered_as_too_late(broker: InMemoryBroker) -> None:
    made = await broker.call(ApiKey.CREATE_TOPICS, 3, topics=[("t", 1, 1, [], [])], timeout_ms=0)
    deleted = await broker.call(ApiKey.DELETE_TOPICS, 2, topic_names=["t"], timeout_ms=-1)

    assert [row.error_code for each in (made, deleted) for row in each.topics] == [ErrorCode.REQUEST_TIMED_OUT] * 2
    assert (await create(broker, validate_only=True)).error_code == ErrorCode.NONE
    assert (await create(broker)).error_code == ErrorCode.NONE
    assert (await create(broker)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_deletion_that_is_switched_off_is_refused(make_broker: MakeBroker, version: int, code: ErrorCode) -> None:
    broker = make_broker(delete_topic_enable="false")
    await create(broker)

    answer = await broker.call(ApiKey.DELETE_TOPICS, version, topic_names=["t"], timeout_ms=1000)

    assert [row.error_code for row in answer.topics] == [code]
    assert (await create(broker)).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


NAMES = ["first", "second"]
PARTITIONS = 3


class Killed(BaseException):
    """The process ends here."""


def end_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the broker end after it has given up this many logs."""
    delete = LogManager.delete_log
    deleted: list[TopicPartition] = []

    def delete_log(self: LogManager, topic_partition: TopicPartition) -> None:
        if len(deleted) == count:
            raise Killed
        deleted.append(topic_partition)
        delete(self, topic_partition)

    monkeypatch.setattr(LogManager, "delete_log", delete_log)


@pytest.mark.parametrize("count", range(2 * PARTITIONS))
async def test_a_topic_is_gone_altogether(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    broker = make_broker(tmp_path)
    for name in NAMES:
        await broker.create_topic(name, PARTITIONS)
    with monkeypatch.context() as patch:
        end_after(count, patch)
        with pytest.raises(Killed):
            await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=NAMES, timeout_ms=1000)
    broker.app._log_manager.go_offline("the process has ended")
    broker.close()  # which leaves the files as they are

    again = make_broker(tmp_path)

    assert '"being_deleted": []' in (tmp_path / FILE_NAME).read_text()
    assert (await again.call(ApiKey.METADATA, 1, topics=None)).topics == []
    assert not names_in(tmp_path) & {f"{name}-{number}" for name in NAMES for number in range(PARTITIONS)}
    await again.create_topic("first", 1)
    topics = (await again.call(ApiKey.METADATA, 1, topics=None)).topics
    assert [(each.name, len(each.partitions)) for each in topics] == [("first", 1)]
