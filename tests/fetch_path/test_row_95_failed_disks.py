"""Row 95 of kafka 2.0.1's fetch path: disks that fail or are full. Time is jumped."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import READ_COMMITTED
from minibroker.protocol.primitives import TopicPartition
from tests.broker.asking import LONG_MS, batch_of, codes, fill, row_of
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.transactional import with_open_transaction
from tests.storage.file_limits import failing

pytestmark = pytest.mark.time_jumps


async def test_row_95_a_failed_directory_is_offline(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t", 2)
    await broker.create_topic("u")
    await fill(broker, "u")
    parked = await broker.park(broker.fetch, ("t", 1, 0), max_wait_ms=LONG_MS)

    with monkeypatch.context() as disk:
        disk.setattr("minibroker.storage.files.disk.pwrite", failing(errno.EIO))
        failed = await broker.produce("t", [b"x"])
    later = [(await broker.produce("u", [b"x"])).error_code]
    later += codes(await broker.fetch(("t", 0, 0), ("t", 1, 0), ("u", 0, 0)))
    answer = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=[("u", [(0, -1, -1, 1)])])
    later.append(row_of(answer).error_code)

    assert [failed.error_code, *later] == [ErrorCode.KAFKA_STORAGE_ERROR] * 6
    assert row_of(await parked.seen()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("asks_for_time", [False, True])
async def test_row_95_a_read_that_fails_takes_the_directory_offline(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, asks_for_time: bool
) -> None:
    """As kafka 2.0.1 Log.read and Log.fetchOffsetsByTimestamp; the partitions before it have their answers."""
    for topic in ("t", "u"):
        await broker.create_topic(topic)
        await fill(broker, topic, batches=2)

    monkeypatch.setattr("minibroker.storage.files.disk.pread", failing(errno.EIO))
    if asks_for_time:
        topics = [("t", [(0, -1, -1, 1)]), ("u", [(0, -1, 1, 1)])]
        answer = await broker.call(ApiKey.LIST_OFFSETS, 1, replica_id=-1, topics=topics)
    else:
        answer = await broker.fetch(("t", 0, 2), ("u", 0, 0))

    assert codes(answer) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(await broker.fetch(("t", 0, 2))) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_row_95_a_read_that_fails_while_a_fetch_waits_fails_that_fetch_and_no_append(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await with_open_transaction(broker)
    parked = await broker.park(broker.fetch, ("a", 0, 0), isolation_level=READ_COMMITTED, max_wait_ms=LONG_MS)

    monkeypatch.setattr("minibroker.storage.files.disk.pread", failing(errno.EIO))
    written = await broker.produce("a", [b"x"])

    assert written.error_code == ErrorCode.NONE
    assert codes(await parked.seen()) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_row_95_no_append_reads_the_disk_to_be_committed(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where others came during its fsync."""
    await broker.create_topic("t", flush_messages=1)
    await fill(broker, "t", batches=3)
    appends: list[Any] = []

    def append() -> None:
        entries = {TopicPartition("t", 0): memoryview(batch_of())}
        appends.append(broker.parts.replica_manager.append(entries, required_acks=1, timeout_ms=LONG_MS))

    async def flush_and_append(work: Callable[[], object]) -> None:
        work()
        if len(appends) == 1:
            append()
            append()

    monkeypatch.setattr("minibroker.broker.upkeep.threads.run_sync", flush_and_append)
    monkeypatch.setattr("minibroker.storage.files.disk.pread", failing(errno.EIO))
    append()

    for each in appends:
        ((_, result),) = (await each.wait()).items()
        assert result.error is ErrorCode.NONE
    assert (len(appends), broker.log_of("t").high_watermark) == (3, 6)


async def test_row_95_a_full_disk_is_a_passing_error(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t")
    with monkeypatch.context() as disk:
        disk.setattr("minibroker.storage.files.disk.pwrite", failing(errno.ENOSPC))
        failed = await broker.produce("t", [b"x"])

    assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await broker.produce("t", [b"x"])).error_code == ErrorCode.NONE


async def test_row_95_a_broker_without_its_directory_stops_in_order(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "shared")
    await broker.create_topic("t")
    await fill(broker, "t")
    broker.parts.replica_manager.log_manager.go_offline("a test")

    broker.close()

    again = make_broker(tmp_path / "shared")  # it is unlocked, and what was written is there
    assert row_of(await again.fetch(("t", 0, 0))).high_watermark == 1
