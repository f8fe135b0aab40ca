"""Files of a data directory with any bytes in them: reading one ends with what it has, or with its own error.

The corpus is what the broker writes. A fault turns, drops, repeats or adds some of its bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.broker.app import SECTIONS_OF_WINGS
from minibroker.broker.cluster.file_state import FILE_NAME, JOURNAL_NAME, FileState
from minibroker.broker.cluster.sections import NEXT_PRODUCER_ID
from minibroker.broker.cluster.state import Change, TopicState
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.starting import StartError
from minibroker.broker.wings.several.shared_state import SharedState
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.checkpoints import (
    MetaProperties,
    OffsetCheckpointFile,
    read_meta_properties,
    write_meta_properties,
)
from minibroker.storage.files.storage_errors import CorruptFileError
from minibroker.storage.index.indexes import OffsetIndex, TimeIndex
from minibroker.storage.index.leader_epochs import LeaderEpochCache
from minibroker.storage.index.transaction_index import AbortedTxn, TransactionIndex
from minibroker.storage.producers.producer_snapshot import SnapshotEntry, read_snapshot, write_snapshot
from tests.broker.state_promises import broker_at

Faults = list[tuple[float, int, bytes]]  # where, from 0 to 1; how many bytes go; what comes
FAULTS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=4)), min_size=1, max_size=3)
TOPIC = TopicState("t", {0: PartitionState(1, 2, (1,), (1,))}, {"retention.ms": "5"}, UUID(int=7))
INDEX_BYTES = 120


def damaged(content: bytes, faults: Faults) -> bytes:
    for where, dropped, added in faults:
        at = int(where * len(content))
        content = content[:at] + added + content[at + dropped :]
    return content


def checkpoint(path: Path) -> None:
    OffsetCheckpointFile(path).write({TopicPartition("t", each): 5 * each for each in range(3)})


def epochs(path: Path) -> None:
    cache = LeaderEpochCache(path)
    for each in range(3):
        cache.assign(each, 10 * each)


def offset_index(path: Path) -> None:
    index = OffsetIndex(path, 10, INDEX_BYTES)
    for each in range(1, 5):
        index.append(10 + each, 100 * each)
    index.trim()


def time_index(path: Path) -> None:
    index = TimeIndex(path, 10, INDEX_BYTES)
    for each in range(1, 5):
        index.maybe_append(1000 * each, 10 + each)
    index.trim()


def look_up(index: OffsetIndex | TimeIndex) -> None:
    try:
        index.sanity_check()
        for each in range(8, 18):
            index.lookup(each)
    finally:
        index.unmap()


def transactions(path: Path) -> None:
    index = TransactionIndex(path, 0)
    for each in range(3):
        index.append(AbortedTxn(each, 10 * each, 10 * each + 5, 10 * each))


def state_of_one(path: Path) -> None:
    state = FileState(path.parent, 0, SECTIONS_OF_WINGS)
    state.save("topics", Change({"t": TOPIC}))
    if path.name == FILE_NAME:
        state.close()
    else:
        state.save("ids", Change(sections={NEXT_PRODUCER_ID: 1000}))


def state_of_several(path: Path) -> None:
    state = SharedState(path.parent, 1)
    state.open()
    state.register(broker_at(1))
    state.claim_controller()
    state.save("topics", Change({"t": TOPIC}))
    state.locks.release()


def read_of_several(path: Path) -> None:
    state = SharedState(path.parent, 2)
    try:
        state.open()
    finally:
        state.locks.release()


FILES: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], object]]] = {
    "offsets": ("recovery-point-offset-checkpoint", checkpoint, lambda path: OffsetCheckpointFile(path).read()),
    "epochs": ("leader-epoch-checkpoint", epochs, LeaderEpochCache),
    "owner": (
        "meta.properties",
        lambda path: write_meta_properties(path, MetaProperties(1, "cluster"), now_ms=5),
        read_meta_properties,
    ),
    "snapshot": (
        f"{5:020}.snapshot",
        lambda path: write_snapshot(path, [SnapshotEntry(each, 1, 2, 3, 0, 5, 1, -1) for each in range(3)]),
        read_snapshot,
    ),
    "offset index": (f"{10:020}.index", offset_index, lambda path: look_up(OffsetIndex(path, 10, INDEX_BYTES))),
    "time index": (f"{10:020}.timeindex", time_index, lambda path: look_up(TimeIndex(path, 10, INDEX_BYTES))),
    "transactions": (f"{0:020}.txnindex", transactions, lambda path: [*TransactionIndex(path, 0).entries()]),
    "state": (FILE_NAME, state_of_one, lambda path: FileState(path.parent, 0, SECTIONS_OF_WINGS).read()),
    "journal": (JOURNAL_NAME, state_of_one, lambda path: FileState(path.parent, 0, SECTIONS_OF_WINGS).read()),
    "shared journal": ("state", state_of_several, read_of_several),
}


def try_damage(kind: str, faults: Iterable[Faults]) -> None:
    name, write, read = FILES[kind]
    for each in faults:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / name
            write(path)
            path.write_bytes(damaged(path.read_bytes(), each))
            with suppress(CorruptFileError, StartError):
                read(path)


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=40, deadline=None)
@given(faults=FAULTS)
def test_a_file_with_any_bytes_is_read_or_refused(kind: str, faults: Faults) -> None:
    try_damage(kind, [faults])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=20_000, deadline=None)
@given(faults=FAULTS)
def test_a_file_with_any_bytes_is_read_or_refused_at_night(kind: str, faults: Faults) -> None:
    try_damage(kind, [faults])
