"""CreateTopics, DeleteTopics and DescribeConfigs at the handlers, and deletions that are interrupted.

What Apache Kafka 2.0.1 refuses, and in which order, is in tests/golden/conversations/kafka-2.0.1/
(administering.txt, changing.txt).
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from minibroker.broker.cluster.file_state import FILE_NAME
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files import disk
from tests.broker.conftest import MakeBroker
from tests.storage.logs import names_in

NAMES = ["first", "second"]
PARTITIONS = 3


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no space left")


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


async def test_a_log_that_could_not_be_deleted_is_not_the_next_topics(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(tmp_path)
    await broker.create_topic("t", 1)
    await broker.produce("t", [b"old"])
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", no_space)
        deleted = await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)
        made = await broker.call(ApiKey.CREATE_TOPICS, 1, topics=[("t", 1, 1, [], [])], timeout_ms=1000)
        deleted_again = await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)
    codes = [each.topics[0].error_code for each in (deleted, made, deleted_again)]
    broker.app._log_manager.take_due_deletions(0)

    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    assert not names_in(tmp_path) & {"t-0"}
    await broker.create_topic("t", 1)
    assert broker.app._log_manager.logs[TopicPartition("t", 0)].log_end_offset == 0


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
