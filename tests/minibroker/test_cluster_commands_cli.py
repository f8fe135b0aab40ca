"""`minibroker health`, `apis`, `offsets` and `config lint`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from minibroker.cli.app import main
from minibroker.cli.cluster_commands import health_of, named
from tests.minibroker.conftest import CommandLine

needs_a_broker = [pytest.mark.integration, pytest.mark.slow]


class TestOnABroker:
    pytestmark = needs_a_broker

    def test_a_cluster_that_serves_is_healthy(self, cli: CommandLine) -> None:
        assert cli.out("health").startswith("healthy: 1 broker, ")
        document = cli.document("health")
        assert (document["healthy"], document["controller"], document["brokers"]) == (True, 0, [0])

    def test_apis_are_listed_with_their_versions(self, cli: CommandLine) -> None:
        assert ["1", "Fetch"] in [line[:2] for line in cli.lines("apis")]
        fetch = next(row for row in cli.document("apis") if row["name"] == "Fetch")
        assert fetch["key"] == 1
        assert fetch["min_version"] == 0
        assert fetch["max_version"] >= 8

    def test_offsets_say_where_a_partition_begins_and_ends(self, cli: CommandLine) -> None:
        topic = cli.topic(values=["a", "b", "c"])

        assert cli.lines("offsets", topic) == [["PARTITION", "EARLIEST", "LATEST"], ["0", "0", "3"]]
        assert cli.document("offsets", topic, "--at", "-1") == [
            {"partition": 0, "earliest": 0, "latest": 3, "offset": 2}
        ]
        assert "does not exist; `minibroker topics list`" in cli.complaint("offsets", cli.new("missing"))

    def test_for_who_reads_what_is_committed_a_partition_ends_before_an_open_transaction(
        self, cli: CommandLine
    ) -> None:
        topic = cli.topic(values=["kept"])
        producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": topic})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce(topic, b"open")
        producer.flush()

        assert cli.document("offsets", topic, "--read-committed") == [{"partition": 0, "earliest": 0, "latest": 1}]
        producer.commit_transaction()
        assert cli.document("offsets", topic, "--read-committed") == [{"partition": 0, "earliest": 0, "latest": 3}]


def a_cluster(*, leader: int = 0, isr: int = 2, controller: int = 0) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    partition = {
        "partition_index": 0,
        "leader_id": leader,
        "replica_nodes": [0, 1],
        "isr_nodes": list(range(isr)),
    }
    cluster = {"cluster_id": "c", "controller_id": controller, "brokers": [{"broker_id": 1}, {"broker_id": 0}]}
    return cluster, [{"name": "t", "partitions": [partition]}]


def test_a_cluster_is_healthy_if_it_has_a_controller_and_every_partition_a_leader() -> None:
    leaderless, uncontrolled = health_of(*a_cluster(leader=-1)), health_of(*a_cluster(controller=-1))
    out_of_sync = health_of(*a_cluster(isr=1))

    assert (leaderless["healthy"], leaderless["without_leader"]) == (False, ["t-0"])
    assert (uncontrolled["healthy"], uncontrolled["controller"]) == (False, None)
    assert (out_of_sync["healthy"], out_of_sync["not_in_sync"]) == (True, ["t-0"])


def test_many_partitions_are_named_by_the_first() -> None:
    assert named([f"t-{number}" for number in range(7)]) == "t-0, t-1, t-2, t-3, t-4 and 2 more"


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nlog.retention.mss=1\nnum.io.threads=8\n")
    return path


@pytest.mark.slow
def test_lint_lists_unknown_names_and_settings_without_effect(
    properties: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "lint", str(properties)]) == 0

    out = capsys.readouterr().out
    assert "warning: log.retention.mss is not a setting of Kafka 2.0 (server.properties line 2)" in out
    assert "note: num.io.threads: no effect" in out
    assert out.endswith("server.properties: valid, 1 warning\n")
    assert main(["config", "lint", str(properties), "--strict"]) == 1


@pytest.mark.slow
def test_lint_fails_for_what_keeps_a_broker_from_starting(properties: Path, capsys: pytest.CaptureFixture[str]) -> None:
    properties.write_text("num.partitions=many\nlog.retention.mss=1\nlog.dirs=/one,/two\n")

    assert main(["config", "lint", str(properties), "-o", "json"]) == 1

    findings = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in findings] == ["warning", "error", "error"]
    for finding, name in zip(findings, ["log.retention.mss", "num.partitions", "log.dirs"], strict=True):
        assert name in finding["text"]


@pytest.mark.slow
def test_lint_asks_the_broker_that_is_installed_not_a_folder_of_its_name(
    properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (properties.parent / "minibroker").mkdir()
    (properties.parent / "minibroker" / "__init__.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(properties.parent)

    assert main(["config", "lint", "server.properties"]) == 0


def test_lint_of_a_missing_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "lint", str(tmp_path / "missing")]) == 1

    assert "missing: No such file or directory; name a server.properties" in capsys.readouterr().err
