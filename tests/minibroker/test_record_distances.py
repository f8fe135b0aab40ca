"""Records are counted from either end of a partition, whatever lies between them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from minibroker.admin.partitions import OffsetRange
from minibroker.any_cluster import record_distances
from minibroker.any_cluster.record_distances import Counting
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.minibroker.answering import Answers, metadata, row, topic

ABORT, COMMIT = (struct.pack(">hh", 0, kind) for kind in (0, 1))


def batch(*offsets: int, last: int | None = None, producer: int = -1, marker: bytes | None = None) -> bytes:
    records = [Record(offset, 1, marker or b"k", b"\0" * 6) for offset in offsets]
    return bytes(
        build_batch(
            records,
            base_offset=offsets[0],
            last_offset=last,
            producer_id=producer,
            is_transactional=producer >= 0,
            is_control=marker is not None,
        )
    )


# Compaction has emptied 3, 4, 6 to 19 and more; what producer 7 wrote at 20, 21 and 36 is aborted.
LOG = [
    (3, batch(0, 1, 2)),
    (7, batch(5, last=6)),
    (22, batch(20, 21, producer=7)),
    (23, batch(22, producer=7, marker=ABORT)),
    (24, batch(23, producer=7)),
    (25, batch(24, producer=7, marker=COMMIT)),
    (36, batch(30, 31, 35)),
    (37, batch(36, producer=7)),
    (38, batch(37, producer=7, marker=ABORT)),
]
END = 38
UNCOMMITTED = [0, 1, 2, 5, 20, 21, 23, 30, 31, 35, 36]
COMMITTED = [0, 1, 2, 5, 23, 30, 31, 35]


def fetched(body: Any) -> Any:
    """A few batches from the one on that has the offset."""
    position = body["topics"][0].partitions[0].fetch_offset
    data = b"".join([each for behind, each in LOG if behind > position][:2])
    aborted = [row(producer_id=7, first_offset=first) for first, end in ((20, 22), (36, 37)) if end >= position]
    is_committed = body["isolation_level"] == 1
    partition = row(partition=0, records=data, aborted_transactions=aborted if is_committed else None)
    return row(topics=[row(partitions=[partition])])


@pytest.fixture(autouse=True)
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_distances, "WINDOW_MIN", 1)


@pytest.mark.parametrize("earliest", [0, 2, 5, 10])
@pytest.mark.parametrize(("committed", "offsets"), [(False, UNCOMMITTED), (True, COMMITTED)])
def test_as_many_records_lie_behind_it_or_before_it(committed: bool, offsets: list[int], earliest: int) -> None:
    there = [offset for offset in offsets if offset >= earliest]
    counting = Counting(
        Answers(metadata=metadata(topic("t", 0)), fetch=fetched),
        "t",
        0,
        OffsetRange(earliest, END),
        committed_only=committed,
    )

    for count in range(1, len(there) + 3):
        first, behind = counting.before_last(count), counting.behind_first(count)

        assert [offset for offset in there if offset >= first] == there[-count:]
        assert [offset for offset in there if offset < behind] == there[:count]
        assert earliest <= first <= END
        assert earliest <= behind <= END
