"""The offsets of groups live and as the log gives them again, after each step of a drawn history."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.group.offsets import GroupOffsets
from minibroker.protocol.group_records import GroupRecord, OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.timing_wheel import Timer
from tests.broker.offset_stores import RETENTION_MS, StoreOnDisk, commit_of, finished, offset, partition_of

STORED, UNSTORED = "stored", "unstored"  # with a generation, so with a record of its own; only ever with offsets
PARTITIONS = [TopicPartition(topic, number) for topic in ("flights", "gates") for number in (0, 1)]
EMPTY = GroupRecord("consumer", 3, None, None, -1, ())


class State(NamedTuple):
    """A group: whether it has a record, its offsets, those that an open transaction may change, and whose it is."""

    is_stored: bool
    committed: dict[TopicPartition, int]
    unstable: set[TopicPartition]
    producers: set[int]


class Coordinated:
    """A coordinator on a log of its own, and what a broker would find that started now."""

    def __init__(self, directory: Path) -> None:
        self.disk = StoreOnDisk(directory)
        self.disk.store.store_group(STORED, EMPTY)
        self.start()

    def start(self) -> None:
        disk = self.disk
        self.groups = GroupCoordinator(
            disk.store,
            disk.log,
            config=disk.config,
            clock=disk.clock,
            timer=Timer(start_ms=0),
            run_steps=disk.background.run_steps,
        )
        self.groups.on_leadership(partition_of(0), True)

    def live(self) -> dict[str, State]:
        return states((group.group_id, group.generation_id > 0, group.offsets) for group in self.groups.all())

    def replayed(self) -> dict[str, State]:
        """Loaded from the same log, by a store that knows nothing else."""
        store = OffsetStore(self.disk.log, self.disk.config)
        return states((each.group_id, each.generation_id > 0, each.offsets) for each in finished(store.load(0)))

    # -- steps ------------------------------------------------------------------------------------------------

    def commit(self, group_id: str, partition: TopicPartition, number: int) -> None:
        self.groups.offsets.commit(commit_of(group_id, {partition: self._offset(number)}))

    def stage(self, group_id: str, partition: TopicPartition, number: int, producer_id: int) -> None:
        self.groups.offsets.commit_transactional(
            commit_of(group_id, {partition: self._offset(number)}, producer_id=producer_id, producer_epoch=0)
        )

    def end(self, producer_id: int, is_commit: bool) -> None:
        self.disk.end_transaction(is_commit=is_commit, producer_id=producer_id)
        self.groups.on_transaction_completed(producer_id, [0], is_commit=is_commit)

    def delete_offset(self, group_id: str, partition: TopicPartition) -> None:
        self.groups.offsets.delete(group_id, [partition])

    def delete_group(self, group_id: str) -> None:
        self.groups.delete(group_id)

    def delete_topic(self, topic: str) -> None:
        self.groups.on_partitions_deleted([each for each in PARTITIONS if each.topic == topic])

    def expire(self) -> None:
        """Let all that is committed so far expire."""
        self.disk.clock.now_ms += RETENTION_MS + 1
        self.groups.offsets.expire()

    def restart(self) -> None:
        now_ms, self.disk = self.disk.clock.now_ms, self.disk.reopened()
        self.disk.clock.now_ms = now_ms
        self.start()

    def _offset(self, number: int) -> OffsetRecord:
        return offset(number)._replace(commit_timestamp_ms=self.disk.clock.now_ms)


def states(groups: Iterable[tuple[str, bool, GroupOffsets]]) -> dict[str, State]:
    """The groups of which anything is left: one with neither record nor offsets is only in memory."""
    found = {
        group_id: State(
            is_stored,
            {partition: record.offset for partition, record in offsets.committed.items()},
            {partition for partition in PARTITIONS if offsets.has_pending_transactional(partition)},
            offsets.active_producers,
        )
        for group_id, is_stored, offsets in groups
    }
    return {group_id: state for group_id, state in found.items() if any(state)}


groups, partitions = st.sampled_from([STORED, UNSTORED]), st.sampled_from(PARTITIONS)
producers, numbers = st.sampled_from([7, 8]), st.integers(0, 99)
HISTORIES = st.lists(
    st.one_of(
        st.tuples(st.just(Coordinated.commit), groups, partitions, numbers),
        st.tuples(st.just(Coordinated.stage), groups, partitions, numbers, producers),
        st.tuples(st.just(Coordinated.end), producers, st.booleans()),
        st.tuples(st.just(Coordinated.delete_offset), groups, partitions),
        st.tuples(st.just(Coordinated.delete_group), groups),
        st.tuples(st.just(Coordinated.delete_topic), st.sampled_from(["flights", "gates"])),
        st.tuples(st.just(Coordinated.expire)),
        st.tuples(st.just(Coordinated.restart)),
    ),
    max_size=12,
)


@given(HISTORIES)
@pytest.mark.slow
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_a_broker_that_starts_finds_the_groups_of_the_last_one(history: list[tuple[Callable[..., None], Any]]) -> None:
    with TemporaryDirectory() as directory:
        broker = Coordinated(Path(directory))
        for step, *arguments in history:
            step(broker, *arguments)
            assert broker.replayed() == broker.live(), step.__name__
        broker.disk.close()
