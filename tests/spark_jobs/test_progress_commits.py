"""The lag of a query: by its fetches, of which the broker knows, and by a group to which its progress goes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("pyspark", reason="pip install -e '.[demo]'")

from kafka.errors import KafkaTimeoutError
from pyspark.sql import SparkSession

from minibroker import Broker
from minibroker.cli.app import main
from minibroker.spark_jobs import progress_commits
from minibroker.spark_jobs.progress_commits import ProgressCommits, commit_progress
from tests.minibroker.records_by_hand import Records

TOPIC = "orders"
ENDED = "the query has not ended in 60 s"


class Session:
    """Stands for a session: what a listener asks of it."""

    def __init__(self, *active: str) -> None:
        self.streams = self
        self.active = [SimpleNamespace(runId=each) for each in active]
        self.listeners: list[Any] = []

    def addListener(self, listener: Any) -> None:
        self.listeners.append(listener)

    def removeListener(self, listener: Any) -> None:
        self.listeners.remove(listener)

    def commits(self, bootstrap: str, **options: Any) -> ProgressCommits:
        return commit_progress(cast(SparkSession, self), bootstrap_servers=bootstrap, **options)


def progress(run: str, name: str | None, **sources: str | None) -> Any:
    """An event: the end offsets by what a source describes itself as."""
    found = [SimpleNamespace(description=key, endOffset=value) for key, value in sources.items()]
    return SimpleNamespace(progress=SimpleNamespace(runId=run, id=f"id-of-{run}", name=name, sources=found))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(control=True) as broker:
        broker.create_topic(TOPIC, partitions=2)
        yield broker


def described(broker: Broker, group: str, capsys: pytest.CaptureFixture[str]) -> Any:
    arguments = ["groups", "describe", group, "-b", broker.bootstrap_servers, "-o", "json"]
    assert main([*arguments, "--control", str(broker.control_path)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.integration
@pytest.mark.slow
def test_the_newest_offsets_of_all_kafka_sources_go_to_the_group(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session("b", "c")
    with session.commits(broker.bootstrap_servers) as commits:
        [listener] = session.listeners
        for run, name in (("a", "sums"), ("b", None), ("c", "later")):
            listener.onQueryStarted(SimpleNamespace(runId=run, id=f"id-of-{run}", name=name))
        listener.onQueryProgress(progress("a", "sums", KafkaV2=json.dumps({TOPIC: {"0": 3}}), Rate="7"))
        listener.onQueryProgress(progress("a", "sums", KafkaV2=json.dumps({TOPIC: {"0": 4, "1": 1}})))
        listener.onQueryProgress(progress("b", None, KafkaV2=json.dumps({TOPIC: {"1": 2}})))
        listener.onQueryProgress(progress("c", "later", KafkaV2=None))
        listener.onQueryIdle(SimpleNamespace(runId="a"))
        listener.onQueryIdle(SimpleNamespace(runId="c"))
        listener.onQueryTerminated(SimpleNamespace(runId="a"))
    assert session.listeners == []
    assert not commits._thread.is_alive()

    committed = {
        group: {row["partition"]: row["committed"] for row in described(broker, group, capsys)["partitions"]}
        for group in ("sums", "id-of-b")
    }
    assert committed == {"sums": {0: 4, 1: 1}, "id-of-b": {1: 2}}


def test_only_the_query_that_is_named_is_committed() -> None:
    session = Session()
    with session.commits("127.0.0.1:9", query="mine", group="ours") as commits:
        commits.onQueryProgress(progress("a", "other", KafkaV2=json.dumps({TOPIC: {"0": 3}})))

        assert (commits._groups, commits._newest) == ({}, {})


def test_a_commit_that_fails_is_logged_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(**settings: object) -> None:  # kafka-python's own leaves its sockets open then
        raise KafkaTimeoutError

    monkeypatch.setattr(progress_commits, "KafkaAdminClient", unreachable)
    with (
        caplog.at_level(logging.WARNING, "minibroker.spark_jobs.progress_commits"),
        Session().commits("127.0.0.1:9") as commits,
    ):
        commits.onQueryProgress(progress("a", "sums", KafkaV2=json.dumps({TOPIC: {"0": 3}})))
        commits.onQueryTerminated(cast(Any, SimpleNamespace(runId="a")))

    assert "the progress of a query is not committed to group sums" in caplog.text


@pytest.mark.spark
def test_the_lag_of_a_query_falls_as_it_reads(
    broker: Broker, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its group has the lag of its progress, and the consumers of its source that of their fetches."""

    def read_all() -> None:
        with commit_progress(spark, bootstrap_servers=broker.bootstrap_servers):
            query = (
                spark.readStream.format("kafka")
                .option("kafka.bootstrap.servers", broker.bootstrap_servers)
                .option("subscribe", TOPIC)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", 300)
                .option("groupIdPrefix", "invoices-source")
                .load()
                .writeStream.queryName("invoices")
                .format("noop")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(60), ENDED

    def write(records: int) -> None:
        for partition in range(2):
            Records(broker.bootstrap_servers).write(TOPIC, ["an order"] * records, partition=partition)

    def fetching() -> dict[str, int]:
        """The lag of each group of the source."""
        assert main(["groups", "list", "-b", broker.bootstrap_servers, "-o", "json", *control]) == 0
        rows = json.loads(capsys.readouterr().out)
        names = [each["group"] for each in rows if each["state"] == "fetches only"]
        return {name: described(broker, name, capsys)["lag"] for name in names if name.startswith("invoices-source-")}

    control = ["--control", str(broker.control_path)]
    write(500)
    read_all()
    assert described(broker, "invoices", capsys)["lag"] == 0
    assert list(fetching().values()) == [0]

    write(20)
    assert described(broker, "invoices", capsys)["lag"] == 40
    assert list(fetching().values()) == [40]

    read_all()
    assert described(broker, "invoices", capsys)["lag"] == 0
    assert sorted(fetching().values()) == [0, 40]  # the source has another group in each run
