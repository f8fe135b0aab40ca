"""The long logs of `make bench`: an offset in them is found as in a real log."""

from __future__ import annotations

from pathlib import Path

from benchmarks.sparse_log import OFFSETS_A_PAIR, write_sparse_log
from minibroker.protocol.batches import scan_batches
from tests.broker.conftest import MakeBroker

SECTOR_BYTES = 512


async def test_a_sparse_log_is_read_and_written_as_a_long_one(make_broker: MakeBroker, tmp_path: Path) -> None:
    data_dir = tmp_path / "sparse"
    end = write_sparse_log(data_dir, "long", gibibytes=2)
    broker = make_broker(data_dir)

    for offset in (0, 1000, end - OFFSETS_A_PAIR):
        answer = await broker.fetch(("long", 0, offset), max_bytes=1024)
        ((row,),) = (topic.partitions for topic in answer.topics)
        records = bytes(row.records)
        (batch,) = scan_batches(records, 0, len(records))
        assert (row.high_watermark, batch.base_offset) == (end, offset)
    await broker.produce("long", [b"next"])

    assert broker.log_of("long").log_end_offset == end + 1
    assert sum(path.stat().st_blocks for path in data_dir.rglob("*.log")) * SECTOR_BYTES < 40_000_000
