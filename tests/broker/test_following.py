"""The role of a follower: its requests and the changes of its log by tables, and by histories of drawn leaders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.broker.wings.several.following import (
    Append,
    AskEpochEnd,
    AskOffset,
    AskRecords,
    Change,
    Following,
    Request,
    StartAt,
    State,
    TruncateTo,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.storage.index.leader_epochs import EpochEndOffset
from minibroker.storage.log.log import Log
from tests.storage.logs import NOW_MS, batch_of, batches_of, open_log, read_bytes, send

UNKNOWN = EpochEndOffset(-1, -1)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Epoch 1 at 0 to 3, epoch 3 at 4 to 5, epoch 5 at 6 to 9; the high watermark is 5."""
    log = open_log(tmp_path / "orders-0")
    write(log, (1, 4), (3, 2), (5, 4))
    log.update_high_watermark(5)
    return log


def write(log: Log, *epochs: tuple[int, int]) -> None:
    for epoch, records in epochs:
        for _ in range(records):
            send(log, batch_of("v"), leader_epoch=epoch)


def follower_of(log: Log, leader_id: int = 2, leader_epoch: int = 6) -> Following:
    return Following(log, leader_id=leader_id, leader_epoch=leader_epoch)


def fetching(log: Log) -> Following:
    following = follower_of(log)
    request = following.next_request()
    assert isinstance(request, AskEpochEnd)
    following.on_epoch_end(request, EpochEndOffset(5, log.log_end_offset))
    return following


def perform(log: Log, change: Change | None) -> None:
    match change:
        case TruncateTo(offset):
            log.truncate_to(offset, now_ms=NOW_MS)
        case StartAt(offset):
            log.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
        case Append(records, high_watermark, log_start_offset):
            log.append_as_follower(records, now_ms=NOW_MS)
            log.update_high_watermark(high_watermark)
            log.maybe_increment_log_start_offset(log_start_offset)


@pytest.mark.parametrize(
    ("leader_end", "offset", "state"),
    [
        pytest.param(UNKNOWN, 5, State.FETCHING, id="no such epoch: the high watermark"),
        pytest.param(EpochEndOffset(5, 12), 10, State.FETCHING, id="the same epoch, the leader has more"),
        pytest.param(EpochEndOffset(5, 8), 8, State.FETCHING, id="the same epoch, the leader has less"),
        pytest.param(EpochEndOffset(3, 7), 6, State.FETCHING, id="an older epoch that is longer at the leader"),
        pytest.param(EpochEndOffset(3, 5), 5, State.FETCHING, id="an older epoch that is shorter at the leader"),
        pytest.param(EpochEndOffset(4, 8), 6, State.TRUNCATING, id="an epoch that this log lacks"),
        pytest.param(EpochEndOffset(2, 8), 4, State.TRUNCATING, id="an earlier epoch that this log lacks"),
        pytest.param(EpochEndOffset(0, 0), 0, State.FETCHING, id="an epoch before this log's first"),
        pytest.param(EpochEndOffset(-1, 8), 8, State.FETCHING, id="a leader before 2.0"),
        pytest.param(EpochEndOffset(7, 8), 8, State.FETCHING, id="an epoch after this log's last"),
    ],
)
def test_a_log_is_truncated_where_it_may_differ_from_the_leaders(
    log: Log, leader_end: EpochEndOffset, offset: int, state: State
) -> None:
    following = follower_of(log)
    request = following.next_request()

    assert request == AskEpochEnd(5)
    assert following.on_epoch_end(request, leader_end) == TruncateTo(offset)
    assert following.state is state


def test_an_epoch_that_the_leader_lacks_is_asked_about_again_from_the_one_before(log: Log) -> None:
    following = follower_of(log)
    first = following.next_request()
    assert isinstance(first, AskEpochEnd)
    perform(log, following.on_epoch_end(first, EpochEndOffset(4, 8)))
    second = following.next_request()
    assert second == AskEpochEnd(3)
    perform(log, following.on_epoch_end(second, EpochEndOffset(3, 5)))

    assert log.log_end_offset == 5
    assert following.next_request() == AskRecords(5, 0)


def test_an_epoch_without_records_is_forgotten_at_the_logs_end(log: Log) -> None:
    log.assign_leader_epoch(6)
    following = follower_of(log, leader_epoch=7)
    first = following.next_request()
    assert first == AskEpochEnd(6)
    perform(log, following.on_epoch_end(first, EpochEndOffset(5, 10)))

    assert log.leader_epochs.latest_epoch == 5
    assert log.log_end_offset == 10


def test_a_log_without_epochs_asks_for_none(tmp_path: Path) -> None:
    assert follower_of(open_log(tmp_path / "new-0")).next_request() == AskEpochEnd(-1)


def test_records_are_appended_at_the_end_and_the_next_fetch_is_behind_them(log: Log, tmp_path: Path) -> None:
    leader = open_log(tmp_path / "leader-0")
    write(leader, (1, 4), (3, 2), (5, 6))
    following = fetching(log)
    request = following.next_request()
    assert request == AskRecords(10, 0)
    perform(
        log, following.on_records(request, bytearray(read_bytes(leader, 10)), high_watermark=11, log_start_offset=2)
    )

    assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (12, 11, 2)
    assert following.next_request() == AskRecords(12, 2)


