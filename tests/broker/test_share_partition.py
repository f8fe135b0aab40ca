"""A partition that a share group reads, in drawn histories: its state is what its records make it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from minibroker.broker.wings.share.partition import Acknowledgement, Limits, Run, SharePartition, State
from minibroker.broker.wings.share.states import Kept, Key, rows_of, take
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import new
from minibroker.protocol.record import Record
from minibroker.protocol.share_group_records import STATE_RECORDS, ShareSnapshotValue, ShareUpdateValue, StateRecordType

KEY = Key("g", bytes(16), 0)
LIMITS = Limits(max_in_flight=40, lock_ms=100, delivery_count_limit=3)
MEMBERS = ("one", "two", "three")


def snapshot(partition: SharePartition) -> Record:
    value = ShareSnapshotValue(
        snapshot_epoch=0,
        state_epoch=0,
        leader_epoch=0,
        start_offset=partition.start_offset,
        create_timestamp=0,
        write_timestamp=0,
        state_batches=rows_of(partition.saved()),
    )
    return record(StateRecordType.SNAPSHOT, value)


def update(partition: SharePartition) -> Record:
    start = partition.start_offset if partition.is_start_unsaved else -1
    rows = rows_of(run for run in partition.unsaved if run.last >= partition.start_offset)
    partition.note_saved()
    value = ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=start, state_batches=rows)
    return record(StateRecordType.UPDATE, value)


def record(number: int, value: object) -> Record:
    return new(Record, (0, 0, STATE_RECORDS.key(number, *KEY), STATE_RECORDS.value(number, value), (), -1))


def change(partition: SharePartition, chance: random.Random, now_ms: int) -> None:
    """Deliver, acknowledge, or end locks."""
    member = chance.choice(MEMBERS)
    begin = partition.next_offset
    match chance.randrange(5):
        case 0 | 1:
            if partition.can_acquire(LIMITS):
                partition.acquire(
                    member,
                    [(begin, begin + 4), (begin + 5, begin + 9)],
                    max_records=chance.randint(1, 10),
                    is_limited=chance.random() < 0.5,
                    batch_size=5,
                    limits=LIMITS,
                    now_ms=now_ms,
                )
        case 2 | 3:
            first = partition.start_offset + chance.randrange(20)
            kinds = [chance.randrange(5) for _ in range(chance.randint(1, 6))]
            before = list(partition.runs)
            try:
                partition.acknowledge(member, [Acknowledgement(first, first + len(kinds) - 1, kinds)], LIMITS, now_ms)
            except KafkaError:
                assert list(partition.runs) == before
        case 4:
            partition.release(member, LIMITS) if chance.random() < 0.3 else partition.expire(LIMITS, now_ms)


def states_of(runs: list[Run]) -> dict[int, tuple[State, int]]:
    return {offset: (run.state, run.delivery_count) for run in runs for offset in range(run.first, run.last + 1)}


@pytest.mark.parametrize("seed", range(60))
def test_the_records_of_a_history_make_its_state(seed: int) -> None:
    chance = random.Random(seed)
    partition = SharePartition(7)
    found: dict[Key, Kept] = {}
    take(found, snapshot(partition))
    for step in range(120):
        change(partition, chance, now_ms=step * 20)
        runs = partition.runs
        assert [each.first for each in runs[1:]] == [each.last + 1 for each in runs[:-1]]
        assert partition.end_offset == (runs[-1].last + 1 if runs else partition.start_offset)
        assert all(each.delivery_count <= LIMITS.delivery_count_limit for each in runs)
        take(found, update(partition))
        loaded = found[KEY].partition
        assert loaded.start_offset == partition.start_offset
        assert states_of(loaded.saved()) == states_of(partition.saved())

    anew: dict[Key, Kept] = {}
    take(anew, snapshot(partition))
    assert states_of(anew[KEY].partition.saved()) == states_of(partition.saved())


def test_an_update_without_its_snapshot_is_passed_over() -> None:
    found: dict[Key, Kept] = {}
    take(found, update(SharePartition(7)))

    assert found == {}


def acquired(
    partition: SharePartition, *batches: tuple[int, int], limits: Limits = LIMITS, most: int = 500
) -> list[Run]:
    return partition.acquire(
        "one", batches, max_records=most, is_limited=False, batch_size=500, limits=limits, now_ms=0
    )


def offsets(runs: Sequence[Run]) -> list[tuple[int, int, int]]:
    return [(run.first, run.last, run.delivery_count) for run in runs]


@pytest.mark.parametrize(
    ("limit", "deliveries"),
    [
        (2, [[(0, 15, 1)], [(0, 15, 2)], []]),
        (4, [[(0, 15, 1)], [(0, 15, 2)], [(0, 7, 3)], [(0, 0, 4)], [(1, 1, 4)]]),
        (5, [[(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)], [(0, 7, 4)], [(0, 0, 5)], [(1, 1, 5)]]),
        (6, [[(0, 15, 1)], [(0, 15, 2)], [(0, 15, 3)], [(0, 7, 4)], [(0, 3, 5)], [(0, 0, 6)]]),
    ],
)
def test_records_that_were_delivered_often_come_in_fewer_and_fewer_and_alone_at_last(
    limit: int, deliveries: list[list[tuple[int, int, int]]]
) -> None:
    partition, limits = SharePartition(0), LIMITS._replace(delivery_count_limit=limit)
    found = []
    for _ in deliveries:
        found.append(offsets(acquired(partition, (0, 15), limits=limits)))
        partition.release("one", limits)

    assert found == deliveries


def test_a_batch_behind_others_that_were_delivered_often_waits() -> None:
    partition = SharePartition(0)
    acquired(partition, (0, 3))
    partition.release("one", LIMITS)
    acquired(partition, (0, 0))
    partition.release("one", LIMITS)

    assert offsets(acquired(partition, (0, 3), (4, 9))) == [(0, 0, 3)]
    assert offsets(acquired(partition, (1, 3), (4, 9))) == [(1, 3, 2), (4, 9, 1)]


def test_batches_are_delivered_up_to_the_number_that_may_be_in_flight() -> None:
    partition = SharePartition(0)

    assert offsets(acquired(partition, (0, 29), (30, 59), (60, 89))) == [(0, 59, 1)]
    assert acquired(partition, (60, 89)) == []
    partition.acknowledge("one", [Acknowledgement(40, 49, [2])], LIMITS, 0)
    assert offsets(acquired(partition, (30, 59), (60, 89))) == [(40, 49, 2)]
    partition.acknowledge("one", [Acknowledgement(0, 29, [1])], LIMITS, 0)
    assert offsets(acquired(partition, (60, 89))) == [(60, 89, 1)]


def test_records_that_were_released_and_compacted_are_not_waited_for() -> None:
    partition = SharePartition(0)
    acquired(partition, (0, 9), (10, 19))
    partition.release("one", LIMITS)

    assert offsets(acquired(partition, (4, 9), (10, 19))) == [(4, 19, 2)]
    assert partition.start_offset == 4
