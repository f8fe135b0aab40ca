"""A Spark session that runs jobs on request, and what Spark does alike by itself; one line of JSON for each.

An input line is `archive BOOTSTRAP TOPIC FOLDER` or `replay BOOTSTRAP TOPIC FOLDER`, of which `plain-archive` writes
the same folders of Parquet by a plain query, and `plain-replay` sends the archive's rows by Spark's own Kafka sink.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from minibroker.spark_jobs import archive, replay
from minibroker.spark_jobs.command import Job
from minibroker.spark_jobs.session import ConnectorUnavailable, spark_session


def job(job: Job, spark: SparkSession, *command_line: str) -> None:
    """Run a job to its end."""
    with redirect_stdout(io.StringIO()):
        job.run(spark, job.options().parse_args(command_line), threading.Event())


def plain_archive(spark: SparkSession, bootstrap: str, topic: str, folder: str) -> None:
    """Write a topic as Parquet by topic, date and hour."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    records = spark.readStream.format("kafka").options(**options, includeHeaders="true").load()
    hour = {"date": F.to_date("timestamp"), "hour": F.hour("timestamp")}
    writer = records.withColumns(hour).writeStream.format("parquet").partitionBy("topic", "date", "hour")
    places = {"path": f"{folder}/records", "checkpointLocation": f"{folder}/checkpoint"}
    writer.options(**places).trigger(availableNow=True).start().awaitTermination()


def plain_replay(spark: SparkSession, bootstrap: str, topic: str, folder: str) -> None:
    """Send an archive to a topic."""
    rows = spark.read.parquet(f"{folder}/records").select("key", "value", "headers", "partition")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
    rows.write.format("kafka").options(**options).save()


WHAT: dict[str, Callable[[SparkSession, str, str, str], None]] = {
    "archive": lambda spark, bootstrap, topic, folder: job(
        archive.JOB, spark, "-b", bootstrap, "--subscribe", topic, "--output", folder
    ),
    "plain-archive": plain_archive,
    "replay": lambda spark, bootstrap, topic, folder: job(
        replay.JOB, spark, "-b", bootstrap, "--archive", folder, "--topic", topic
    ),
    "plain-replay": plain_replay,
}


def main() -> None:
    """Serve until standard input ends."""
    try:
        spark = spark_session("minibroker benchmark", master="local[2]", config={"spark.driver.memory": "1g"})
    except ConnectorUnavailable as reason:
        sys.exit(str(reason))
    print("ready", flush=True)
    for line in sys.stdin:
        what, *places = line.split()
        start = time.perf_counter()
        WHAT[what](spark, *places)
        print(json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
