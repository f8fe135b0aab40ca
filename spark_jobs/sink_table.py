"""A table of Parquet files that Spark's own file sink commits, so that `spark.read.parquet` reads each record once.

The rule: a file counts once the sink's log (`_spark_metadata`) lists it, and every Spark reads only those. A
micro-batch that comes again after a crash is in the log already, and is left out. The sink is Spark's, but two of them
can be written by one query here, in `foreachBatch`.

Small files are compacted beside it: the large file is written aside, moved into its partition, and takes the place of
the small ones in one step, when the log's last summary (`9.compact`, `19.compact`, ...) is replaced. Readers that
listed the small files go on with them, since they are deleted later. A plan, written first, is what a compaction after
a crash cleans up by.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from minibroker.spark_jobs.hadoop_files import HadoopFiles

QUERY = "_query"  # a file beside the tables: the id of the query that writes them, by which a replay knows them
PARTITIONED_BY = ("topic", "date", "hour")
ORDER = (*PARTITIONED_BY, "partition", "offset")
# As text: `topic=007` would be read as the number 7.
PARTITION_TYPES = {"topic": StringType(), "date": StringType(), "hour": IntegerType()}
LOG = "_spark_metadata"
LOG_VERSION = 1
COMPACTIONS = "_compactions"
SUMMARY = ".compact"


class Compacted(NamedTuple):
    """The count of files before and after a compaction."""

    files: int
    into: int


class SinkTable:
    """A folder of such files; it may not exist yet."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._jvm: Any = spark.sparkContext._jvm
        self.files = HadoopFiles(spark, folder)

    def last_batch(self) -> int:
        """Return the number of the last micro-batch that is committed, or -1."""
        return max((_number(name) for name in self._log_names()), default=-1)

    def add(self, batch: int, frame: DataFrame) -> DataFrame | None:
        """Write the rows in order and commit them; return what ran for it, None if they were committed already."""
        if batch <= self.last_batch():
            return None
        # In the order of offsets; Spark would sort by folder anyway, and mixes what does not fit into memory.
        ordered = frame.sortWithinPartitions(*ORDER)
        python = self._jvm.org.apache.spark.api.python.PythonUtils
        sink = self._jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSink(
            self._spark._jsparkSession,
            self.files.folder,
            self._jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat(),
            python.toSeq(list(PARTITIONED_BY)),
            python.toScalaMap({"path": self.files.folder}),
        )
        sink.addBatch(batch, ordered._jdf)
        return ordered

    def add_nothing(self, batch: int) -> None:
        """Commit a micro-batch without rows: the log must have every number."""
        sinks = self._jvm.org.apache.spark.sql.execution.streaming.sinks
        gateway: Any = self._spark.sparkContext._gateway
        log = sinks.FileStreamSinkLog(
            LOG_VERSION, self._spark._jsparkSession, f"{self.files.folder}/{LOG}", self._jvm.scala.Option.empty()
        )
        log.add(batch, gateway.new_array(sinks.SinkFileStatus, 0))

    def read(self) -> DataFrame | None:
        """Return the rows of all committed files, with `topic` as text; None if there are none."""
        if not any(True for _ in self._committed()):
            return None
        found = self._spark.read.option("mergeSchema", True).parquet(self.files.folder)
        return self._spark.read.schema(_with_partition_types(found.schema)).parquet(self.files.folder)

    def compact(self, *, below_bytes: int, keep_replaced_seconds: float) -> Compacted:
        """Merge files smaller than half of `below_bytes` into files of about that size, hour by hour.

        Only files of the log's last summary, which Spark writes every ten micro-batches. Files replaced so long ago
        are deleted. Call it where no other query writes the table.
        """
        self._clean_up(keep_replaced_seconds)
        files = into = 0
        while bins := self._bins(below_bytes):
            added = self._rewrite(bins)
            files += sum(map(len, bins))
            into += added
        return Compacted(files, into)

    def _rewrite(self, bins: Sequence[Sequence[str]]) -> int:
        replaced = {path for each in bins for path in each}
        name = str(uuid.uuid4())
        aside = f"{COMPACTIONS}/{name}"
        self._write_aside(sorted(replaced), aside, tasks=len(bins))
        written = [file for file in self.files.below(aside) if file.path.endswith(".parquet")]
        prefix = f"{self.files.folder}/{aside}/"
        places = {file.path: f"{self.files.folder}/{file.path.removeprefix(prefix)}" for file in written}
        plan = {"added": sorted(places.values()), "replaced": sorted(replaced)}
        self.files.replace(f"{aside}.json", json.dumps(plan))
        for source, place in places.items():
            self.files.move(source, place)
        summary = self._last_summary()
        assert summary is not None
        kept = [line for line in self._lines(summary) if _path_of(line) not in replaced]
        kept += [
            json.dumps(
                {
                    "path": self.files.path(places[file.path]).toUri().toString(),
                    "size": file.size_bytes,
                    "isDir": False,
                    "modificationTime": file.modified_ms,
                    "blockReplication": 1,
                    "blockSize": file.block_size_bytes,
                    "action": "add",
                }
            )
            for file in written
        ]
        self.files.replace(f"{LOG}/{summary}", "\n".join([f"v{LOG_VERSION}", *kept]))
        self._note_committed(aside, plan)
        return len(written)

    def _write_aside(self, paths: Sequence[str], aside: str, *, tasks: int) -> None:
        reader = self._spark.read.option("basePath", self.files.folder)
        schema = _with_partition_types(reader.option("mergeSchema", True).parquet(*paths).schema)
        rows = reader.schema(schema).parquet(*paths)
        ordered = rows.repartition(tasks, *PARTITIONED_BY).sortWithinPartitions(*ORDER)
        ordered.write.partitionBy(*PARTITIONED_BY).parquet(f"{self.files.folder}/{aside}")

    def _note_committed(self, aside: str, plan: dict[str, Any]) -> None:
        self.files.replace(f"{aside}.json", json.dumps({**plan, "committed_at_seconds": time.time()}))
        self.files.delete(aside)

    def _clean_up(self, keep_replaced_seconds: float) -> None:
        """Finish what a killed compaction left, and delete what was replaced long enough ago."""
        names = self.files.names(COMPACTIONS)
        plans = {name.removesuffix(".json") for name in names if name.endswith(".json")}
        for name in names:
            if name.removesuffix(".json") not in plans and not name.startswith("."):
                self.files.delete(f"{COMPACTIONS}/{name}")  # killed before it had a plan
        for name in sorted(plans):
            aside = f"{COMPACTIONS}/{name}"
            plan = json.loads(self.files.read(f"{aside}.json"))
            committed = plan.get("committed_at_seconds")
            if committed is None:
                live = {_path_of(line) for line in self._committed()}
                if live.issuperset(plan["added"]):
                    self._note_committed(aside, plan)
                else:
                    self._forget(aside, plan["added"])
            elif committed + keep_replaced_seconds <= time.time():
                self._forget(aside, plan["replaced"])

    def _forget(self, aside: str, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.delete(path)
        self.files.delete(aside)
        self.files.delete(f"{aside}.json")

    def _bins(self, below_bytes: int) -> list[list[str]]:
        """Small files to merge, one bin for each partition of the table that has several."""
        summary = self._last_summary()
        small: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for line in self._lines(summary) if summary else ():
            size, path = json.loads(line)["size"], _path_of(line)
            if size < below_bytes // 2:
                small[path.rpartition("/")[0]].append((size, path))
        found = []
        for files in small.values():
            chosen, total = [], 0
            for size, path in sorted(files):
                if total < below_bytes:
                    chosen.append(path)
                    total += size
            if len(chosen) > 1:
                found.append(chosen)
        return found

    def _log_names(self) -> list[str]:
        return [name for name in self.files.names(LOG) if name.removesuffix(SUMMARY).isdigit()]

    def _last_summary(self) -> str | None:
        return max((name for name in self._log_names() if name.endswith(SUMMARY)), key=_number, default=None)

    def _committed(self) -> Iterable[str]:
        """The log's lines, each of a file: those of the last summary, and of the micro-batches after it."""
        summary = self._last_summary()
        first = -1 if summary is None else _number(summary)
        for name in sorted(self._log_names(), key=_number):
            if _number(name) > first or name == summary:
                yield from self._lines(name)

    def _lines(self, name: str) -> list[str]:
        return [line for line in self.files.read(f"{LOG}/{name}").splitlines()[1:] if line]


def _number(name: str) -> int:
    return int(name.removesuffix(SUMMARY))


def _path_of(line: str) -> str:
    """The file of a line of the log, spelled as Hadoop's Path has it."""
    parts = urlparse(json.loads(line)["path"])
    return f"{parts.scheme}:{'//' + parts.netloc if parts.netloc else ''}{unquote(parts.path)}"


def _with_partition_types(schema: StructType) -> StructType:
    return StructType(
        [StructField(field.name, PARTITION_TYPES.get(field.name, field.dataType), field.nullable) for field in schema]
    )


def read_tables(spark: SparkSession, folder: str, names: Sequence[str], columns: Sequence[str]) -> DataFrame | None:
    """Return these columns of the tables of a folder that there are, one after the other; None if there is none."""
    tables = [SinkTable(spark, f"{folder}/{name}").read() for name in names]
    found = [rows.select(*columns) for rows in tables if rows is not None]
    return reduce(DataFrame.unionByName, found) if found else None
