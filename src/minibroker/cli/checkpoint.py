"""`minibroker jobs checkpoint`: what a Spark query has read, beside what its topics have now.

`checkpoint_files.py` reads the files; the state is read by Spark, in the job `checkpoint`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.cli.checkpoint_files import Batch, Checkpoint, TopicOffsets, read_checkpoint
from minibroker.cli.parameters import OutputOption, on_cluster
from minibroker.errors import EXIT_FAILED, EXIT_OK, CommandFailed

if TYPE_CHECKING:
    from minibroker.any_cluster.partition_offsets import OffsetRange

EPILOG = """The directory is the checkpointLocation of a query, on this machine. A query may run meanwhile: nothing is \
changed.

Exit status 1: a start would fail for records that are gone, unless failOnDataLoss is false.

Examples:

minibroker jobs checkpoint out/checkpoint

minibroker jobs checkpoint out/checkpoint --state -o json"""


class Reading(NamedTuple):
    """A partition of a Kafka source: what the query has read, and what is there now. None: there is none."""

    topic: str
    partition: int
    committed: int | None
    planned: int | None
    log_start: int | None
    log_end: int | None

    @property
    def unread(self) -> int:
        """The records that the next batches can read."""
        if self.log_start is None or self.log_end is None:
            return 0
        return max(0, self.log_end - max(self.committed or 0, self.log_start))

    @property
    def lost(self) -> int:
        """The offsets that the query has not read, and that are there no more."""
        if self.committed is None:
            return 0
        return 0 if self.log_start is None else max(0, self.log_start - self.committed)

    @property
    def trouble(self) -> str:
        """The reason for which a start would fail; empty for none."""
        if self.log_end is None:
            return "does not exist"
        if self.committed is not None and self.committed > self.log_end:
            return "ends before the query's offset: the topic was made anew"
        return f"lost to retention or DeleteRecords: {self.lost:,}" if self.lost else ""

    @property
    def note(self) -> str:
        """The last cell of its row in a table."""
        return self.trouble or ("new" if self.committed is None and self.planned is None else "")


@on_cluster
def checkpoint(
    folder: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    cluster: Cluster,
    state: Annotated[
        bool, typer.Option("--state", help="Have Spark read the state: keys, and the first of them.")
    ] = False,
    output: OutputOption = "text",
) -> int:
    """Show what a Spark query has read and would read next, beside what its topics have now."""
    found = read_checkpoint(folder)
    readings = list(readings_of(found, ranges_now(found, cluster)))
    stores = stores_of(folder) if state and found.committed is not None and found.operators else []
    if output == "json":
        print(json.dumps(document(found, readings, stores)))
    else:
        show(found, readings, stores)
    return EXIT_FAILED if any(each.trouble for each in readings) else EXIT_OK


def offsets_of(batch: Batch | None) -> TopicOffsets:
    """The offsets of all Kafka sources of a batch."""
    merged: TopicOffsets = {}
    for source in [] if batch is None else batch.sources:
        for topic, offsets in (source.topics or {}).items():
            merged.setdefault(topic, {}).update(offsets)
    return merged


def begun(found: Checkpoint) -> TopicOffsets:
    """The offsets that the query goes on from: those of the committed batch, else of its start."""
    if found.committed is not None:
        return offsets_of(found.committed)
    return offsets_of(Batch(-1, 0, 0, found.start))


def ranges_now(found: Checkpoint, cluster: Cluster) -> dict[tuple[str, int], OffsetRange]:
    """The first and last offsets of what the query reads, now; a topic that does not exist has none."""
    from minibroker.any_cluster.cluster import TopicPartition, connected
    from minibroker.any_cluster.partition_offsets import ranges_of

    topics = sorted({*begun(found), *offsets_of(found.planned)})
    if not topics:
        return {}
    with connected(cluster) as client:
        existing = [row for row in client.describe_topics(topics) if not row["error_code"]]
        partitions = [
            TopicPartition(row["name"], each["partition_index"]) for row in existing for each in row["partitions"]
        ]
        return {(each.topic, each.partition): inside for each, inside in ranges_of(client, partitions).items()}


def readings_of(found: Checkpoint, now: dict[tuple[str, int], OffsetRange]) -> Iterator[Reading]:
    """Compare the checkpoint with the topics, partition by partition."""
    committed, planned = begun(found), offsets_of(found.planned)
    known = {(topic, each) for offsets in (committed, planned) for topic, at in offsets.items() for each in at}
    for topic, partition in sorted(known | set(now)):
        inside = now.get((topic, partition))
        yield Reading(
            topic,
            partition,
            committed.get(topic, {}).get(partition),
            planned.get(topic, {}).get(partition),
            None if inside is None else inside.earliest,
            None if inside is None else inside.latest,
        )


def next_step(found: Checkpoint, readings: list[Reading]) -> str:
    """The sentence on what a start of the query would do."""
    from minibroker.protocol.text import counted

    if any(each.trouble for each in readings):
        return "a start fails for what is gone; with failOnDataLoss=false it leaves that out and goes on"
    if found.planned is not None:
        planned = sum(max(0, each.planned - (each.committed or 0)) for each in readings if each.planned is not None)
        again = f"it runs again, over {counted(planned, 'offset')}"
        return f"batch {found.planned.number} was planned and not committed: {again}"
    number = 0 if found.committed is None else found.committed.number + 1
    unread = sum(each.unread for each in readings)
    if unread:
        return f"batch {number} runs next; {counted(unread, 'offset')} are unread"
    return f"batch {number} waits for records: all are read" if readings else f"batch {number} runs next"


def stores_of(folder: Path) -> list[dict[str, Any]]:
    """Have Spark read the state. Raises CommandFailed."""
    from minibroker.cli.jobs import require_spark

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
    from minibroker.cli.terminal import print_table
    from minibroker.protocol.text import counted
    from minibroker.story import many

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
        columns = ("TOPIC", "PARTITION", "COMMITTED", "PLANNED", "LOG START", "LOG END", "UNREAD", "NOTE")
        rows = [(*(dash(value) for value in each), each.unread, each.note) for each in readings]
        print_table(columns, rows, left=("TOPIC", "NOTE"))
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
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
