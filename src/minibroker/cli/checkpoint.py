"""`minibroker jobs checkpoint`: what a Spark query has read, beside what its topics have now.

`checkpoint_files.py` reads the files; the state is read by Spark, in the job `checkpoint`.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from minibroker.admin.partitions import OffsetRange
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected, topics_of
from minibroker.any_cluster.partition_offsets import ranges_of
from minibroker.cli.checkpoint_files import Checkpoint, TopicOffsets, read_checkpoint
from minibroker.cli.parameters import changing_cluster
from minibroker.cli.shown import Shown
from minibroker.cli.terminal import print_table
from minibroker.client.topic_partition import TopicPartition
from minibroker.errors import CommandFailed
from minibroker.protocol.text import counted, ranges
from minibroker.story import many

EPILOG = """The directory is the checkpointLocation of a query, on this machine. A query may run meanwhile: nothing is \
changed.

Exit status 1: a start would fail, for records that are gone or for files that are missing.

Examples:

minibroker jobs checkpoint out/checkpoint

minibroker jobs checkpoint out/checkpoint --state -o json"""


ANEW = "ends before the query's offset: the topic was made anew"


class Reading(NamedTuple):
    """A partition of a Kafka source: what the query has read, and what is there now. None: there is none."""

    source: int
    topic: str
    partition: int
    committed: int | None  # a planned batch begins there, also if the batch before it has no commit
    planned: int | None
    log_start: int | None
    log_end: int | None
    has_plan: bool = False  # of its source

    @property
    def unread(self) -> int:
        """The records that the next batches can read."""
        if self.log_start is None or self.log_end is None:
            return 0
        return max(0, self.log_end - max(self.committed or 0, self.log_start))

    @property
    def lost(self) -> int:
        """The offsets that the query has not read, and that are there no more; a new partition is read from 0."""
        return 0 if self.log_start is None else max(0, self.log_start - (self.committed or 0))

    @property
    def trouble(self) -> str:
        """The reason for which a start would fail; empty for none."""
        if self.log_end is None:
            return "does not exist"
        if max(self.committed or 0, self.planned or 0) > self.log_end:
            return ANEW
        if self.has_plan and self.committed is not None:
            if self.planned is None:
                return "the planned batch leaves it out"
            if self.planned < self.committed:
                return "the planned batch ends before its start"
        return f"lost to retention or DeleteRecords: {self.lost:,}" if self.lost else ""

    @property
    def note(self) -> str:
        """The last cell of its row in a table."""
        return self.trouble or ("new" if self.committed is None and self.planned is None else "")


@changing_cluster
def checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    cluster: Cluster,
    state: Annotated[
        bool, typer.Option("--state", help="Have Spark read the state: keys, and the first of them.")
    ] = False,
) -> Shown:
    """Show what a Spark query has read and would read next, beside what its topics have now."""
    found = read_checkpoint(folder)
    readings = list(readings_of(found, ranges_now(found, cluster)))
    stores = stores_of(folder) if state and found.committed is not None and found.operators else []
    is_failed = any(each.trouble for each in readings)
    return Shown(document(found, readings, stores), lambda: show(found, readings, stores), is_failed=is_failed)


def ranges_now(found: Checkpoint, cluster: Cluster) -> dict[tuple[str, int], OffsetRange]:
    """The first and last offsets of the query's partitions now; a topic that does not exist has none."""
    topics = sorted({topic for _, begins, ends in sources_of(found) for topic in {**(begins or {}), **(ends or {})}})
    if not topics:
        return {}
    with connected(cluster) as client:
        existing = [row for row in topics_of(client, topics) if not row.error_code]
        partitions = [TopicPartition(row.name, each.partition) for row in existing for each in row.partitions]
        return {(each.topic, each.partition): inside for each, inside in ranges_of(client, partitions).items()}


def sources_of(found: Checkpoint) -> Iterator[tuple[int, TopicOffsets | None, TopicOffsets | None]]:
    """Yield where each Kafka source goes on, and up to where a batch is planned; None for what is not known."""
    planned = [] if found.planned is None else found.planned.sources
    for number, (begins, ends) in enumerate(zip_longest(found.start, planned)):
        of_source = [None if each is None else each.topics for each in (begins, ends)]
        if any(topics is not None for topics in of_source):
            yield number, of_source[0], of_source[1]


