"""`python -m tests.spark_jobs.nemesis`: rounds of the archive job while broker, worker and driver are killed.

In each round producers send records in transactions, a third of them aborted, and the job archives what is committed.
In the end the archive must have each committed record once, and no other: by the job `verify`, and by counting files
and what the producers know. A round prints its seed and what is drawn from it; a failing one keeps its directory.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from minibroker import Broker, Cluster
from minibroker.spark_jobs import verify
from minibroker.spark_jobs.session import spark_session
from tests.jvm import CLASSES, QUICK_JVM
from tests.nemesis.__main__ import logging_to
from tests.nemesis.rounds import defects
from tests.spark_jobs.standalone import StandaloneCluster
from tests.spark_jobs.transactions import ABORTED, COMMITTED, Place, Transactors, ends_of, miscounted, read_committed

ONE, CLUSTER = KINDS = ("one", "cluster")
BROKER, DRIVER, WORKER = VICTIMS = ("broker", "driver", "worker")
TOPIC = "transacted"
PROGRESS_SECONDS = 60.0
FINISH_SECONDS = 600.0
POLL_SECONDS = 0.05
RECORDS = 50_000
SHOWN = 20


class Fault(NamedTuple):
    """Kill one of these, so long after so many more micro-batches; a broker starts again after `down_seconds`."""

    victim: str
    which: int
    batches: int
    seconds: float
    down_seconds: float

    def __str__(self) -> str:
        down = f", down for {self.down_seconds:.2f} s" if self.victim == BROKER else ""
        return f"{self.seconds:.2f} s after {self.batches} batches: {self.victim} {self.which}{down}"


class Plan(NamedTuple):
    """One round; without workers Spark is in the driver."""

    seed: int
    kind: str
    workers: int
    records: int
    partitions: int
    producers: int
    records_at_a_time: int
    segment_bytes: int
    decodes: bool
    compacts: bool
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        drawn = {name: value for name, value in self._asdict().items() if name != "faults"}
        return "\n".join(
            [" ".join(f"{name}={value}" for name, value in drawn.items()), *map("  {}".format, self.faults)]
        )


def draw(seed: int, *, kind: str, records: int, workers: int) -> Plan:
    """Draw a round; the same one for the same arguments."""
    source = random.Random(f"{seed} {kind} {records} {workers}")
    victims = [BROKER, DRIVER, *([WORKER] if workers else [])]
    drawn = victims + source.choices(victims, k=source.randint(1, 3))
    source.shuffle(drawn)
    return Plan(
        seed,
        kind,
        workers,
        records,
        partitions=source.randint(1, 4),
        producers=source.randint(1, 3),
        records_at_a_time=records // source.randint(8, 30),
        segment_bytes=source.choice((100_000, 1_000_000, 1 << 30)),
        decodes=source.random() < 0.5,
        compacts=source.random() < 0.5,
        faults=tuple(
            Fault(
                victim,
                which=source.randrange(3 if victim == BROKER and kind == CLUSTER else 1),
                batches=source.choice((0, 1, 1, 2, 3)),
                seconds=source.uniform(0, 2),
                down_seconds=source.choice((0.0, source.uniform(0, 4))),
            )
            for victim in drawn
        ),
    )


class Driver:
    """The archive job as a process, which can be killed and started again."""

    def __init__(self, plan: Plan, folder: Path, *, bootstrap_servers: str, master: str) -> None:
        self.output = folder / "archive"
        self._folder = folder
        self.arguments = ["--json", "--continuous", "0.2", "--master", master, "--output", str(self.output)]
        self.arguments += ["-b", bootstrap_servers, "--subscribe", TOPIC, "--isolation-level", "read_committed"]
        self.arguments += ["--max-offsets-per-trigger", str(plan.records_at_a_time)]
        for setting in (f"extraJavaOptions={' '.join(QUICK_JVM)}", "memory=512m"):
            self.arguments += ["--spark-config", f"spark.executor.{setting}"]
        if plan.decodes:
            (schema := folder / "schema").write_text("`by` string, transaction int, record int")
            self.arguments += ["--value-format", "json", "--schema", str(schema)]
        if plan.compacts:
            self.arguments += ["--compact-below", "1m", "--keep-replaced-hours", "0"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "driver.out").open("ab") as output, (self._folder / "driver.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "minibroker.spark_jobs.archive", *self.arguments],
                stdout=output,
                stderr=errors,
                cwd=self._folder,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it with its JVM (SIGKILL)."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def stop(self, seconds: float) -> None:
        """End it in order. Raises RuntimeError."""
        assert self._process is not None
        self.check()
        self._process.terminate()
        if (status := self._process.wait(seconds)) != 128 + signal.SIGTERM:
            raise RuntimeError(f"the driver ended with {status}: {self._last_errors()}")

    def check(self) -> None:
        """Raises RuntimeError if it has ended by itself."""
        assert self._process is not None
        if (status := self._process.poll()) is not None:
            raise RuntimeError(f"the driver ended by itself, with {status}: {self._last_errors()}")

    def batches(self) -> int:
        """Return how many micro-batches are done."""
        return 1 + max(map(int, self._noted("commits")), default=-1)

    def reached(self) -> dict[int, int]:
        """Return the end of the last micro-batch that is done, by partition."""
        if not (done := self.batches()):
            return {}
        offsets = (self.output / "_checkpoint" / "offsets" / str(done - 1)).read_text().splitlines()[-1]
        return {int(partition): offset for partition, offset in json.loads(offsets)[TOPIC].items()}

    def _noted(self, kind: str) -> list[str]:
        folder = self.output / "_checkpoint" / kind
        return [name for name in os.listdir(folder) if name.isdigit()] if folder.exists() else []

    def _last_errors(self) -> str:
        return (self._folder / "driver.err").read_text()[-3000:]


class Round:
    """A round in a directory; `spark` is the session that verifies in the end."""

    def __init__(
        self, plan: Plan, folder: Path, spark: SparkSession, *, driver_of: Callable[..., Driver] = Driver
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._spark = spark
        self._driver_of = driver_of
        self._began = time.monotonic()

    def run(self) -> list[str]:
        """Return what is wrong."""
        plan, folder = self._plan, self._folder
        with ExitStack() as stack:
            self._events = stack.enter_context((folder / "events.log").open("w", buffering=1))
            stack.enter_context(logging_to(folder / "clients.log"))
            settings = {"log.segment.bytes": plan.segment_bytes}
            if plan.kind == CLUSTER:
                cluster = stack.enter_context(
                    Cluster(3, settings={**settings, "min.insync.replicas": 2}, log_prefix=folder / "broker")
                )
                cluster.create_topic(TOPIC, partitions=plan.partitions)
                self._brokers, address = cluster.brokers, cluster.bootstrap_servers
            else:
                broker = stack.enter_context(Broker(settings=settings, log_file=folder / "broker.log"))
                broker.create_topic(TOPIC, partitions=plan.partitions)
                self._brokers, address = [broker], broker.bootstrap_servers
            self._workers = master = None
            if plan.workers:
                self._workers = stack.enter_context(StandaloneCluster(folder, workers=plan.workers))
                master = self._workers.master_url
            self._driver = self._driver_of(plan, folder, bootstrap_servers=address, master=master or "local[2]")
            stack.callback(self._driver.kill)
            sending = Transactors(
                address,
                TOPIC,
                seed=plan.seed,
                partitions=plan.partitions,
                producers=plan.producers,
                records=plan.records,
            )
            sending.start()
            self._driver.start()
            for fault in plan.faults:
                sending.release(plan.records // (1 + len(plan.faults)))
                self._strike(fault)
            wrong = sending.finish(FINISH_SECONDS)
            ends = ends_of(address, TOPIC, plan.partitions)
            self._note(f"all is sent: {ends}")
            if not self._until(lambda: self._driver.reached() == ends, FINISH_SECONDS):
                wrong.append(f"the driver came to {self._driver.reached()} of {ends} in {FINISH_SECONDS:g} s")
            self._driver.stop(PROGRESS_SECONDS)
            self._note("all is archived")
            wrong += verified(self._spark, address, self._driver.output)
            read = read_committed(address, TOPIC, ends, FINISH_SECONDS)
            wrong += defects([each.log_file for each in self._brokers])
            found = archived(self._driver.output)
            if sorted(found) != sorted(read):
                wrong.append(f"{len(found)} records are archived, {len(read)} read: {different(found, read)}")
            wrong += miscounted(sending.sent, (each.value for each in found))
            ended = [each.end for each in sending.sent]
            self._note(f"{len(found)} archived, {ended.count(COMMITTED)} committed, {ended.count(ABORTED)} aborted")
            if not found or ABORTED not in ended:
                wrong.append("nothing was archived, or nothing aborted")
            return wrong[:SHOWN]

    def _strike(self, fault: Fault) -> None:
        wanted = self._driver.batches() + fault.batches
        if not self._until(lambda: self._driver.batches() >= wanted, PROGRESS_SECONDS):
            self._note(f"{self._driver.batches()} batches are done, not {wanted}")
        time.sleep(fault.seconds)
        self._note(str(fault))
        if fault.victim == BROKER:
            broker = self._brokers[fault.which]
            broker.kill()
            time.sleep(fault.down_seconds)
            broker.start()
        elif fault.victim == DRIVER:
            self._driver.kill()
            self._driver.start()
        else:
            assert self._workers is not None
            self._workers.kill_worker()
            self._workers.start_worker()

    def _until(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is so; return whether it was in that time. Raises RuntimeError if the driver ends meanwhile."""
        deadline = time.monotonic() + seconds
        while not is_so():
            self._driver.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _note(self, text: str) -> None:
        self._events.write(f"{time.monotonic() - self._began:.3f} {text}\n")


