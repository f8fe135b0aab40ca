"""The offsets of one group: which commit counts, and what a transaction has to do with it."""

from __future__ import annotations

import pytest

from minibroker.broker.group.offsets import GroupOffsets
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition

PARTITION = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
PRODUCER = 7
RETENTION_MS = 1000


def offset(number: int, *, commit_timestamp_ms: int = 0, expire_timestamp_ms: int | None = None) -> OffsetRecord:
    return OffsetRecord(number, -1, "", commit_timestamp_ms, expire_timestamp_ms)


@pytest.fixture
def offsets() -> GroupOffsets:
    return GroupOffsets()


def commit(offsets: GroupOffsets, number: int, *, appended_at: int) -> None:
    commits = {PARTITION: offset(number)}
    offsets.prepare_commit(commits)
    offsets.complete_commit(commits, appended_at)


def commit_in_transaction(offsets: GroupOffsets, number: int, *, appended_at: int) -> None:
    commits = {PARTITION: offset(number)}
    offsets.prepare_transactional_commit(PRODUCER, commits)
    offsets.complete_transactional_commit(PRODUCER, commits, appended_at)


def test_a_commit_counts_once_it_is_in_the_log(offsets: GroupOffsets) -> None:
    commits = {PARTITION: offset(5), OTHER: offset(6)}

    offsets.prepare_commit(commits)
    before = dict(offsets.committed)
    offsets.complete_commit(commits, 10)

    assert before == {}
    assert offsets.committed == commits


def test_a_failed_commit_leaves_what_there_was(offsets: GroupOffsets) -> None:
    commit(offsets, 5, appended_at=10)

    offsets.prepare_commit({PARTITION: offset(6)})
    offsets.fail_commit({PARTITION: offset(6)})

    assert offsets.committed == {PARTITION: offset(5)}
    assert offsets.expired(10**6, RETENTION_MS) == [PARTITION], "no commit is on its way any more"


def test_of_two_commits_the_later_in_the_log_counts(offsets: GroupOffsets) -> None:
    first, second = {PARTITION: offset(5)}, {PARTITION: offset(6)}
    offsets.prepare_commit(first)
    offsets.prepare_commit(second)

    offsets.complete_commit(second, 11)
    offsets.prepare_commit(first)  # acknowledged late, out of order
    offsets.complete_commit(first, 10)

    assert offsets.committed == second


def test_the_first_of_two_commits_leaves_the_second_on_its_way(offsets: GroupOffsets) -> None:
    first, second = {PARTITION: offset(5)}, {PARTITION: offset(6)}
    offsets.prepare_commit(first)
    offsets.prepare_commit(second)

    offsets.complete_commit(first, 10)
    between = offsets.expired(10**6, RETENTION_MS)
    offsets.complete_commit(second, 11)

    assert between == []
    assert offsets.committed == second


def test_a_commit_for_a_partition_that_is_gone_is_not_taken(offsets: GroupOffsets) -> None:
    commits = {PARTITION: offset(5)}
    offsets.prepare_commit(commits)

    removed = offsets.remove([PARTITION])
    offsets.complete_commit(commits, 10)

    assert removed == []
    assert offsets.committed == {}


def test_a_transactional_commit_counts_with_its_transaction(offsets: GroupOffsets) -> None:
    commit_in_transaction(offsets, 5, appended_at=10)
    before = dict(offsets.committed)

    offsets.complete_transaction(PRODUCER, is_commit=True)

    assert before == {}
    assert offsets.committed == {PARTITION: offset(5)}
    assert offsets.active_producers == set()


def test_an_aborted_transaction_leaves_what_there_was(offsets: GroupOffsets) -> None:
    commit(offsets, 5, appended_at=10)
    commit_in_transaction(offsets, 6, appended_at=11)

    offsets.complete_transaction(PRODUCER, is_commit=False)

    assert offsets.committed == {PARTITION: offset(5)}


def test_a_transactional_commit_never_overrides_a_newer_plain_one(offsets: GroupOffsets) -> None:
    commit_in_transaction(offsets, 5, appended_at=10)
    commit(offsets, 6, appended_at=11)

    offsets.complete_transaction(PRODUCER, is_commit=True)

    assert offsets.committed == {PARTITION: offset(6)}


def test_a_plain_commit_that_is_older_than_a_transactional_one_does_not_count(offsets: GroupOffsets) -> None:
    plain = {PARTITION: offset(5)}
    offsets.prepare_commit(plain)
    commit_in_transaction(offsets, 6, appended_at=11)
    offsets.complete_transaction(PRODUCER, is_commit=True)

    offsets.complete_commit(plain, 10)

    assert offsets.committed == {PARTITION: offset(6)}


