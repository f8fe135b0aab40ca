"""Compares what the topics of a streaming query have now with where its checkpoint has come to.

The rule: a query asks the broker before it starts. What is gone is named by offset, and the query goes on
without it only if it was told so; a topic that was made anew never goes on, since its first records would be left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import SparkSession

from minibroker.spark_jobs import topic_offsets
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.hadoop_files import HadoopFiles
from minibroker.spark_jobs.kafka_options import source_options
from minibroker.spark_jobs.report import say
from minibroker.spark_jobs.topic_offsets import Offsets, Topic

TOPIC_IDS = "_topics"  # beside Spark's own files: JSON of the id of each topic


class Checkpoint:
    """A query's notes of its way through the topics; Spark writes them, but for the topics' ids."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self.files = HadoopFiles(spark, folder)

    def last(self, kind: str) -> int:
        """Return the number of the last micro-batch that is planned (`offsets`) or done (`commits`), or -1."""
        return max((int(name) for name in self.files.names(kind) if name.isdigit()), default=-1)

    def watermark_ms(self, batch: int) -> int:
        """Return the watermark with which a micro-batch was planned; it is the same when the batch comes again."""
        return int(json.loads(self.files.read(f"offsets/{batch}").splitlines()[1])["batchWatermarkMs"])

    def offsets(self, batch: int) -> topic_offsets.Offsets:
        """Return where the micro-batch ended, by topic and partition."""
        try:
            planned = json.loads(self.files.read(f"offsets/{batch}").splitlines()[2])
            return {topic: {int(number): at for number, at in ends.items()} for topic, ends in planned.items()}
        except (AttributeError, IndexError, ValueError) as error:
            folder = self.files.folder
            raise JobFailed(
                f"{folder}/offsets/{batch} is damaged: `minibroker jobs checkpoint` has more; restore it, or give an"
                " output and a checkpoint that are new"
            ) from error

    def topic_ids(self) -> dict[str, str]:
        """Return the ids that the topics had when they were noted."""
        return dict(json.loads(self.files.read(TOPIC_IDS))) if self.files.exists(TOPIC_IDS) else {}

    def note_topic_ids(self, ids: dict[str, str]) -> None:
        """Note the ids of more topics."""
        known = self.topic_ids()
        if known | ids != known:
            self.files.replace(TOPIC_IDS, json.dumps(known | ids))


class Lost(NamedTuple):
    """Records that were gone before the query had them."""

    topic: str
    partition: int
    first: int
    next: int | None  # where the partition goes on now; None: it was deleted

    def __str__(self) -> str:
        where = f"{self.topic}-{self.partition}"
        if self.next is None:
            return f"{where}: deleted: it was read up to offset {self.first:,}"
        if self.is_anew:
            return f"{where}: made anew: it was read up to offset {self.first:,}, and now ends at {self.next:,}"
        count = self.next - self.first
        return f"{where}: offsets {self.first:,} to {self.next - 1:,} ({count:,}) were deleted before they were read"

    @property
    def is_anew(self) -> bool:
        """Whether the partition ends before what was read of it."""
        return self.next is not None and self.next < self.first


def lost(reached: Offsets, earliest: Offsets, latest: Offsets) -> Iterator[Lost]:
    """Compare where a query has come to with what the topics still have."""
    for topic, ends in reached.items():
        for partition, offset in ends.items():
            begin, end = (each.get(topic, {}).get(partition) for each in (earliest, latest))
            if begin is None or end is None:
                yield Lost(topic, partition, offset, None)
            elif end < offset or begin > offset:
                yield Lost(topic, partition, offset, end if end < offset else begin)


def check(spark: SparkSession, arguments: argparse.Namespace, checkpoint: Checkpoint) -> dict[str, Topic]:
    """Return the topics that the query reads. Raises JobFailed if one is missing or made anew, or records are gone."""
    asked = source_options(arguments)
    topics = topic_offsets.read_by(spark, asked)
    reached = {n: checkpoint.offsets(n) for n in {checkpoint.last(kind) for kind in ("commits", "offsets")} if n >= 0}
    known = checkpoint.topic_ids()
    for topic in sorted(set().union(*reached.values())):
        now = topics[topic].id if topic in topics else None
        if None not in (now, known.get(topic)) and now != known[topic]:
            raise _made_anew(f"{topic}: made anew since it was read last: its id was {known[topic]}, and is {now}")
    checkpoint.note_topic_ids({topic: each.id for topic, each in topics.items() if each.id is not None})
    if not reached:
        return topics
    existing = topic_offsets.described(spark, asked, set().union(*reached.values()))
    begins, ends = topic_offsets.offsets(spark, asked, {topic: each.partitions for topic, each in existing.items()})
    # A planned micro-batch begins where the one before it has ended.
    done = reached.get(checkpoint.last("commits"), {})
    found = [*lost(done, begins, ends)]
    found += [each for each in lost(reached[max(reached)], begins, ends) if each.is_anew and each not in found]
    for each in found:
        say(arguments, {"lost": each._asdict()}, f"lost: {each}")
        if each.is_anew:
            raise _made_anew(str(each))
    if found and arguments.fail_on_data_loss == "true":
        raise JobFailed(f"{found[0]}; go on without them with --fail-on-data-loss false")
    return topics


def _made_anew(what: str) -> JobFailed:
    return JobFailed(f"{what}; give the new topic an output and a checkpoint of its own")
