"""Damaged checkpoints: Spark does with each what `minibroker jobs checkpoint` says of it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from minibroker import Broker
from tests.minibroker.checkpoints import CASES, Case, CheckpointFolder, make_topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

POLLS = {"kafkaConsumer.pollTimeoutMs": "3000"}  # Spark waits so long for records that never come


@pytest.fixture(scope="module")
def trimmed() -> Iterator[Broker]:
    with Broker() as running:
        make_topics(running)
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_spark_runs_these_batches_or_fails(case: Case, spark: SparkSession, trimmed: Broker, tmp_path: Path) -> None:
    CheckpointFolder(tmp_path).make(case)
    runs: dict[int, int] = {}

    def one() -> DataFrame:
        topic = "u" if "partition" in case.name or "topic" in case.name else "t"
        options = {"kafka.bootstrap.servers": trimmed.bootstrap_servers, "subscribe": topic}
        return spark.readStream.format("kafka").options(**options, startingOffsets="earliest", **POLLS).load()

    def note(rows: DataFrame, batch: int) -> None:
        runs[batch] = rows.count()

    sources = max((len(offsets) for offsets in case.offsets.values()), default=1)
    frame = reduce(DataFrame.union, [one() for _ in range(sources)])
    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    if case.runs is None:
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(60)
    else:
        assert query.awaitTermination(60)
        # What is left when all is read is a batch of nothing.
        assert {batch: count for batch, count in runs.items() if count or batch in case.runs} == case.runs
