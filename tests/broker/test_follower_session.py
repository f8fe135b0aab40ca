"""The follower's side of a fetch session, fetch by fetch; test_fetcher.py has it between two brokers."""

from __future__ import annotations

import pytest

from minibroker.broker.replica.fetch_session import MAX_EPOCH
from minibroker.broker.wings.several.follower_session import FollowerSession, SessionFetch
from minibroker.broker.wings.several.following import AskRecords
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
AT_0, AT_5 = AskRecords(0, 0), AskRecords(5, 0)
ID = 77


@pytest.fixture
def session() -> FollowerSession:
    """A session that the leader has begun with both partitions."""
    session = FollowerSession()
    session.ask(A, AT_0)
    session.ask(B, AT_0)
    assert session.next_fetch() == SessionFetch(0, 0, [(A, AT_0), (B, AT_0)], ())
    assert session.on_answer(ErrorCode.NONE, ID, {A, B})
    return session


def test_a_fetch_names_changed_partitions(session: FollowerSession) -> None:
    assert session.next_fetch() == SessionFetch(ID, 1, [], [])
    session.on_answer(ErrorCode.NONE, ID, {A})
    assert session.take(A) == AT_0
    session.ask(A, AT_5)

    assert session.next_fetch() == SessionFetch(ID, 2, [(A, AT_5)], [])


def test_a_partition_that_asks_the_same_again_is_not_named(session: FollowerSession) -> None:
    session.take(A)
    session.ask(A, AT_0)

    assert session.next_fetch() == SessionFetch(ID, 1, [], [])


@pytest.mark.parametrize("is_in_flight", [False, True])
def test_a_partition_that_is_not_asked_any_more_is_forgotten_once(session: FollowerSession, is_in_flight: bool) -> None:
    if is_in_flight:
        session.next_fetch()
    session.take(A)
    if is_in_flight:
        session.on_answer(ErrorCode.NONE, ID, {A})

    fetch = session.next_fetch()
    session.on_answer(ErrorCode.NONE, ID, ())
    assert (fetch.asked, fetch.forgotten) == ([], [A])
    assert session.next_fetch().forgotten == []
    session.ask(A, AT_0)
    assert session.next_fetch().asked == [(A, AT_0)]


def test_a_partition_that_the_first_answer_lacks_is_named_again() -> None:
    session = FollowerSession()
    session.ask(A, AT_0)
    session.ask(B, AT_0)
    session.next_fetch()
    session.on_answer(ErrorCode.NONE, ID, {B})

    assert session.next_fetch() == SessionFetch(ID, 1, [(A, AT_0)], [])


@pytest.mark.parametrize(
    ("error", "answered_id", "counts", "next_id"),
    [
        pytest.param(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, False, 0, id="the leader has lost the session"),
        pytest.param(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ID, False, ID, id="a fetch was lost: close the session"),
        pytest.param(ErrorCode.NONE, 0, True, 0, id="the leader keeps no session any more"),
    ],
)
def test_all_partitions_are_named_anew(
    session: FollowerSession, error: ErrorCode, answered_id: int, counts: bool, next_id: int
) -> None:
    session.next_fetch()

    assert session.on_answer(error, answered_id, ()) is counts
    assert session.next_fetch() == SessionFetch(next_id, 0, [(A, AT_0), (B, AT_0)], ())


def test_an_answer_that_is_lost_closes_the_session(session: FollowerSession) -> None:
    session.next_fetch()
    session.begin_anew()

    assert session.next_fetch() == SessionFetch(ID, 0, [(A, AT_0), (B, AT_0)], ())


def test_the_epoch_after_the_largest_begins_no_session(session: FollowerSession) -> None:
    session._epoch = MAX_EPOCH
    session.next_fetch()
    session.on_answer(ErrorCode.NONE, ID, ())

    assert session.next_fetch().epoch == 1
