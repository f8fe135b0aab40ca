"""Files that a broker keeps, each with what writes and what reads one: of a data directory, and transcripts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from minibroker.broker.app import SECTIONS_OF_WINGS
from minibroker.broker.cluster.file_state import FILE_NAME, JOURNAL_NAME, FileState
from minibroker.broker.cluster.sections import NEXT_PRODUCER_ID
from minibroker.broker.cluster.state import Change, TopicState
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.starting import StartError
from minibroker.broker.wings.several.shared_state import SharedState
from minibroker.conformance.requests import frame
from minibroker.protocol.api import ApiKey
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
from minibroker.transcript.exchanges import read_transcript
from minibroker.transcript.file import MAGIC, Entry, Frame, Kind, TranscriptError, encode_entry
from minibroker.transcript.text import SHORT, exchange_lines
from tests.broker.state_promises import broker_at
from tests.storage.logs import append, end_transaction, open_log, records_of, send_transactional

TOPIC = TopicState("t", {0: PartitionState(1, 2, (1,), (1,))}, {"retention.ms": "5"}, UUID(int=7))
INDEX_BYTES = 120


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


def segment(path: Path) -> None:
    log = open_log(path.parent)
    append(log, "a", "b")
    send_transactional(log, 1, 0, "c")
    end_transaction(log, 1, is_commit=False)
    log.close()


def read_log(path: Path) -> None:
    log = open_log(path.parent)
    try:
        records_of(log)
    finally:
        log.close()


def transcript(path: Path) -> None:
    request = frame(ApiKey.HEARTBEAT, 0, group_id="g", generation_id=1, member_id="m")[4:]
    with path.open("wb") as file:
        file.write(MAGIC)
        for each in (
            Entry(Kind.STARTED, 1, 0, "0.1.0"),
            Entry(Kind.OPENED, 2, 1, "127.0.0.1:50000"),
            Entry(Kind.REQUEST, 3, 1, frame=Frame(len(request), request, (), False)),
            Entry(Kind.RESPONSE, 4, 1, frame=Frame(6, bytes(6), (), False)),
        ):
            file.write(encode_entry(each))


def show_transcript(path: Path) -> None:
    for each in read_transcript(path):
        for _ in exchange_lines(each, 0, SHORT):
            pass


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
    "log": (f"{0:020}.log", segment, read_log),
    "transcript": ("transcript", transcript, show_transcript),
}


REFUSALS = (CorruptFileError, StartError, TranscriptError)
