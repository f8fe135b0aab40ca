"""The offset store's appends to `__consumer_offsets`, and in which partition; its answers when they fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.group.offset_store import OffsetStore, group_contents
from minibroker.broker.group.offsets import GroupOffsets
from minibroker.broker.pending import Pending
from minibroker.broker.replica.coordinator_log import Appended
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import GroupRecord, MemberRecord, OffsetRecord, group_key, offset_key
from minibroker.protocol.primitives import TopicPartition
from tests.broker.offset_stores import (
    GROUP,
    IN_TRANSACTION,
    OTHER,
    PARTITION,
    PRODUCER,
    StoreOnDisk,
    as_read,
    commit_of,
    error_of,
    offset,
    recorded_batch,
)

FIRST_PRODUCER: dict[str, Any] = {"producer_id": 0, "producer_epoch": 0}
MEMBER = MemberRecord("reader-1", None, "reader", "/127.0.0.1", 300_000, 45_000, b"subscription", b"assignment")
STABLE = GroupRecord("consumer", 1, "range", "reader-1", -1, (MEMBER,))
MakeStore = Callable[..., StoreOnDisk]


@pytest.fixture
def make_store(tmp_path: Path) -> Iterator[MakeStore]:
    """Make the store, with settings given as keywords (`offsets_topic_compression_codec=1`)."""
    made: list[StoreOnDisk] = []

    def make(**settings: Any) -> StoreOnDisk:
        made.append(StoreOnDisk(tmp_path / "data", **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def disk(make_store: MakeStore) -> StoreOnDisk:
    return make_store()


def test_a_written_batch_is_that_of_kafka(disk: StoreOnDisk) -> None:
    noted = OffsetRecord(43, -1, "noted", 0x1A1FE1224B6, 0x1A1FE1224B6 + 5000)
    in_transaction = {PARTITION: OffsetRecord(100, -1, "", 0x1A1FE1227A0, None)}
    written: list[bytes] = []
    writes: list[tuple[int, Callable[[], object]]] = [
        (0x1A1FE1224B6, lambda: disk.commit_all({PARTITION: noted, OTHER: noted}, "simple")),
        (0x1A1FE1229BD, lambda: disk.store.store_group(GROUP, GroupRecord("consumer", 2, None, None, -1, ()))),
        (0x1A1FE1227A0, lambda: disk.commit_all(in_transaction, **FIRST_PRODUCER)),
    ]

    for now_ms, write in writes:
        disk.clock.now_ms = now_ms
        assert write() is ErrorCode.NONE
        data, view = list(disk.log.read_batches(0))[-1]
        written.append(bytes(8) + bytes(data[view.position + 8 : view.end_position]))

    assert written == [recorded_batch(1), recorded_batch(9), recorded_batch(5)]


def test_a_commit_is_one_append(disk: StoreOnDisk) -> None:
    commits = {TopicPartition("flights", number): offset(number) for number in range(50)}
    offsets = GroupOffsets()

    disk.store.commit(offsets, commit_of(GROUP, commits))

    assert len(disk.batches()) == 1
    assert offsets.committed == commits


def test_a_group_lives_in_the_partition_that_its_name_gives(make_store: MakeStore) -> None:
    disk = make_store(partitions=50)

    disk.commit(5, group="readers")

    # In Java, "readers".hashCode() is 1080410128.
    assert [partition for partition in range(50) if disk.batches(partition)] == [28]


def test_the_codec_of_the_settings_is_used(make_store: MakeStore) -> None:
    disk = make_store(offsets_topic_compression_codec=1)

    disk.commit(5)
    disk.store.store_group(GROUP, STABLE)

    assert [batch.codec for batch in disk.batches()] == [Codec.GZIP, Codec.GZIP]
    assert disk.load()[GROUP].record() == STABLE


@pytest.mark.parametrize(("version", "magic"), [("0.9.0", 0), ("0.10.2", 1)])
def test_a_topic_of_an_old_format_is_written_in_it(make_store: MakeStore, version: str, magic: int) -> None:
    disk = make_store(topic_configs={"message.format.version": version})

    error = disk.commit_all({PARTITION: offset(5, leader_epoch=3), OTHER: offset(6)})

    assert error is ErrorCode.NONE
    assert {batch.magic for batch in disk.batches()} == {magic}
    assert (
        disk.commit(6, into=(refused := GroupOffsets()), **IN_TRANSACTION) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    )
    assert refused.is_empty
    assert disk.load()[GROUP].offsets.committed[PARTITION].offset == 5


def test_removed_offsets_and_groups_get_a_tombstone(disk: StoreOnDisk) -> None:
    offsets = GroupOffsets()
    disk.store.commit(offsets, commit_of(GROUP, {PARTITION: offset(5), OTHER: offset(6)}))
    disk.store.store_group(GROUP, STABLE)

    error = disk.store.remove_offsets(GROUP, offsets, [PARTITION])
    left = dict(offsets.committed)
    also = disk.store.remove_offsets(GROUP, offsets, [OTHER], group_tombstones=[group_contents(GROUP, None)])

    assert (error, also) == (ErrorCode.NONE, ErrorCode.NONE)
    assert left == {OTHER: offset(6)}
    assert [(record.key, record.value) for record in disk.records()[3:]] == [
        (offset_key(GROUP, PARTITION), None),
        (offset_key(GROUP, OTHER), None),
        (group_key(GROUP), None),
    ]
    assert disk.load() == {}
    written = len(disk.batches())
    assert disk.store.remove_offsets(GROUP, GroupOffsets(), [PARTITION]) is ErrorCode.NONE
    assert len(disk.batches()) == written, "nothing is removed"


def test_more_tombstones_than_fit_into_a_batch_are_several(make_store: MakeStore) -> None:
    disk = make_store()
    long_name = "t" * 200
    commits = {TopicPartition(long_name, number): offset(number) for number in range(3000)}
    offsets = GroupOffsets()
    disk.store.commit(offsets, commit_of(GROUP, commits))

    error = disk.store.remove_offsets(GROUP, offsets, list(commits), group_tombstones=[group_contents(GROUP, None)])

    assert error is ErrorCode.NONE
    assert max(batch.size_bytes for batch in disk.batches()[1:]) < 300_000
    assert len(disk.batches()) == 4
    assert disk.load() == {}


class LogWithOutcome:
    """Stands in for the log: appends come to this outcome, at once or later."""

    def __init__(self, disk: StoreOnDisk, outcome: ErrorCode | Pending[ErrorCode]) -> None:
        self.topic, self.partition_for, self._outcome = disk.log.topic, disk.log.partition_for, outcome

    def append(self, name: str, batches: object, **producer: int) -> Appended:
        return Appended(0, self._outcome)


def store_with(disk: StoreOnDisk, outcome: ErrorCode | Pending[ErrorCode]) -> OffsetStore:
    return OffsetStore(LogWithOutcome(disk, outcome), disk.config)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("appending", "committing", "storing"),
    [
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"),
        ("NOT_LEADER_FOR_PARTITION", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR", "NOT_COORDINATOR"),
        ("MESSAGE_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE", "UNKNOWN_SERVER_ERROR"),
        ("RECORD_LIST_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE", "UNKNOWN_SERVER_ERROR"),
        ("INVALID_FETCH_SIZE", "INVALID_COMMIT_OFFSET_SIZE", "UNKNOWN_SERVER_ERROR"),
        ("REQUEST_TIMED_OUT", "REQUEST_TIMED_OUT", "REBALANCE_IN_PROGRESS"),
        ("CORRUPT_MESSAGE", "CORRUPT_MESSAGE", "CORRUPT_MESSAGE"),
    ],
)
@pytest.mark.pure
def test_a_failed_append_is_answered_as_kafka_answers_it(
    disk: StoreOnDisk, appending: str, committing: str, storing: str
) -> None:
    store, offsets = store_with(disk, ErrorCode[appending]), GroupOffsets()

    commits = [commit_of(GROUP, {PARTITION: offset(5)}, **producer) for producer in ({}, IN_TRANSACTION)]

    assert [error_of(store.commit(offsets, each)) for each in commits] == [ErrorCode[committing]] * 2
    assert store.store_group(GROUP, STABLE) is ErrorCode[storing]
    assert offsets.is_empty
    store.complete_transaction(PRODUCER, {0}, is_commit=True, offsets_of=lambda _: pytest.fail("nothing to complete"))


def test_a_batch_over_the_topics_limit_changes_nothing(make_store: MakeStore) -> None:
    disk, offsets = make_store(topic_configs={"max.message.bytes": "200"}), GroupOffsets()
    disk.commit(5, into=offsets)

    error = disk.commit_all({PARTITION: offset(6)._replace(metadata="m" * 300)}, into=offsets)

    assert error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert offsets.committed == {PARTITION: offset(5)}
    assert len(disk.batches()) == 1


def test_a_full_disk_fails_the_commit_and_the_next_ones(disk: StoreOnDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = GroupOffsets()
    disk.commit(5, into=offsets)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("minibroker.storage.files.disk.pwrite", fail)

    assert [disk.commit(number, into=offsets) for number in (6, 7)] == [ErrorCode.NOT_COORDINATOR] * 2
    assert offsets.committed == {PARTITION: offset(5)}


def test_a_group_without_a_partition_has_no_coordinator_here(make_store: MakeStore) -> None:
    disk, offsets = make_store(partitions=0), GroupOffsets()

    assert disk.commit(5, into=offsets) is disk.store.store_group(GROUP, STABLE) is ErrorCode.NOT_COORDINATOR
    assert offsets.is_empty


@pytest.mark.parametrize("has_client_left", [False, True])
@pytest.mark.pure
def test_a_commit_counts_only_once_it_is_acknowledged(disk: StoreOnDisk, has_client_left: bool) -> None:
    acknowledged: Pending[ErrorCode] = Pending()
    store, offsets = store_with(disk, acknowledged), GroupOffsets()

    waiting = store.commit(offsets, commit_of(GROUP, {PARTITION: offset(5)}))
    assert isinstance(waiting, Pending)
    if has_client_left:
        waiting.abandon()
    meanwhile = dict(offsets.committed)
    acknowledged.resolve(ErrorCode.NONE)

    assert meanwhile == {}
    assert has_client_left or waiting.result() == {PARTITION: ErrorCode.NONE}
    assert offsets.committed == {PARTITION: offset(5)}


async def test_flush_messages_is_waited_for(make_store: MakeStore, nursery: trio.Nursery) -> None:
    disk = make_store(topic_configs={"flush.messages": "1"})
    nursery.start_soon(disk.background.run)
    offsets = GroupOffsets()

    waiting = disk.store.commit(offsets, commit_of(GROUP, {PARTITION: offset(5)}))
    meanwhile = dict(offsets.committed)
    assert isinstance(waiting, Pending)
    errors = await waiting.wait()

    assert (meanwhile, errors) == ({}, {PARTITION: ErrorCode.NONE})
    assert offsets.committed == {PARTITION: offset(5)}
    assert disk.log_of().recovery_point == 1
    nursery.cancel_scope.cancel()


def test_a_marker_completes_the_groups_of_its_partitions_only(make_store: MakeStore) -> None:
    disk = make_store(partitions=50)
    groups = {name: GroupOffsets() for name in ("readers", "writers")}
    for name, offsets in groups.items():
        disk.store.commit(offsets, commit_of(name, {PARTITION: offset(5)}, **IN_TRANSACTION))
    marked = disk.log.partition_for("readers")
    assert marked is not None

    disk.store.complete_transaction(PRODUCER, {marked}, is_commit=True, offsets_of=groups.get)

    assert groups["readers"].committed == {PARTITION: offset(5)}
    assert groups["writers"].committed == {}
    assert groups["writers"].active_producers == {PRODUCER}
    everywhere = set(range(50))
    disk.store.complete_transaction(PRODUCER, everywhere, is_commit=False, offsets_of=groups.get)
    assert groups["writers"].is_empty


def test_a_marker_of_a_group_that_is_gone_is_no_concern(disk: StoreOnDisk) -> None:
    disk.commit(5, **IN_TRANSACTION)
    asked: list[str] = []

    for _ in range(2):
        disk.store.complete_transaction(PRODUCER, {0}, is_commit=True, offsets_of=asked.append)

    assert asked == [GROUP]


@pytest.mark.pure
def test_a_marker_that_overtakes_the_acknowledgement_finds_the_offsets(disk: StoreOnDisk) -> None:
    acknowledged: Pending[ErrorCode] = Pending()
    store, offsets = store_with(disk, acknowledged), GroupOffsets()

    waiting = store.commit(offsets, commit_of(GROUP, {PARTITION: offset(5)}, **IN_TRANSACTION))
    store.complete_transaction(PRODUCER, {0}, is_commit=True, offsets_of=lambda _: offsets)
    acknowledged.resolve(ErrorCode.NONE)

    assert isinstance(waiting, Pending) and waiting.result() == {PARTITION: ErrorCode.NONE}
    assert offsets.committed == {PARTITION: offset(5)}


def test_a_loaded_transaction_is_completed_by_its_marker(disk: StoreOnDisk) -> None:
    disk.commit(5, **IN_TRANSACTION)
    later = disk.reopened()
    offsets = later.load()[GROUP].offsets
    before = dict(offsets.committed)

    later.store.complete_transaction(PRODUCER, {0}, is_commit=True, offsets_of=lambda _: offsets)

    later.close()
    assert before == {}
    assert offsets.committed == {PARTITION: as_read(offset(5))}


def test_a_group_that_is_deleted_is_in_no_transaction_any_more(disk: StoreOnDisk) -> None:
    offsets = GroupOffsets()
    disk.commit(5, into=offsets, **IN_TRANSACTION)

    disk.store.remove_offsets(GROUP, offsets, [PARTITION], group_tombstones=[group_contents(GROUP, None)])
    disk.store.complete_transaction(PRODUCER, {0}, is_commit=True, offsets_of=lambda _: pytest.fail("asked for"))

    assert not offsets.has_pending_transactional(PARTITION)