@pytest.mark.parametrize(
    ("leaders_end", "leaders_start", "change", "next_offset"),
    [
        pytest.param(8, None, TruncateTo(8), 8, id="a leader that has less"),
        pytest.param(30, 20, StartAt(20), 20, id="a leader that starts beyond"),
        pytest.param(30, 4, None, 10, id="a leader that has the offset by now"),
        pytest.param(10, 10, None, 10, id="a leader that starts at the end"),
    ],
)
def test_a_fetch_out_of_range_goes_on_in_the_range_of_the_leader(
    log: Log, leaders_end: int, leaders_start: int | None, change: Change | None, next_offset: int
) -> None:
    following = fetching(log)
    request = following.next_request()
    following.on_error(request, ErrorCode.OFFSET_OUT_OF_RANGE)
    asked = following.next_request()
    assert asked == AskOffset(is_end=True)
    found = following.on_offset(asked, leaders_end)
    if leaders_start is not None:
        assert found is None
        asked = following.next_request()
        assert asked == AskOffset(is_end=False)
        found = following.on_offset(asked, leaders_start)
    perform(log, found)

    assert found == change
    assert following.next_request() == AskRecords(next_offset, log.log_start_offset)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_an_error_keeps_the_state(log: Log, state: State, error: ErrorCode) -> None:
    following = in_state(log, state)
    request = following.next_request()

    assert not following.on_error(request, error)
    assert following.state is state
    assert following.next_request() == request


def in_state(log: Log, state: State) -> Following:
    following = follower_of(log)
    if state is not State.TRUNCATING:
        following = fetching(log)
        if state is not State.FETCHING:
            request = following.next_request()
            following.on_error(request, ErrorCode.OFFSET_OUT_OF_RANGE)
            if state is State.LOOKING_FOR_START:
                asked = following.next_request()
                assert isinstance(asked, AskOffset)
                following.on_offset(asked, 30)
    assert following.state is state
    return following


@pytest.mark.parametrize(
    ("leader_id", "leader_epoch", "is_anew"),
    [(2, 6, False), (2, 7, False), (2, 8, True), (3, 7, True), (3, 6, True)],
)
def test_another_leader_or_a_skipped_epoch_begins_anew(
    log: Log, leader_id: int, leader_epoch: int, is_anew: bool
) -> None:
    following = fetching(log)
    request = following.next_request()
    assert isinstance(request, AskRecords)

    assert following.follow(leader_id, leader_epoch) is is_anew
    assert (following.leader_id, following.leader_epoch) == (leader_id, leader_epoch)
    assert following.state is (State.TRUNCATING if is_anew else State.FETCHING)
    answer = following.on_records(request, bytearray(), high_watermark=0, log_start_offset=0)
    assert (answer is None) is is_anew  # the answer of a leader that is followed no more is stale


@pytest.mark.parametrize("state", list(State))
def test_an_answer_changes_nothing_the_second_time(log: Log, state: State) -> None:
    following = in_state(log, state)
    request = following.next_request()
    following.on_error(request, ErrorCode.NOT_LEADER_FOR_PARTITION)
    match request:
        case AskEpochEnd():
            change: Change | None = following.on_epoch_end(request, UNKNOWN)
        case AskRecords():
            change = following.on_records(request, bytearray(), high_watermark=0, log_start_offset=0)
            following.on_error(request, ErrorCode.OFFSET_OUT_OF_RANGE)
        case AskOffset():
            change = following.on_offset(request, 0)

    assert change is None
    assert following.state is state


TERMS = st.lists(
    st.tuples(
        st.integers(0, 2),  # the leader
        st.integers(1, 2),  # by how much its epoch is larger
        st.integers(0, 4),  # records that it appends
        st.sets(st.integers(0, 2)),  # the others that follow it
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(terms=TERMS)
@pytest.mark.slow
def test_a_follower_ends_with_the_leaders_log_after_any_leaders(
    terms: Sequence[tuple[int, int, int, set[int]]],
) -> None:
    with TemporaryDirectory() as directory:
        logs = [open_log(Path(directory) / f"orders-{number}") for number in range(3)]
        epoch = 0
        for leader, step, records, followers in terms:
            epoch += step
            logs[leader].assign_leader_epoch(epoch)
            write(logs[leader], (epoch, records))
            for number in followers - {leader}:
                catch_up(logs[number], logs[leader], epoch)

                assert batches_of(logs[number]) == batches_of(logs[leader])
        for each in logs:
            each.close()


def catch_up(log: Log, leader: Log, epoch: int) -> None:
    """Follow until the log is as long as the leader's; the high watermark stays at 0, as if none was in sync."""
    following = follower_of(log, leader_epoch=epoch)
    for _ in range(30):
        request: Request | None = following.next_request()
        match request:
            case AskEpochEnd(leader_epoch):
                end = leader.leader_epochs.end_offset_for(leader_epoch, leader.log_end_offset)
                perform(log, following.on_epoch_end(request, end))
            case AskRecords(fetch_offset):
                if fetch_offset == leader.log_end_offset:
                    return
                data = bytearray(read_bytes(leader, fetch_offset))
                perform(log, following.on_records(request, data, high_watermark=0, log_start_offset=0))
    raise AssertionError(f"not caught up: {following.state}")
