"""`minibroker cluster ...` on a cluster that `minibroker serve --brokers 3` runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.administration import connected, create_topic
from minibroker.cli.app import main
from minibroker.served_cluster import ServedCluster

READY_SECONDS = 30.0
POLL_SECONDS = 0.01


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a cluster with the topic t, of one partition, that broker 1 leads."""
    directory = tmp_path_factory.mktemp("served")
    ready = directory / "ready"
    command = [sys.executable, "-P", "-m", "minibroker", "serve", "--parent-pid", str(os.getpid()), "--brokers", "3"]
    command += ["--listen", "127.0.0.1:0", "--data-dir", str(directory), "--ready-file", str(ready)]
    command += ["--set", "auto.leader.rebalance.enable=false"]
    serving = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not ready.exists():
            assert serving.poll() is None, "serve has ended"
            assert time.monotonic() < deadline, "serve is not ready"
            time.sleep(POLL_SECONDS)
        cluster = ServedCluster(directory)
        addresses = {row["broker_id"]: row["address"] for row in cluster.brokers()}
        with connected(addresses[cluster.controller]) as connection:
            create_topic(connection, "t", partitions=1, num_partitions=1, replication_factor=3, configs={})
        cluster.until_isr("t", 0, {1, 2, 3})
        cluster.move_leader("t", 0, 1)
        yield directory
    finally:
        serving.terminate()
        serving.wait()


def test_each_command_does_its_verb_or_names_the_next_step(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, status, expected in (
        ("move-leader t 2", 0, "leads t-0: broker 2"),
        ("move-leader t 9", 1, "has no replica of t-0; its replicas: "),
        ("move-coordinator billing 3", 0, "coordinates billing: broker 3"),
        ("shrink-isr t 1", 0, "out of sync in t-0: broker 1"),
        ("release 1", 0, "released: broker 1"),
        ("hold 1 --topic t", 0, "held: broker 1"),
        ("hold 1 --partition 0", 1, "a partition is one of a topic; name the topic"),
        ("lag 3 --records 5", 0, "lags: broker 3"),
        ("lag 3", 2, "a follower lags by --records or by --seconds; `minibroker cluster hold` stops it"),
        ("release", 0, "released: all brokers"),
        ("isolate 1 2 --direction to", 0, "isolated: broker 1 and broker 2"),
        ("isolate 1 2 --direction up", 2, "'up' is not one of 'both', 'to', 'from'"),
        ("heal", 0, "healed: all brokers reach each other"),
        ("advance 3", 0, "advanced: 3 s"),
        ("kill 2", 0, "killed: broker 2"),
        ("kill 2", 1, "minibroker: broker 2 is dead already"),
        ("kill 4", 1, "there is no broker 4; the ids are 1 to 3"),
        ("hold 2", 1, "broker 2 cannot be asked: it does not run, or is paused; those that can: 1, 3"),
        ("start 2", 0, "started: broker 2"),
        ("start 2", 1, "broker 2 runs already; stop or kill it first"),
        ("pause 3", 0, "paused: broker 3"),
        ("resume 3", 0, "resumed: broker 3"),
        ("stop 3", 0, "stopped: broker 3"),
        ("start 3", 0, "started: broker 3"),
        ("move-controller", 0, "controls: broker "),
        ("elect-unclean t", 1, "kill it first, or name the broker that is to lead"),
        ("status none", 1, "topic none does not exist; `minibroker topics list` shows them all"),
    ):
        found = main(["cluster", *line.split(), "--data-dir", str(data_dir)])
        printed = capsys.readouterr()
        assert (found, expected in (printed.err if status else printed.out)) == (status, True), (line, printed)
        assert len((printed.out + printed.err).splitlines()) == 1, line


def test_the_status_shows_brokers_and_the_replicas_of_a_topic(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ServedCluster(data_dir)
    cluster.until_isr("t", 0, {1, 2, 3})
    cluster.change("kill", 2)
    leader = cluster.until_leader("t", not_=2)

    def status(*words: str) -> str:
        assert main(["cluster", "status", *words, "--data-dir", str(data_dir)]) == 0
        return capsys.readouterr().out

    head, *rows = status().splitlines()
    assert head.split() == ["BROKER", "ADDRESS", "RACK", "STATE", "CONTROLLER"]
    assert [row.split()[::2][:2] for row in rows] == [["1", "running"], ["2", "ended"], ["3", "running"]]
    brokers = json.loads(status("-o", "json"))
    assert [(row["broker_id"], row["is_alive"]) for row in brokers] == [(1, True), (2, False), (3, True)]
    assert sum(row["is_controller"] for row in brokers) == 1
    replicas = json.loads(status("t", "-o", "json"))
    assert {row["broker_id"]: row["role"] for row in replicas} == {leader: "leader", 4 - leader: "follower"}
    assert "HIGH WATERMARK" in status("t")
    cluster.change("start", 2)


def test_a_directory_without_a_cluster_is_an_error_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "status", "--data-dir", str(tmp_path)]) == 1
    assert f"start one with `minibroker serve --brokers 3 --data-dir {tmp_path}`" in capsys.readouterr().err
