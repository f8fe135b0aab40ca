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


class History:
    """The offsets of a group, and what becomes of commits of one partition: each is known by its offset."""

    def __init__(self) -> None:
        self.offsets = GroupOffsets()

    def prepare(self, number: int) -> None:
        self.offsets.prepare_commit({PARTITION: offset(number)})

    def complete(self, number: int, appended_at: int) -> None:
        self.offsets.complete_commit({PARTITION: offset(number)}, appended_at)

    def fail(self, number: int) -> None:
        self.offsets.fail_commit({PARTITION: offset(number)})

    def commit(self, number: int, appended_at: int) -> None:
        self.prepare(number)
        self.complete(number, appended_at)

    def prepare_in(self, number: int, appended_at: int) -> None:
        self.offsets.prepare_transactional_commit(PRODUCER, {PARTITION: offset(number)}, appended_at)

    def complete_in(self, number: int) -> None:
        self.offsets.complete_transactional_commit(PRODUCER, {PARTITION: offset(number)})

    def fail_in(self, number: int) -> None:
        self.offsets.fail_transactional_commit(PRODUCER, {PARTITION: offset(number)})

    def commit_in(self, number: int, appended_at: int) -> None:
        self.prepare_in(number, appended_at)
        self.complete_in(number)

    def end(self, *, is_commit: bool, producer: int = PRODUCER) -> None:
        self.offsets.complete_transaction(producer, is_commit=is_commit)

    def remove(self, *expected: TopicPartition) -> None:
        assert self.offsets.remove([PARTITION, OTHER]) == list(expected)

    def after(self, steps: str) -> GroupOffsets:
        """Take the steps as they are written: "prepare 5; complete 5 10"."""
        for step in steps.split("; "):
            name, *numbers = step.split()
            if name in ("commits", "aborts"):
                self.end(is_commit=name == "commits", producer=int(numbers[0]) if numbers else PRODUCER)
            elif name == "remove":
                self.remove(*[PARTITION][: int(numbers[0])])
            else:
                getattr(self, name)(*map(int, numbers))
        return self.offsets


@pytest.mark.parametrize(
    ("steps", "committed"),
    [
        pytest.param("prepare 5", None, id="a commit does not count before it is in the log"),
        pytest.param("prepare 5; complete 5 10", 5, id="it counts once it is"),
        pytest.param("commit 5 10; prepare 6; fail 6", 5, id="a failed commit leaves what there was"),
        pytest.param(
            "prepare 5; prepare 6; complete 6 11; prepare 5; complete 5 10", 6, id="the later in the log wins"
        ),
        pytest.param("prepare 5; remove 1; complete 5 10", None, id="a commit for what is gone is not taken"),
        pytest.param("commit_in 5 10; remove 1; commits", None, id="nor is one of a transaction"),
        pytest.param("commit_in 5 10", None, id="a transactional commit does not count before the marker"),
        pytest.param("commit_in 5 10; commits", 5, id="it counts with its transaction"),
        pytest.param("commit 5 10; commit_in 6 11; aborts", 5, id="an aborted transaction leaves what there was"),
        pytest.param("commit_in 5 10; commit 6 11; commits", 6, id="it never overrides a newer plain one"),
        pytest.param("prepare 5; commit_in 6 11; commits; complete 5 10", 6, id="an older plain one does not count"),
        pytest.param("commit_in 5 10; commit_in 6 11; commits", 6, id="the last commit of a transaction counts"),
        pytest.param(
            "prepare_in 5 10; prepare_in 6 11; complete_in 6; complete_in 5; commits",
            6,
            id="the later counts whichever is acknowledged first",
        ),
        pytest.param("prepare_in 5 10; commits", 5, id="a marker counts for what is not acknowledged yet"),
        pytest.param("prepare_in 5 10; fail_in 5; commits", None, id="a failed one is not in the transaction"),
        pytest.param("commit_in 5 10; prepare_in 6 11; fail_in 6; commits", 5, id="but what was there before is"),
        pytest.param("commit_in 5 10; commits 8", None, id="a transaction of another producer says nothing"),
    ],
)
def test_the_commit_that_counts(steps: str, committed: int | None) -> None:
    offsets = History().after(steps)

    assert offsets.committed == ({} if committed is None else {PARTITION: offset(committed)})


@pytest.mark.parametrize(
    ("steps", "is_expired"),
    [
        pytest.param("commit 5 10; prepare 6; fail 6", True, id="not on its way any more"),
        pytest.param("commit 5 10; prepare 6", False, id="a commit is on its way"),
        pytest.param("prepare 5; prepare 6; complete 5 10", False, id="the second is on its way"),
        pytest.param("commit 5 10; commit_in 6 11", False, id="a transactional one is on its way"),
    ],
)
def test_an_offset_does_not_expire_while_a_commit_for_it_is_on_its_way(steps: str, is_expired: bool) -> None:
    assert History().after(steps).expired(10**6, RETENTION_MS) == [PARTITION] * is_expired


@pytest.mark.parametrize(
    ("steps", "is_empty"),
    [
        ("prepare 5", False),
        ("prepare 5; fail 5", True),
        ("commit_in 6 11", False),
        ("prepare_in 5 10; fail_in 5", True),
        ("commit 5 10; prepare 7; remove 1", True),
        ("commit_in 6 11; remove 1", False),  # as in Kafka: until the transaction has ended
        ("commit_in 6 11; remove 1; commits", True),
    ],
)
def test_offsets_on_their_way_keep_a_group_alive_until_they_fail_or_are_removed(steps: str, is_empty: bool) -> None:
    assert History().after(steps).is_empty == is_empty


def test_producers_are_active_until_their_transaction_ends() -> None:
    open_offsets, ended = History().after("commit_in 5 10; commits 8"), History().after("commit_in 5 10; commits")

    assert (open_offsets.active_producers, ended.active_producers) == ({PRODUCER}, set())
    assert open_offsets.has_pending_transactional(PARTITION)
    assert not open_offsets.has_pending_transactional(OTHER)


def test_offsets_expire_by_the_retention_or_by_their_commit() -> None:
    by_default = offset(5, commit_timestamp_ms=100)
    by_wish = offset(6, commit_timestamp_ms=100, expire_timestamp_ms=5000)
    offsets, commits = GroupOffsets(), {PARTITION: by_default, OTHER: by_wish}
    offsets.prepare_commit(commits)
    offsets.complete_commit(commits, 10)

    at = {now_ms: offsets.expired(now_ms, RETENTION_MS) for now_ms in (1100, 1101, 5000, 5001)}

    assert at == {1100: [], 1101: [PARTITION], 5000: [PARTITION], 5001: [PARTITION, OTHER]}
