"""JVMs that live for a minute, in half of the CPU time: options, and archives of classes.

Most of that time goes into compiling, and into reading and verifying classes. `python tests/setup_clients.py` has the
classes archived that Spark, Apache Kafka 2.0.1 and the newest Java client load; the JVMs that tests start map them into
memory. A JVM without an archive, or with one that no longer fits, loads the classes itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.apache_kafka import JVM_VARIABLE, kafka_folder
from benchmarks.processes import ROOT
from tests.setup_clients import NEWEST_JAVA_CLIENT, java_drivers, locked

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JAVA_CLIENT_VARIABLE = "MINIBROKER_TEST_JAVA_CLIENT"
ARCHIVE_SECONDS = 60.0
# What jobs use: a stream, windows of event time with their state, JSON, Parquet.
SPARK_JOB = """
import sys
from pyspark.sql import functions as F
from minibroker.spark_jobs.session import spark_session

folder = sys.argv[1]
spark = spark_session("classes")
at = F.to_json(F.struct(F.timestamp_seconds("id").alias("at")))
spark.range(1000).select(at.alias("value")).write.text(f"{folder}/in")
rows = spark.readStream.text(f"{folder}/in").select(F.from_json("value", "at timestamp").alias("row")).select("row.at")
counts = rows.withWatermark("at", "1 minute").groupBy(F.window("at", "1 minute")).count()
writer = counts.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
writer.trigger(availableNow=True).start(f"{folder}/out").awaitTermination()
print(len(spark.read.parquet(f"{folder}/out").collect()), "windows")
spark.stop()
"""
KAFKA_BROKER = """
import sys
from pathlib import Path
from benchmarks.apache_kafka import ApacheKafka, kafka_jars

ApacheKafka(kafka_jars(), Path(sys.argv[1])).start().stop()
"""
JAVA_CLIENT = """
import sys
from pathlib import Path
from minibroker import Broker
from tests.integration.clients import CLIENTS, Client
from tests.integration.records import numbered

with Broker() as broker, Path(sys.argv[1], "log").open("wb") as log:
    broker.create_topic("classes")
    driver = Client(CLIENTS["java-3.9"], broker.bootstrap_servers, log)
    driver.produce("classes", numbered(5), codec="gzip")
    driver.consume("classes", 5)
    driver.watermarks("classes")
    driver.end()
"""


@dataclass(frozen=True, slots=True)
class Classes:
    """The classes of these jars, which JVMs load that take options from an environment variable."""

    jars: Path
    variable: str
    program: str  # starts such a JVM, which loads what tests need

    @property
    def options(self) -> str:
        """The options of a JVM that a test starts."""
        archive = self._archive()
        if archive is None or not archive.is_file():
            return " ".join(QUICK_JVM)
        # Without its log: it says on standard output that an archive does not fit.
        return " ".join((*QUICK_JVM, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"))

    def prepare(self) -> Path:
        """Return their archive, which is made if it is missing. Raises RuntimeError."""
        archive = self._archive()
        if archive is None:
            raise RuntimeError(f"no jars in {self.jars}, no Java with a release file, or a path with a space")
        with locked(archive):
            if not archive.is_file():
                self._make(archive)
        return archive

    def _archive(self) -> Path | None:
        """The archive's path: beside the jars, since it fits no others, and named after the Java that makes it.

        None without jars or a Java that names its release, and where a space in the path would end an option.
        """
        release = Path(shutil.which("java") or "java").resolve().parents[1] / "release"
        if not (self.jars.is_dir() and release.is_file()) or " " in str(self.jars):
            return None
        return self.jars / f"classes-{hashlib.sha256(release.read_bytes()).hexdigest()[:12]}.jsa"

    def _make(self, archive: Path) -> None:
        arriving = archive.with_suffix(".partial")
        options = " ".join((*QUICK_JVM, f"-XX:ArchiveClassesAtExit={arriving}", "-Xlog:disable"))
        with tempfile.TemporaryDirectory() as folder:
            status, errors = run_for(
                ARCHIVE_SECONDS,
                [sys.executable, "-c", self.program, folder],
                os.environ | {self.variable: options},
            )
        if status or not arriving.is_file():
            raise RuntimeError(errors.strip().rpartition("\n")[2] or "this Java archives no classes")
        arriving.rename(archive)


def run_for(seconds: float, command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """The status of a command, and its errors. Raises RuntimeError after that time, when it and its JVM are killed."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    ) as process:
        try:
            _, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not done in {seconds:.0f} s") from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, errors


def spark_jars() -> Path:
    """The folder of Spark's jars, or where it would be."""
    pyspark = find_spec("pyspark")
    folder = Path("pyspark") if pyspark is None or pyspark.origin is None else Path(pyspark.origin).parent
    return folder / "jars"


CLASSES = {
    "Spark": Classes(spark_jars(), "SPARK_SUBMIT_OPTS", SPARK_JOB),
    "Apache Kafka": Classes(kafka_folder(), JVM_VARIABLE, KAFKA_BROKER),
    "Java client": Classes(java_drivers(NEWEST_JAVA_CLIENT), JAVA_CLIENT_VARIABLE, JAVA_CLIENT),
}
