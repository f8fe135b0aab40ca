"""Row 95 of kafka 2.0.1's fetch path: disks that fail or are full. Time is jumped."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import LONG_MS, codes, fill, row_of
from tests.broker.conftest import InMemoryBroker, MakeBroker
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