def readings_of(found: Checkpoint, now: dict[tuple[str, int], OffsetRange]) -> Iterator[Reading]:
    """Compare the checkpoint with the topics, source by source and partition by partition."""
    for number, begins, ends in sources_of(found):
        named = [offsets for offsets in (begins, ends) if offsets is not None]
        known = {(topic, each) for offsets in named for topic, at in offsets.items() for each in at}
        topics = {topic for offsets in named for topic in offsets}
        for topic, partition in sorted(known | {each for each in now if each[0] in topics}):
            inside = now.get((topic, partition))
            earliest, latest = (None, None) if inside is None else (inside.earliest, inside.latest)
            # Of a first batch without a start Spark takes what is there.
            committed = earliest if begins is None else begins.get(topic, {}).get(partition)
            planned = (ends or {}).get(topic, {}).get(partition)
            yield Reading(number, topic, partition, committed, planned, earliest, latest, ends is not None)


def next_step(found: Checkpoint, readings: list[Reading]) -> str:
    """The sentence on what a start of the query would do."""
    if any(each.trouble == ANEW for each in readings):
        return "a start fails; with failOnDataLoss=false it goes on without what a topic made anew has so far"
    if any(each.trouble for each in readings):
        return "a start fails for what is gone; with failOnDataLoss=false it leaves that out and goes on"
    if found.planned is not None:
        planned = sum(max(0, each.planned - (each.committed or 0)) for each in readings if each.planned is not None)
        step = f"batch {found.planned.number} was planned and not committed: it runs again, over"
        others = f"; {ranges(found.uncommitted)} before it have no commit, and do not run again"
        return f"{step} {counted(planned, 'offset')}{others if found.uncommitted else ''}"
    number = 0 if found.committed is None else found.committed.number + 1
    unread = sum(each.unread for each in readings)
    if unread:
        return f"batch {number} runs next; {counted(unread, 'offset')} are unread"
    return f"batch {number} waits for records: all are read" if readings else f"batch {number} runs next"


def stores_of(folder: Path) -> list[dict[str, Any]]:
    """Have Spark read the state. Raises CommandFailed."""
    require_spark()
    command = [sys.executable, "-m", "minibroker.spark_jobs.checkpoint", str(folder), "--json"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise CommandFailed(f"Spark could not read the state of {folder}; leave --state out to see the offsets")
    return [found for line in done.stdout.splitlines() if "operator" in (found := json.loads(line))]


def document(found: Checkpoint, readings: list[Reading], stores: list[dict[str, Any]]) -> dict[str, Any]:
    """Return all of it for a program."""
    batches = {
        name: None
        if batch is None
        else {
            "batch": batch.number,
            "planned_ms": batch.planned_ms,
            "watermark_ms": batch.watermark_ms,
            "sources": [source.offset for source in batch.sources],
        }
        for name, batch in (("committed", found.committed), ("planned", found.planned))
    }
    partitions = [
        each._asdict() | {"unread": each.unread, "lost": each.lost, "trouble": each.trouble} for each in readings
    ]
    operators = [each._asdict() for each in found.operators]
    return {
        "query": found.query,
        **batches,
        "partitions": partitions,
        "operators": operators,
        "state": stores,
        "next": next_step(found, readings),
    }


def show(found: Checkpoint, readings: list[Reading], stores: list[dict[str, Any]]) -> None:
    """Print all of it for a person."""
    print(f"query {found.query}")
    for name, batch in (("committed", found.committed), ("planned", found.planned)):
        if batch is not None:
            watermark = f", watermark {time_of(batch.watermark_ms)}" if batch.watermark_ms else ""
            print(f"{name}: batch {batch.number}, begun {time_of(batch.planned_ms)}{watermark}")
            for source in batch.sources:
                if source.topics is None and source.offset is not None:
                    print(f"  a source that is not Kafka, at {json.dumps(source.offset)}")
    if found.committed is None:
        print("no batch is committed yet")
    if readings:
        columns = ("SOURCE", "TOPIC", "PARTITION", "COMMITTED", "PLANNED", "LOG START", "LOG END", "UNREAD", "NOTE")
        rows = [(*(dash(value) for value in each[:7]), each.unread, each.note) for each in readings]
        skipped = 0 if len({each.source for each in readings}) > 1 else 1
        print_table(columns[skipped:], [row[skipped:] for row in rows], left=("TOPIC", "NOTE"))
    for operator in found.operators:
        where = f"{counted(operator.partitions, 'partition')}, {many(operator.bytes, 'byte')}"
        print(f"state of operator {operator.operator} ({operator.name}): {where}")
    for store in stores:
        print(f"  {store['store']}: {many(store['keys'], 'key')}")
        for row in store["first"]:
            print(f"    {json.dumps(row)}")
    print(next_step(found, readings))


def dash(value: str | int | None) -> str | int:
    return "-" if value is None else value


def time_of(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError):  # a year that Python does not have
        return f"{ms} ms"


def require_spark() -> None:
    """Raises CommandFailed with the next step if there is no Spark."""
    if importlib.util.find_spec("pyspark") is None:
        raise CommandFailed("Spark is not installed; in the clone of minibroker: pip install -e '.[spark]'")
