"""Jobs on a Spark cluster of processes: one through the loss of a worker, of its driver and of the broker, and all."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka.admin import AdminClient

from minibroker import Broker
from minibroker.demo import result
from minibroker.spark_jobs import flight_delays
from tests.jvm import QUICK_JVM
from tests.spark_jobs.conftest import Kafka
from tests.spark_jobs.january import Job, send_january
from tests.spark_jobs.standalone import HOST, StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(900)]

RECORDS_AT_A_TIME = 2000  # of which it takes some fourteen


SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SPARK_JOBS = Path(flight_delays.__file__).parent
EXECUTOR = ("spark.executor.memory=512m", f"spark.executor.extraJavaOptions={' '.join(QUICK_JVM)}")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def start(job: Job, cluster: StandaloneCluster, event_log: Path) -> subprocess.Popen[str]:
    options = ["--master", cluster.master_url, "--event-log", str(event_log)]
    options += [word for setting in EXECUTOR for word in ("--spark-config", setting)]
    return job.start(limit=RECORDS_AT_A_TIME, options=options)


def read_until(process: subprocess.Popen[str], batches: int) -> None:
    """Read what the job says until so many batches more are done; it must not end before."""
    assert process.stdout is not None
    done = (facts for line in process.stdout if "batch" in (facts := json.loads(line)))
    assert len(list(itertools.islice(done, batches))) == batches
    assert process.poll() is None


def test_the_loss_of_a_worker_the_driver_and_the_broker_leaves_the_result_of_one_run(
    broker: Broker, tmp_path: Path, jars: list[Path]
) -> None:
    kafka = Kafka(
        broker.bootstrap_servers, AdminClient({"bootstrap.servers": broker.bootstrap_servers}), itertools.count()
    )
    january = send_january(kafka)
    job = Job(tmp_path, kafka.bootstrap, january.topic)
    with StandaloneCluster(tmp_path, workers=2) as cluster:
        process = start(job, cluster, tmp_path / "events")
        read_until(process, 2)
        cluster.kill_worker()
        read_until(process, 2)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

        process = start(job, cluster, tmp_path / "events")
        read_until(process, 1)
        broker.kill()
        broker.start()
        batches = job.finish(process)

        assert sum(batch["too_late"] + batch["unreadable"] for batch in batches) == 0
        result.check(result.read(job.output), january.expected)
        names = [application["name"] for application in applications(cluster.start_history_server(tmp_path / "events"))]
        assert names == ["delays", "delays"]


class OnACluster:
    """Runs jobs by their names on a cluster, each to its end; `by_submit` by spark-submit."""

    def __init__(self, cluster: StandaloneCluster, broker: Broker, jars: list[Path], *, by_submit: bool) -> None:
        self._options = ["-b", broker.bootstrap_servers, "--json"]
        self._submit: list[str] = []
        if by_submit:
            self._submit = [str(SPARK_SUBMIT), "--master", cluster.master_url]
            self._submit += [word for each in EXECUTOR for word in ("--conf", each)]
            self._submit += ["--jars", ",".join(map(str, jars))]
        else:
            self._options += ["--master", cluster.master_url]
            self._options += [word for each in EXECUTOR for word in ("--spark-config", each)]

    def __call__(self, job: str, *options: str) -> list[dict[str, Any]]:
        """Return what it printed."""
        started = [*self._submit, str(SPARK_JOBS / f"{job}.py")]
        if not self._submit:
            started = [sys.executable, "-m", f"minibroker.spark_jobs.{job}"]
        environment = os.environ | {"SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            [*started, *self._options, *options], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("by_submit", [False, True], ids=["python -m", "spark-submit"])
def test_each_job_runs_unchanged_on_a_cluster(
    by_submit: bool, broker: Broker, tmp_path: Path, jars: list[Path]
) -> None:
    readings = [json.dumps({"sensor": f"s{at % 3}", "celsius": 70 + at % 20}) for at in range(3000)]
    broker.create_topic("readings", partitions=2)
    broker.produce("readings", readings)
    for topic in ("again", "alerts"):
        broker.create_topic(topic, partitions=2)
    fetch = {"replica_id": -1, "partitions": [{"topic": "orders", "partition": 0, "bytes": 9, "high_watermark": 7}]}
    broker.produce("telemetry", [json.dumps({"client_id": "c-1", "us": {"sent": 4}, "fetch": fetch})] * 20)
    archive, source = str(tmp_path / "archive"), ("--subscribe", "readings")
    rule = ["--schema", "sensor STRING, celsius INT", "--rule", "celsius >= 80", "--times", "10", "--by", "sensor"]

    with StandaloneCluster(tmp_path, workers=2) as cluster:
        run = OnACluster(cluster, broker, jars, by_submit=by_submit)
        assert run("archive", *source, "--output", archive)[-1]["archived"] == len(readings)
        assert run("verify", *source, "--against-archive", archive)[-1]["same"] == len(readings)
        assert run("replay", "--archive", archive, "--topic", "again")[-1]["sent"] == len(readings)
        committed = ("--against-topic", "again", "--isolation-level", "read_committed")
        assert run("verify", *source, *committed)[-1]["same"] == len(readings)
        checkpoint, more = ("--checkpoint", str(tmp_path / "alerts")), ("--starting-offsets", "earliest")
        run("alerts", *source, *rule, "--topic", "alerts", "--available-now", *checkpoint, *more)
        places = ("--output", str(tmp_path / "telemetry"), "--checkpoint", str(tmp_path / "telemetry-at"))
        told = run("telemetry", "--subscribe", "telemetry", *places)

    assert len(broker.records("alerts")) == len(readings) // 2 // 10
    (readers,) = (line["readers"] for line in told if "readers" in line)
    assert [(reader["reader"], reader["fetches"]) for reader in readers] == [("c", 20)]


def applications(history_server: str) -> Any:
    with urllib.request.urlopen(f"{history_server}/api/v1/applications", timeout=30) as answer:
        return json.load(answer)
