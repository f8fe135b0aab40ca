"""Logs of `__consumer_offsets` at the start: Kafka's own, and such as were hurt."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.group.offset_loader import OffsetLoader
from minibroker.broker.group.offset_store import group_contents
from minibroker.broker.group.offsets import GroupOffsets
from minibroker.broker.replica.decisions import LeaderAndIsr, PartitionState
from minibroker.protocol.batches import BatchView
from minibroker.protocol.conversion import build_records
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import (
    GroupRecord,
    MemberRecord,
    OffsetRecord,
    group_key,
    offset_key,
    offset_value,
)
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_empty_batch, read_header
from tests.broker.offset_stores import (
    EPOCH,
    GROUP,
    IN_TRANSACTION,
    KAFKA_LOG,
    NOW_MS,
    OTHER,
    PARTITION,
    PRODUCER,
    RETENTION_MS,
    StoreOnDisk,
    as_read,
    finished,
    offset,
    partition_of,
    views,
)

EMPTY = GroupRecord("consumer", 2, None, None, -1, ())
STATIC = MemberRecord("gate-1", "gate", "reader", "/127.0.0.1", 300_000, 45_000, b"subscription", b"assignment")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[StoreOnDisk]:
    made = StoreOnDisk(tmp_path / "data")
    yield made
    made.close()


UNSTORED = GroupRecord("", 0, None, None, -1, ())  # of a group that has only offsets


def loaded_from(batches: list[tuple[bytes, BatchView]]) -> dict[str, Any]:
    loader = OffsetLoader("__consumer_offsets-0")
    finished(loader.read(iter(batches)))
    return {group.group_id: group for group in loader.groups()}


def commit_batch(*numbers: int, magic: int = 2, first_partition: int = 0) -> bytes:
    records = []
    for index, number in enumerate(numbers):
        key = offset_key(GROUP, TopicPartition("flights", first_partition + index))
        records.append(Record(index, NOW_MS, key, offset_value(offset(number), RETENTION_MS)))
    return bytes(build_records(records, magic=magic, base_offset=0))


def test_groups_and_offsets_that_kafka_wrote_are_loaded() -> None:
    groups = loaded_from(views(KAFKA_LOG))

    noted = OffsetRecord(43, -1, "noted", 0x1A1FE1224B6, 0x1A1FE1224B6 + 5000)
    assert groups["simple"].record() == UNSTORED
    assert groups["simple"].offsets.committed == {PARTITION: noted, OTHER: noted}
    assert groups["readers"].record() == EMPTY
    committed = groups["readers"].offsets.committed
    assert {each.partition: record.offset for each, record in committed.items()} == {0: 100, 1: 7}
    assert groups["readers"].offsets.active_producers == set()


def test_stored_groups_and_offsets_are_loaded_again(disk: StoreOnDisk) -> None:
    record = GroupRecord("consumer", 3, "range", "gate-1", -1, (STATIC,))
    disk.store.store_group(GROUP, record)
    disk.commit_all({PARTITION: offset(5, leader_epoch=2)})
    disk.commit_all({PARTITION: offset(6, expire_timestamp_ms=NOW_MS + 1)}, "simple")

    groups = disk.load()

    assert groups[GROUP].record() == record
    assert groups[GROUP].offsets.committed == {PARTITION: as_read(offset(5, leader_epoch=2))}
    assert groups["simple"].record() == UNSTORED
    assert groups["simple"].offsets.committed == {PARTITION: offset(6, expire_timestamp_ms=NOW_MS + 1)}


def test_all_partitions_are_read(tmp_path: Path) -> None:
    disk = StoreOnDisk(tmp_path / "data", partitions=50)
    names = [f"group-{number}" for number in range(20)]
    for name in names:
        disk.commit(5, group=name)
    later = disk.reopened()

    groups = later.load()

    later.close()
    assert sorted(groups) == sorted(names)


def test_later_batches_win(disk: StoreOnDisk) -> None:
    disk.commit(5, 6, 7)

    assert disk.load()[GROUP].offsets.committed == {PARTITION: as_read(offset(7))}


def test_offsets_are_loaded_beyond_the_high_watermark(disk: StoreOnDisk) -> None:
    """A new leader learns the high watermark a round after its followers have the records."""
    with_follower = PartitionState(0, 1, (0, 1), (0, 1))
    disk.replica_manager.partitions.apply(LeaderAndIsr(0, 0, {partition_of(0): with_follower}))
    disk.append(commit_batch(7))
    assert disk.log_of().high_watermark == 0

    assert disk.load()[GROUP].offsets.committed == {TopicPartition("flights", 0): as_read(offset(7))}


def test_a_removed_group_leaves_its_offsets_and_comes_back_with_its_next_record(disk: StoreOnDisk) -> None:
    disk.store.store_group(GROUP, EMPTY)
    disk.store.store_group(GROUP, None)
    assert disk.load() == {}

    disk.store.store_group(GROUP, EMPTY)
    disk.commit(5)
    disk.store.store_group(GROUP, None)
    removed = disk.load()[GROUP]
    disk.store.store_group(GROUP, EMPTY._replace(generation_id=1))

    assert (removed.record(), removed.offsets.committed) == (UNSTORED, {PARTITION: as_read(offset(5))})
    assert disk.load()[GROUP].record() == EMPTY._replace(generation_id=1)


@pytest.mark.parametrize(
    ("before", "inside", "end", "expected", "active"),
    [
        pytest.param([5], [], True, 6, set(), id="a commit counts"),
        pytest.param([5], [], False, 5, set(), id="an abort does not"),
        pytest.param([], [], None, None, {PRODUCER}, id="an open transaction stays open"),
        pytest.param([], [7], True, 7, set(), id="a plain commit inside is newer"),
    ],
)
def test_a_transaction_counts_by_its_marker(
    disk: StoreOnDisk, before: list[int], inside: list[int], end: bool | None, expected: int | None, active: set[int]
) -> None:
    for numbers, is_transactional in ((before, False), ([6], True), (inside, False)):
        if numbers:
            disk.commit(*numbers, **(IN_TRANSACTION if is_transactional else {}))
    if end is not None:
        disk.end_transaction(is_commit=end)

    offsets = disk.load()[GROUP].offsets

    assert offsets.committed == ({} if expected is None else {PARTITION: as_read(offset(expected))})
    assert offsets.active_producers == active


def test_transactions_of_several_producers_do_not_mix(disk: StoreOnDisk) -> None:
    for producer_id, number in ((7, 70), (8, 80)):
        commits = {TopicPartition("flights", producer_id): offset(number)}
        disk.commit_all(commits, producer_id=producer_id, producer_epoch=EPOCH)
    disk.end_transaction(is_commit=True, producer_id=8)

    offsets = disk.load()[GROUP].offsets

    assert offsets.committed == {TopicPartition("flights", 8): as_read(offset(80))}
    assert offsets.active_producers == {7}


@pytest.mark.parametrize("is_group_deleted", [True, False])
def test_offsets_removed_from_an_open_transaction_stay_removed(disk: StoreOnDisk, is_group_deleted: bool) -> None:
    offsets = GroupOffsets()
    disk.commit(5, into=offsets, **IN_TRANSACTION)
    tombstones = [group_contents(GROUP, None)] * is_group_deleted
    disk.store.remove_offsets(GROUP, offsets, [PARTITION], group_tombstones=tombstones)
    while_open = {group_id: group.offsets.active_producers for group_id, group in disk.load().items()}
    disk.end_transaction(is_commit=True)

    assert while_open == ({} if is_group_deleted else {GROUP: {PRODUCER}})
    assert disk.load() == {}


def test_a_tombstone_inside_a_transaction_takes_its_offset_back(disk: StoreOnDisk) -> None:
    tombstone = Record(0, NOW_MS, offset_key(GROUP, PARTITION), None)
    disk.commit(6, **IN_TRANSACTION)
    disk.append(build_records([tombstone], magic=2, base_offset=0, is_transactional=True, **IN_TRANSACTION))
    disk.end_transaction(is_commit=True)

    assert disk.load() == {}


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_every_message_format_is_read(magic: int) -> None:
    groups = loaded_from(views(commit_batch(5, 6, magic=magic)))

    assert groups[GROUP].offsets.committed == {PARTITION: as_read(offset(5)), OTHER: as_read(offset(6))}


def test_a_compacted_log_is_read() -> None:
    survivor = Record(41, NOW_MS, offset_key(GROUP, OTHER), offset_value(offset(6), RETENTION_MS))
    thinned = bytes(build_records([survivor], magic=2, base_offset=41))
    emptied = bytes(build_empty_batch(read_header(commit_batch(5))))
    marker = KAFKA_LOG[840:918]
    emptied_marker = bytes(build_empty_batch(read_header(marker)))

    groups = loaded_from([*views(emptied), *views(emptied_marker), *views(thinned)])

    assert groups[GROUP].offsets.committed == {OTHER: as_read(offset(6))}


def test_records_of_unknown_versions_are_passed_over_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    known = Record(0, NOW_MS, offset_key(GROUP, PARTITION), offset_value(offset(5), RETENTION_MS))
    new_key = Record(1, NOW_MS, b"\x00\x09new", b"")
    new_value = Record(2, NOW_MS, offset_key(GROUP, OTHER), b"\x00\x09new")
    without_key = Record(3, NOW_MS, None, b"value")
    new_group = Record(4, NOW_MS, group_key(GROUP), b"\x00\x09new")
    batch = bytes(build_records([known, new_key, new_value, without_key, new_group], magic=2, base_offset=0))

    groups = loaded_from(views(batch))

    assert groups[GROUP].record() == UNSTORED
    assert groups[GROUP].offsets.committed == {PARTITION: as_read(offset(5))}
    (line,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.getMessage() == (
        "__consumer_offsets-0: skipped 4 unreadable records, "
        "the first at offset 1: unknown version 9 of OffsetCommitKey"
    )


def test_a_batch_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    damaged = bytearray(commit_batch(6, first_partition=1))
    damaged[61] = 0x7E  # the length of its first record
    batches = views(commit_batch(5)) + views(bytes(damaged)) + views(commit_batch(7, first_partition=2))

    groups = loaded_from(batches)

    assert {each.partition for each in groups[GROUP].offsets.committed} == {0, 2}
    assert "skipped 1 unreadable record," in caplog.text


def test_a_log_that_cannot_be_read_on_gives_its_first_groups(caplog: pytest.LogCaptureFixture) -> None:
    def torn() -> Iterator[tuple[bytes, BatchView]]:
        yield from views(commit_batch(5))
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "Record size 3 is less than the minimum record overhead")

    loader = OffsetLoader("__consumer_offsets-0")
    finished(loader.read(torn()))

    assert [group.group_id for group in loader.groups()] == [GROUP]
    assert "cannot read __consumer_offsets-0 any further: Record size 3" in caplog.text
