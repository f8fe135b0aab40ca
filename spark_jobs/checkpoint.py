"""The state in the checkpoint of a streaming query, by Spark's state data source: keys, and the first of them.

`minibroker jobs checkpoint DIR` shows the offsets, for which no Spark is needed; with `--state` it starts this.

    python -m minibroker.spark_jobs.checkpoint DIR
"""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from minibroker.spark_jobs import command_lines
from minibroker.spark_jobs.command import Job, main
from minibroker.spark_jobs.report import say

options = command_lines.checkpoint
FIRST_KEYS = 5


class Store(NamedTuple):
    """A state store, or a state variable of `transformWithState`."""

    operator: int
    operator_name: str
    name: str
    options: dict[str, str]  # of the data source


def stores_of(spark: SparkSession, folder: str) -> Iterator[Store]:
    """Yield the state stores of a checkpoint."""
    for row in spark.read.format("state-metadata").load(folder).collect():
        operator = {"operatorId": str(row.operatorId)}
        variables = json.loads(row.operatorProperties or "{}").get("stateVariables", [])
        if row.operatorName.startswith("transformWithState"):
            for name in (each["stateName"] for each in variables):
                yield Store(row.operatorId, row.operatorName, name, operator | {"stateVarName": name})
        else:
            options = operator | {"storeName": row.stateStoreName}
            yield Store(row.operatorId, row.operatorName, row.stateStoreName, options)


def read(spark: SparkSession, folder: str, store: Store) -> DataFrame:
    """Open the rows of a store as they are after the newest committed batch."""
    return spark.read.format("statestore").options(**store.options).load(folder)


def plan(spark: SparkSession, arguments: argparse.Namespace) -> list[DataFrame]:
    """Open all stores; nothing is read of them yet."""
    # A session without any query has not started what hands out state stores.
    assert spark.streams.active is not None
    return [read(spark, arguments.folder, store) for store in stores_of(spark, arguments.folder)]


def run(spark: SparkSession, arguments: argparse.Namespace, stop: threading.Event) -> int:
    """Print how many keys each store has, and the first of them."""
    for store, rows in zip(stores_of(spark, arguments.folder), plan(spark, arguments), strict=True):
        keys = rows.count()
        columns = [name for name in rows.columns if name != "partition_id"]
        texts = rows.select(F.to_json(F.struct(*columns)).alias("text")).take(FIRST_KEYS)
        first = [json.loads(row.text) for row in texts]
        facts = {"operator": store.operator, "name": store.operator_name, "store": store.name, "keys": keys}
        text = f"operator {store.operator} ({store.operator_name}), {store.name}: {keys:,} keys"
        say(arguments, facts | {"first": first}, "\n  ".join([text, *map(json.dumps, first)]))
    return 0


JOB = Job("checkpoint", options, plan, run, subject=lambda arguments: str(arguments.folder))

if __name__ == "__main__":
    main(JOB)
