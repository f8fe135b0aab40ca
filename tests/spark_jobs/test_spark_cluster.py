"""The flight job on a Spark cluster of processes: it survives the loss of a worker, of its driver and of the broker."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from minibroker import Broker
from minibroker.demo import result
from tests.jvm import QUICK_JVM
from tests.spark_jobs.conftest import Kafka
from tests.spark_jobs.january import Job, send_january
from tests.spark_jobs.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(600)]

RECORDS_AT_A_TIME = 2000  # of which it takes some fourteen


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def start(job: Job, cluster: StandaloneCluster, event_log: Path) -> subprocess.Popen[str]:
    settings = {"spark.executor.memory": "512m", "spark.executor.extraJavaOptions": " ".join(QUICK_JVM)}
    options = ["--master", cluster.master_url, "--event-log", str(event_log)]
    options += [word for pair in settings.items() for word in ("--spark-config", "=".join(pair))]
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


def applications(history_server: str) -> Any:
    with urllib.request.urlopen(f"{history_server}/api/v1/applications", timeout=30) as answer:
        return json.load(answer)
