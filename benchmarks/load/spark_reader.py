"""A Spark session that reads topics on request: for each input line `bootstrap topic` it prints one line of JSON.

One session serves all rounds, as a warm cluster would; the time is that of a batch read of every value, of
which Spark keeps nothing.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from minibroker.spark_jobs.session import ConnectorUnavailable, spark_session


def read(spark: SparkSession, bootstrap: str, topic: str) -> dict[str, float]:
    """Read the topic from beginning to end and count its records and bytes."""
    start = time.perf_counter()
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    row = records.agg(F.count("value"), F.sum(F.length("value"))).collect()[0]
    return {"messages": row[0], "bytes": row[1], "seconds": time.perf_counter() - start}


def main() -> None:
    """Serve until standard input ends."""
    try:
        spark = spark_session("minibroker benchmark", master="local[2]", config={"spark.driver.memory": "1g"})
    except ConnectorUnavailable as reason:
        sys.exit(str(reason))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(read(spark, *line.split())), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