def verified(spark: SparkSession, bootstrap_servers: str, output: Path) -> list[str]:
    """Compare the topic with the archive by the job `verify`; return what is wrong."""
    command_line = ["-b", bootstrap_servers, "--subscribe", TOPIC, "--isolation-level", "read_committed"]
    arguments = verify.options().parse_args([*command_line, "--against-archive", str(output)])
    with redirect_stdout(io.StringIO()) as said:
        status = verify.run(spark, arguments, threading.Event())
    return [f"verify: {said.getvalue()}"] if status else []


def archived(output: Path) -> list[Place]:
    """Read the files that the sinks' logs list, without Spark."""
    found: list[Place] = []
    for name in ("records", "quarantine"):
        for file in committed_files(output / name):
            columns = pq.read_table(file, columns=list(Place._fields), partitioning=None).to_pydict()
            found += map(Place, *(columns[field] for field in Place._fields))
    return found


def committed_files(table: Path) -> list[str]:
    """Return the files of a table that count: those of the log's last summary, and of the batches after it."""
    log = {int(name.removesuffix(".compact")): name for name in os.listdir(table / "_spark_metadata") if name[0] != "."}
    summaries = [number for number, name in log.items() if name.endswith(".compact")]
    counted = [log[number] for number in log if number >= max(summaries, default=0)]
    lines = [line for name in counted for line in (table / "_spark_metadata" / name).read_text().splitlines()[1:]]
    return [unquote(urlparse(json.loads(line)["path"]).path) for line in lines if line]


