"""Reads the checkpoint of a Spark query from its files, without Spark: what it has committed, and what it has planned.

Spark writes the offsets of a micro-batch to `offsets/N` before it runs, and `commits/N` when it has ended. So a batch
with offsets and without a commit runs again, over the same offsets: from those of the batch before it, whether that one
has a commit or not. Of older batches Spark reads nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.errors import CommandFailed
from minibroker.protocol.text import OTHER_FORM

LOG_VERSION = "v1"
NO_OFFSET = "-"

# Of a Kafka source: by topic, by partition.
TopicOffsets = dict[str, dict[int, int]]


class Source(NamedTuple):
    """The position of a source at the end of a batch; `topics` are None unless it is Spark's Kafka source."""

    offset: Any
    topics: TopicOffsets | None


class Batch(NamedTuple):
    number: int
    planned_ms: int
    watermark_ms: int  # 0 for none
    sources: list[Source]


class StateOperator(NamedTuple):
    """An operator with state, and the size of its files."""

    operator: int
    name: str
    stores: list[str]
    partitions: int
    bytes: int


class Checkpoint(NamedTuple):
    """A checkpoint; either batch is None if there is none. A planned one is not committed yet."""

    query: str
    committed: Batch | None
    planned: Batch | None
    start: list[Source]  # where the sources go on from
    uncommitted: range  # batches before the planned one that have no commit, and do not run again
    operators: list[StateOperator]


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint. Raises CommandFailed with one line if it is none, or damaged."""
    if not folder.is_dir():
        raise CommandFailed(f"{folder} is no directory; name the checkpointLocation of a query, on this machine")
    if not (folder / "metadata").is_file():
        raise CommandFailed(
            f"{folder} is no checkpoint of a Spark query: it has no file `metadata`; name its checkpointLocation"
        )
    try:
        return _read(folder)
    except (OSError, *OTHER_FORM) as error:
        raise _damaged(folder, f"a field is missing, or not as Spark writes it ({error!r})") from error


def _read(folder: Path) -> Checkpoint:
    query = str(_json(folder / "metadata", (folder / "metadata").read_text(errors="replace"))["id"])
    newest, committed = (_newest(folder / name) for name in ("offsets", "commits"))
    if committed > newest:
        raise _damaged(folder / "offsets" / str(committed), "it is missing, and has a commit")
    if committed >= 0:
        _lines(folder / "commits" / str(committed), at_least=0, versions=("v1", "v2"))
    last = _batch(folder, newest) if newest >= 0 else None
    before = _batch(folder, newest - 1) if newest > 0 else None
    is_planned = committed < newest
    start = before if is_planned else last
    if is_planned and committed not in (newest - 1, -1):
        before = _batch(folder, committed) if (folder / "offsets" / str(committed)).exists() else None
    return Checkpoint(
        query,
        (before if committed >= 0 else None) if is_planned else last,
        last if is_planned else None,
        [_initial(path) for path in _numbered(folder / "sources")] if start is None else start.sources,
        range(committed + 1, newest),
        [_operator(path) for path in _numbered(folder / "state")],
    )


def _numbered(folder: Path) -> list[Path]:
    """The files or folders that have a number as their name, in its order."""
    found = [path for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
    return sorted(found, key=lambda path: int(path.name))


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in _numbered(folder)), default=-1)


def _batch(folder: Path, number: int) -> Batch:
    path = folder / "offsets" / str(number)
    lines = _lines(path, at_least=2)
    metadata = _json(path, lines[0])
    return Batch(
        number,
        int(metadata.get("batchTimestampMs", 0)),
        int(metadata.get("batchWatermarkMs", 0)),
        [_source(path, line) for line in lines[1:]],
    )


def _initial(folder: Path) -> Source:
    path = folder / "0"
    return _source(path, _lines(path)[0]) if path.is_file() else Source(None, None)


def _lines(path: Path, *, at_least: int = 1, versions: Sequence[str] = (LOG_VERSION,)) -> list[str]:
    """The lines of a file of Spark's metadata log behind its version."""
    try:
        version, *lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise _damaged(
            path, "it is missing" if isinstance(error, FileNotFoundError) else "it is empty, or no text"
        ) from error
    # The Kafka source begins its file with a zero, for versions of Spark before 2.1.
    if version.lstrip("\0") not in versions:
        raise _damaged(path, f"it does not begin as {LOG_VERSION} of Spark's log")
    if len(lines) < at_least:
        raise _damaged(path, "it ends too early")
    return lines


def _source(path: Path, line: str) -> Source:
    if line == NO_OFFSET:
        return Source(None, None)
    offset = _json(path, line)
    try:
        topics = {topic: {int(each): int(at) for each, at in found.items()} for topic, found in offset.items()}
    except OTHER_FORM:  # of another source: a number, or an object of numbers
        return Source(offset, None)
    return Source(offset, topics)


def _operator(folder: Path) -> StateOperator:
    stores: list[str] = []
    name, partitions = "?", len(_numbered(folder))
    for path in _metadata_of(folder / "_metadata"):
        found = _json(path, _lines_of_any_version(path)[-1])
        name = str(found["operatorInfo"]["operatorName"])
        stores = [str(each["storeName"]) for each in found["stateStoreInfo"]]
        partitions = max((int(each["numPartitions"]) for each in found["stateStoreInfo"]), default=partitions)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return StateOperator(int(folder.name), name, stores, partitions, size)


def _metadata_of(folder: Path) -> Iterator[Path]:
    """Yield the newest file about an operator: of v2 one for some batches, of v1 one for all."""
    if newest := _numbered(folder / "v2"):
        yield newest[-1]
    elif (folder / "metadata").is_file():
        yield folder / "metadata"


def _lines_of_any_version(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines:
        raise _damaged(path, "it is empty")
    return lines


def _json(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "it is not JSON where it should be") from error


def _damaged(path: Path, what: str) -> CommandFailed:
    return CommandFailed(f"{path} is damaged: {what}; the query cannot go on from it either, unless it is restored")
