"""Records of a share group in flight, as commands and the console show them."""

from __future__ import annotations

from minibroker.shared_records import SharedRecords, joined


def test_runs_next_to_each_other_are_one_where_only_their_offsets_differ() -> None:
    run = SharedRecords("t", 0, 0, 0, "acquired", 1, "m", 5, 6)
    rows = [
        run,
        run._replace(first_offset=1, last_offset=9),
        run._replace(first_offset=10, last_offset=10, delivery_count=2),
        run._replace(first_offset=12, last_offset=12, delivery_count=2),
        run._replace(partition=1, first_offset=13, last_offset=13, delivery_count=2),
    ]

    assert joined(rows) == [run._replace(last_offset=9), *rows[2:]]
    assert joined([]) == []