def different(archived: Sequence[Place], read: Sequence[Place]) -> str:
    """Show what only one of both has, or what the archive has twice."""
    missing, extra = (sorted(a - b)[:3] for a, b in ((set(read), set(archived)), (set(archived), set(read))))
    return f"missing {missing}, extra {extra}, {len(archived) - len(set(archived))} again"


def judged_round(plan: Plan, spark: SparkSession) -> list[str]:
    """Run a round, and print and return what is wrong."""
    print(plan, flush=True)
    folder = Path(tempfile.mkdtemp(prefix=f"spark-nemesis-{plan.seed}-"))
    began = time.monotonic()
    try:
        wrong = Round(plan, folder, spark).run()
    except Exception:
        wrong = [traceback.format_exc()]
    events = (folder / "events.log").read_text().splitlines() or ["nothing happened"]
    print(f"  {'FAILED' if wrong else 'ok'} in {time.monotonic() - began:.0f} s; {events[-1]}", flush=True)
    if wrong:
        print("\n".join(f"  {each}" for each in wrong), f"  kept: {folder}", sep="\n", flush=True)
    else:
        shutil.rmtree(folder)
    return wrong


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m tests.spark_jobs.nemesis", description=(__doc__ or "").split("\n")[0])
    cli.add_argument("--rounds", type=int, default=4, help="how many (4)")
    cli.add_argument("--seed", type=int, default=int(time.time()), help="of the first round; the next has one more")
    cli.add_argument("--records", type=int, default=RECORDS, help=f"sent in a round ({RECORDS:,})")
    cli.add_argument("--kind", choices=KINDS, help="one broker, or a cluster of three; each in turn, unless given")
    cli.add_argument("--workers", type=int, default=2, help="of the Spark cluster (2); 0 for local[2]")
    asked = cli.parse_args()
    for classes in CLASSES.values():
        os.environ.setdefault(classes.variable, classes.options)
    spark = spark_session("nemesis", master="local[2]")
    failed = []
    for seed in range(asked.seed, asked.seed + asked.rounds):
        plan = draw(seed, kind=asked.kind or KINDS[seed % 2], records=asked.records, workers=asked.workers)
        if judged_round(plan, spark):
            failed.append(seed)
    spark.stop()
    print(f"{asked.rounds - len(failed)} of {asked.rounds} rounds without findings; failed: {failed or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