def test_the_last_commit_of_a_transaction_counts(offsets: GroupOffsets) -> None:
    commit_in_transaction(offsets, 5, appended_at=10)
    commit_in_transaction(offsets, 6, appended_at=11)

    offsets.complete_transaction(PRODUCER, is_commit=True)

    assert offsets.committed == {PARTITION: offset(6)}


def test_of_two_commits_of_a_transaction_the_later_counts_whichever_is_acknowledged_first(
    offsets: GroupOffsets,
) -> None:
    first, second = {PARTITION: offset(5)}, {PARTITION: offset(6)}
    offsets.prepare_transactional_commit(PRODUCER, first)
    offsets.prepare_transactional_commit(PRODUCER, second)

    offsets.complete_transactional_commit(PRODUCER, second, 11)
    offsets.complete_transactional_commit(PRODUCER, first, 10)
    offsets.complete_transaction(PRODUCER, is_commit=True)

    assert offsets.committed == second


def test_what_never_came_into_the_log_does_not_count_with_its_transaction(offsets: GroupOffsets) -> None:
    offsets.prepare_transactional_commit(PRODUCER, {PARTITION: offset(5)})

    offsets.complete_transaction(PRODUCER, is_commit=True)

    assert offsets.committed == {}


def test_a_transactional_commit_that_failed_is_not_in_the_transaction(offsets: GroupOffsets) -> None:
    offsets.prepare_transactional_commit(PRODUCER, {PARTITION: offset(5)})

    offsets.fail_transactional_commit(PRODUCER, {PARTITION: offset(5)})
    offsets.complete_transaction(PRODUCER, is_commit=True)

    assert offsets.committed == {}
    assert offsets.is_empty


def test_a_transaction_of_another_producer_says_nothing(offsets: GroupOffsets) -> None:
    commit_in_transaction(offsets, 5, appended_at=10)

    offsets.complete_transaction(PRODUCER + 1, is_commit=True)

    assert offsets.committed == {}
    assert offsets.active_producers == {PRODUCER}
    assert offsets.has_pending_transactional(PARTITION)
    assert not offsets.has_pending_transactional(OTHER)


def test_offsets_expire_by_the_retention_or_by_what_their_commit_asked_for(offsets: GroupOffsets) -> None:
    by_default = offset(5, commit_timestamp_ms=100)
    by_wish = offset(6, commit_timestamp_ms=100, expire_timestamp_ms=5000)
    commits = {PARTITION: by_default, OTHER: by_wish}
    offsets.prepare_commit(commits)
    offsets.complete_commit(commits, 10)

    at = {now_ms: offsets.expired(now_ms, RETENTION_MS) for now_ms in (1100, 1101, 5000, 5001)}

    assert at == {1100: [], 1101: [PARTITION], 5000: [PARTITION], 5001: [PARTITION, OTHER]}


def test_an_offset_does_not_expire_while_a_commit_for_it_is_on_its_way(offsets: GroupOffsets) -> None:
    commit(offsets, 5, appended_at=10)

    offsets.prepare_commit({PARTITION: offset(6)})
    with_plain = offsets.expired(10**6, RETENTION_MS)
    offsets.fail_commit({PARTITION: offset(6)})
    commit_in_transaction(offsets, 6, appended_at=11)
    with_transactional = offsets.expired(10**6, RETENTION_MS)

    assert with_plain == []
    assert with_transactional == []


def test_removal_takes_commits_that_are_on_their_way_too(offsets: GroupOffsets) -> None:
    commit(offsets, 5, appended_at=10)
    commit_in_transaction(offsets, 6, appended_at=11)
    offsets.prepare_commit({PARTITION: offset(7)})

    removed = offsets.remove([PARTITION, OTHER])

    assert removed == [PARTITION]
    assert offsets.is_empty


def test_offsets_on_their_way_keep_a_group_alive(offsets: GroupOffsets) -> None:
    offsets.prepare_commit({PARTITION: offset(5)})
    with_plain = offsets.is_empty
    offsets.fail_commit({PARTITION: offset(5)})
    commit_in_transaction(offsets, 6, appended_at=11)

    assert not with_plain
    assert not offsets.is_empty


def test_commits_of_both_kinds_in_one_generation_are_told(offsets: GroupOffsets) -> None:
    commit(offsets, 5, appended_at=10)
    alone = offsets.are_consistent
    commit_in_transaction(offsets, 6, appended_at=11)
    mixed = offsets.are_consistent
    offsets.on_new_generation()

    assert (alone, mixed, offsets.are_consistent) == (True, False, True)
