"""Checkpoints of Spark queries, whole and damaged, and what Spark 4.2.0 makes of each.

`tests/spark_jobs/test_checkpoints.py` has Spark start from each; `test_jobs_cli.py` reads each without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibroker import Broker
from minibroker.cli.app import main

QUERY = "5b70bfb1-556f-4a1a-87ab-7d6abd9a3adf"
# What Spark needs of a batch's configuration to run it again.
CONFIGURATION = {
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}
Offsets = int | Mapping[str, Mapping[str, int]]


class Case(NamedTuple):
    """A checkpoint over the topics of `make_topics`: of each batch an offset of each source, in t-0 if it is a number.

    `runs` are the batches that a start runs, with their counts of records up to the topic's end; None: it fails.
    """

    name: str
    offsets: Mapping[int, Sequence[Offsets]]
    commits: Sequence[int]
    runs: Mapping[int, int] | None
    says: str
    start: int | None = 20


FAILS = "a start fails"
CASES = (
    Case("whole", {0: [30], 1: [40], 2: [50]}, [0, 1, 2], {3: 50}, "batch 3 runs next; 50 offsets"),
    Case("all is read", {0: [100]}, [0], {}, "batch 1 waits for records"),
    Case("a gap", {0: [30], 1: [40], 2: [50], 4: [70]}, [0, 1, 2], None, "offsets/3 is damaged: it is missing"),
    Case("an old gap", {0: [30], 2: [50], 3: [70]}, [0, 1, 2], {3: 20, 4: 30}, "batch 3 was planned"),
    Case("the last alone", {5: [50]}, [5], None, "offsets/4 is damaged: it is missing"),
    Case("the last alone, planned", {5: [50]}, [], None, "offsets/4 is damaged: it is missing"),
    Case("no commits", {0: [30], 1: [40], 2: [50], 3: [60]}, [], {3: 10, 4: 40}, "over 10 offsets; 0-2 before it"),
    Case(
        "few commits",
        {0: [30], 1: [40], 2: [50], 3: [60], 4: [70]},
        [0, 1],
        {4: 10, 5: 30},
        "batch 4 was planned and not committed: it runs again, over 10 offsets; 2-3 before it have no commit",
    ),
    Case("commits alone", {}, [0, 1], None, "offsets/1 is damaged: it is missing, and has a commit"),
    Case("a commit ahead", {0: [30], 1: [40]}, [0, 1, 2], None, "offsets/2 is damaged: it is missing, and has"),
    Case("planned beyond the end", {0: [90], 1: [400]}, [0], None, "what a topic made anew has so far"),
    Case("committed beyond the end", {0: [90], 1: [400]}, [0, 1], None, "what a topic made anew has so far"),
    Case("two sources, the first lost", {0: [10, 50]}, [0], None, FAILS),
    Case("two sources, the second lost", {0: [50, 10]}, [0], None, FAILS),
    Case("two sources", {0: [50, 60]}, [0], {1: 90}, "batch 1 runs next; 90 offsets"),
    Case("the first planned", {0: [30]}, [], {0: 10, 1: 70}, "batch 0 was planned and not committed: it runs again, o"),
    Case("the first planned, without a start", {0: [30]}, [], {0: 10, 1: 70}, "over 10 offsets", start=None),
    Case("the first planned, and lost", {0: [30]}, [], None, FAILS, start=10),
    Case("an empty plan", {0: [30], 1: [30]}, [0], {1: 0, 2: 70}, "it runs again, over 0 offsets"),
    Case("an empty plan, then lost", {0: [10], 1: [10]}, [0], None, FAILS),
    Case("a plan that goes back", {0: [50], 1: [40]}, [0], None, FAILS),
    Case("only begun", {}, [], {0: 80}, "batch 0 runs next; 80 offsets"),
    Case("a new partition that begins late", {0: [{"u": {"0": 5}}]}, [0], None, FAILS),
    Case(
        "planned, a new partition that begins late",
        {0: [{"u": {"0": 5}}], 1: [{"u": {"0": 7, "1": 8}}]},
        [0],
        None,
        FAILS,
    ),
    Case("a plan without a partition", {0: [{"u": {"0": 5, "1": 5}}], 1: [{"u": {"0": 7}}]}, [0], None, FAILS),
    Case("a partition that is gone", {0: [{"u": {"0": 5, "1": 5, "2": 3}}]}, [0], None, FAILS),
    Case("a topic that is gone", {0: [{"u": {"0": 5, "1": 5}, "gone": {"0": 3}}]}, [0], None, FAILS),
)


def make_topics(broker: Broker) -> None:
    """Make t with the offsets 20 to 99, and u with 0 to 9 and 4 to 9."""
    for topic, records, first in (("t", [100], {0: 20}), ("u", [10, 10], {1: 4})):
        broker.create_topic(topic, partitions=len(records))
        for partition, count in enumerate(records):
            broker.produce(topic, [b"x"] * count, partition=partition)
        for partition, before in first.items():
            command = ["topics", "delete-records", topic, "-p", str(partition), "--before", str(before)]
            assert main([*command, "-b", broker.bootstrap_servers]) == 0


class CheckpointFolder(NamedTuple):
    """A checkpoint, written as Spark 4.2 writes it."""

    folder: Path

    def write(self, path: str, *documents: Any, version: str = "v1") -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join([version, *map(json.dumps, documents)]))

    def plan(self, number: int, *offsets: Any) -> None:
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 * number, "conf": CONFIGURATION}
        self.write(f"offsets/{number}", metadata, *offsets)

    def commit(self, number: int) -> None:
        self.write(f"commits/{number}", {"nextBatchWatermarkMs": 0})

    def make(self, case: Case) -> None:
        (self.folder / "metadata").write_text(json.dumps({"id": QUERY}))
        sources = max((len(offsets) for offsets in case.offsets.values()), default=1)
        for number in range(sources if case.start is not None else 0):
            self.write(f"sources/{number}/0", {"t": {"0": case.start}}, version="\0v1")
        for number, offsets in case.offsets.items():
            self.plan(number, *({"t": {"0": each}} if isinstance(each, int) else each for each in offsets))
        for number in case.commits:
            self.commit(number)
