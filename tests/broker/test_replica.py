"""What a leader takes from a follower's fetches: rows 52 and 54 to 56 rest on when it was caught up."""

from __future__ import annotations

import pytest

from minibroker.broker.replica.replica import NEVER_MS, Replica
from minibroker.storage.index.fetch_data import LogOffsetMetadata

LAG_MS = 10_000


def replica(last_caught_up_ms: int = NEVER_MS) -> Replica:
    return Replica(1, last_caught_up_ms=last_caught_up_ms)


def fetch(follower: Replica, offset: int, *, leader_end: int, now_ms: int) -> None:
    follower.note_fetch(
        LogOffsetMetadata(offset, 0, offset * 10), log_start_offset=0, leader_end_offset=leader_end, now_ms=now_ms
    )


def test_row_52_nothing_is_known_of_a_follower_before_its_first_fetch() -> None:
    follower = replica()

    assert (follower.log_end_offset.message_offset, follower.log_start_offset) == (-1, -1)
    assert not follower.is_caught_up(0, LAG_MS)


def test_row_52_a_fetch_at_the_leaders_end_is_caught_up_now() -> None:
    follower = replica()

    fetch(follower, 5, leader_end=5, now_ms=100)

    assert follower.last_caught_up_ms == 100
    assert follower.log_end_offset == LogOffsetMetadata(5, 0, 50)


def test_row_52_who_is_always_one_step_behind_a_busy_leader_was_caught_up_at_the_fetch_before() -> None:
    follower = replica()
    fetch(follower, 5, leader_end=8, now_ms=100)
    fetch(follower, 8, leader_end=11, now_ms=200)
    fetch(follower, 11, leader_end=14, now_ms=300)

    assert follower.last_caught_up_ms == 200


def test_row_52_a_follower_that_falls_behind_keeps_the_time_when_it_was_not() -> None:
    follower = replica()
    fetch(follower, 5, leader_end=5, now_ms=100)
    fetch(follower, 5, leader_end=50, now_ms=200)
    fetch(follower, 20, leader_end=60, now_ms=300)

    assert follower.last_caught_up_ms == 100


def test_row_52_a_failed_fetch_leaves_no_end_and_the_time_as_it_was() -> None:
    follower = replica()
    fetch(follower, 5, leader_end=5, now_ms=100)

    follower.note_failed_fetch()
    fetch(follower, 0, leader_end=5, now_ms=200)

    assert follower.last_caught_up_ms == 100
    assert follower.log_end_offset.message_offset == 0


@pytest.mark.parametrize(("now_ms", "expected"), [(LAG_MS + 7, True), (LAG_MS + 8, False)])
def test_row_56_the_lag_may_be_as_long_as_is_allowed_and_no_longer(now_ms: int, expected: bool) -> None:
    assert replica(last_caught_up_ms=7).is_caught_up(now_ms, LAG_MS) is expected
