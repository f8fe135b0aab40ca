"""Spark in Real-time Mode: passes the records of one topic on to another, until standard input ends."""

from __future__ import annotations

import sys
from typing import Any

from minibroker.spark_jobs.session import ConnectorUnavailable, spark_session

# Longer than a round: no checkpoint comes between. pyspark 4.2 does not declare it.
TRIGGER: dict[str, Any] = {"realTime": "5 minutes"}


def main() -> None:
    """Run with `bootstrap source-topic sink-topic checkpoint`; print `ready` when the query is started."""
    bootstrap, source, sink, checkpoint = sys.argv[1:]
    try:
        spark = spark_session("minibroker relay", master="local[2]", config={"spark.driver.memory": "1g"})
    except ConnectorUnavailable as reason:
        sys.exit(str(reason))
    records = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"})
        .load()
    )
    query = (
        records.select("value", "partition")
        .writeStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": sink, "checkpointLocation": checkpoint})
        .outputMode("update")
        .trigger(**TRIGGER)
        .start()
    )
    print("ready", flush=True)
    sys.stdin.read()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
