"""docker-compose.yml and docs/recipes/compose.md, run for real: the recipe's blocks as they are printed.

The stack is a project of its own, on a free port and with two weeks of flights, so that it touches no other.
Where there is no Docker Engine the tests skip; `.ci/run` sets one up on a Debian machine when it may.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient

from benchmarks.processes import ROOT, free_port
from tests.integration.librdkafka import values_in
from tests.integration.members import wait_until

pytestmark = pytest.mark.timeout(600)  # of which building the images from nothing takes 60 to 120 s

RECIPE = ROOT / "docs" / "recipes" / "compose.md"
BLOCK = re.compile(r"^## (?P<title>.*)$(?:(?!^## |^```)[\s\S])*^```(?P<language>\w+)\n(?P<text>[\s\S]*?)^```$", re.M)
IMAGES = ("minibroker", "minibroker-spark")
BASE_IMAGE = "python:3.11-slim-bookworm"
BROKER_LAYERS_MAX_BYTES = 120_000_000
COPIED = "report:/var/lib/delays/."
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
FLIGHT_DAYS = 14
FLIGHTS = 12_208  # of the first two weeks of 2013
SECONDS = 60


class Stack:
    """The project, and how to do to it what the recipe says."""

    def __init__(self) -> None:
        self.port = free_port()
        self.blocks = {
            match["title"]: (match["language"], match["text"]) for match in BLOCK.finditer(RECIPE.read_text())
        }
        self.environment = os.environ | {
            "COMPOSE_PROJECT_NAME": f"minibroker-test-{os.getpid()}",
            "HOST_PORT": str(self.port),
            "FLIGHT_DAYS": str(FLIGHT_DAYS),
        }

        self.progress = ""  # what was said on standard error by the last command
        self.progress_of_up = ""

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    def follow(self, title: str, *, out: Path = ROOT / "out") -> str:
        """Run a block of the recipe, whose `out` is that folder; what it printed."""
        language, text = self.blocks[title]
        text = re.sub(r"\bout\b", shlex.quote(str(out)), text.replace("localhost:9092", self.bootstrap))
        command = ["bash", "-e", "-c", text] if language == "sh" else [sys.executable, "-W", "error", "-c", text]
        return self.run(*command)

    def compose(self, *arguments: str) -> str:
        return self.run("docker", "compose", *arguments)

    def run(self, *command: str) -> str:
        done = subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=540, check=False
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        self.progress = done.stderr
        return done.stdout

    def in_container(self, program: str) -> str:
        """Run a Python program in a container of its own; return what it printed."""
        run = ("run", "--rm", "--no-deps", "-T", "replay", "python", "-c")
        return self.compose(*run, textwrap.dedent(program))

    def image(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("docker", "image", "inspect", name))[0]
        return found

    def state(self, service: str) -> dict[str, Any]:
        """The container's state, as Docker tells it."""
        identity = self.compose("ps", "--all", "--quiet", service).strip()
        state: dict[str, Any] = json.loads(self.run("docker", "inspect", identity))[0]["State"]
        return state


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """The recipe's stack, up as the recipe says, and down with the last test."""
    for command in (["docker", "version"], ["docker", "compose", "version"]):
        require(command)
    made = Stack()
    try:
        made.follow("Up")
        made.progress_of_up = made.progress
        yield made
    finally:
        made.follow("Down")


def require(command: list[str]) -> None:
    """Skip where the command is not there or does not answer."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except FileNotFoundError:
        pytest.skip("docker is not installed; .ci/setup-containers installs it on Debian 12, as root")
    if answer.returncode:
        reason = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        pytest.skip(f"`{' '.join(command)}`: {reason}; .ci/setup-containers sets an Engine up on Debian 12, as root")


def test_everything_starts_in_order_and_spark_counts_the_flights(stack: Stack) -> None:
    progress = stack.progress_of_up
    states = {service: stack.state(service) for service in ("broker", "replay", "spark", "report")}

    assert states["broker"]["Health"]["Status"] == "healthy"
    moments = ("broker-1  Healthy", "replay-1  Starting", "replay-1  Exited", "spark-1  Starting", "spark-1  Exited")
    places = [progress.index(moment) for moment in (*moments, "report-1  Starting")]
    assert places == sorted(places), progress
    assert [states[service]["ExitCode"] for service in ("replay", "spark", "report")] == [0, 0, 0]
    assert f"{FLIGHTS:,} flights: none lost, none counted twice." in stack.compose("logs", "report")


def test_the_picture_and_the_parquet_files_are_copied_out(stack: Stack, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install -e '.[demo]'")
    copied = tmp_path / "out" / "compose"

    for _ in range(2):  # again into the same folder, after a second `up`
        stack.follow("The result", out=tmp_path / "out")

    assert (copied / "flight-delays.png").read_bytes().startswith(PNG_SIGNATURE)
    assert {path.name for path in copied.iterdir()} == {"flight-delays.png", "parquet", "checkpoint"}
    assert pandas.read_parquet(copied / "parquet")["flights"].sum() == FLIGHTS
    assert f"docker compose cp {COPIED} out/compose" in stack.compose("logs", "report")


def test_the_images_are_lean_and_run_without_privileges(stack: Stack) -> None:
    assert [stack.image(name)["Config"]["User"] for name in IMAGES] == ["minibroker", "spark"]
    assert stack.image("minibroker")["Size"] - stack.image(BASE_IMAGE)["Size"] <= BROKER_LAYERS_MAX_BYTES


def test_a_container_reads_records_of_this_machine(stack: Stack) -> None:
    stack.follow("From this machine")

    assert stack.follow("From a container") == "hello from outside\n"


def test_this_machine_reads_records_of_a_container(stack: Stack) -> None:
    stack.in_container("""
        from confluent_kafka import Producer
        producer = Producer({"bootstrap.servers": "broker:9092"})
        producer.produce("inside", b"hello from inside")
        assert producer.flush(30) == 0
    """)

    assert values_in(stack.bootstrap, "inside") == [[b"hello from inside"]]


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(stack: Stack) -> None:
    acknowledged: list[bytes] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.value() or b"")

    producer = Producer({"bootstrap.servers": stack.bootstrap, "enable.idempotence": True, "log_level": 0})
    sent: list[bytes] = []
    with ThreadPoolExecutor(1) as crash:
        killed_and_back = crash.submit(stack.follow, "A crash")
        while not killed_and_back.done():
            sent.append(b"%d" % len(sent))
            producer.produce("killed", sent[-1], partition=0, on_delivery=on_delivery)
            producer.poll(0.001)
    killed_and_back.result()

    assert producer.flush(SECONDS) == 0
    assert sorted(acknowledged) == sorted(sent)
    assert values_in(stack.bootstrap, "killed") == [sent]


def test_three_brokers_replicate_in_one_container(stack: Stack) -> None:
    printed = stack.follow("A cluster")

    assert "created: orders" in printed
    assert re.search(r"^ +1  not alive .* 1 +1$", printed, re.MULTILINE)
    assert "orders-0: in sync are 2,3 of " in printed
    listed = AdminClient({"bootstrap.servers": "localhost:19093"}).list_topics(timeout=SECONDS)
    assert {broker.port for broker in listed.brokers.values()} == {19092, 19093, 19094}


@pytest.mark.nightly
def test_two_brokers_and_one_of_apache_kafka_are_one_cluster(stack: Stack) -> None:
    printed = stack.follow("Beside Apache Kafka")

    assert sorted(re.findall(r"^\d$", printed, re.MULTILINE)) == list("123456789")
    assert re.findall(r"^ +(\d)  mixed-\d:9092", printed, re.MULTILINE) == ["1", "2", "3"]
    listed = AdminClient({"bootstrap.servers": "localhost:29093"}).list_topics(timeout=SECONDS)
    assert {broker.port for broker in listed.brokers.values()} == {29092, 29093, 29094}


@pytest.mark.nightly
def test_the_job_runs_unchanged_on_a_spark_cluster(stack: Stack) -> None:
    printed = stack.follow("A Spark cluster")

    assert f"{FLIGHTS:,} flights: none lost, none counted twice." in printed
    with urllib.request.urlopen("http://localhost:8081/json/", timeout=SECONDS) as answer:
        master = json.load(answer)
    assert [worker["state"] for worker in master["workers"]] == ["ALIVE"] * 2
    assert [job["name"] for job in master["completedapps"]] == ["delays"]
    with urllib.request.urlopen("http://localhost:18080/api/v1/applications", timeout=SECONDS) as answer:
        assert [application["name"] for application in json.load(answer)] == ["delays"]


@pytest.mark.nightly
def test_after_a_crash_the_flights_are_there_and_the_job_goes_on(stack: Stack) -> None:
    stack.compose("kill", "--signal", "KILL", "broker")

    stack.compose("up", "--detach")
    stack.compose("wait", "report")

    assert f"{FLIGHTS:,} flights are in flights, from an earlier run" in stack.compose("logs", "replay")
    assert stack.compose("logs", "report").count("none lost, none counted twice") == 2


@pytest.fixture
def in_place_of_kafka(stack: Stack, tmp_path: Path) -> Iterator[str]:
    """The recipe's compose file that was written for apache/kafka, up; where its broker is found from here."""
    _, text = stack.blocks["In place of another image"]
    port = free_port()
    file = tmp_path / "docker-compose.yml"
    file.write_text(
        text.replace('"9092:9092"', f'"127.0.0.1:{port}:9092"').replace("localhost:9092", f"localhost:{port}")
    )
    project = ("--file", str(file), "--project-name", f"minibroker-test-variables-{os.getpid()}")
    try:
        stack.compose(*project, "up", "--detach", "--wait")
        yield f"localhost:{port}"
    finally:
        stack.compose(*project, "down", "--volumes")


def test_a_compose_file_for_apache_kafka_starts_the_broker_with_its_settings(in_place_of_kafka: str) -> None:
    """It is healthy although the address it gives to clients cannot be reached inside: `up --wait` says so."""
    producer = Producer({"bootstrap.servers": in_place_of_kafka, "log_level": 0})
    producer.produce("made", b"by itself", partition=2)

    assert producer.flush(SECONDS) == 0
    listed = AdminClient({"bootstrap.servers": in_place_of_kafka}).list_topics(timeout=SECONDS)
    assert len(listed.topics["made"].partitions) == 3  # KAFKA_NUM_PARTITIONS
    assert {str(broker) for broker in listed.brokers.values()} == {f"{in_place_of_kafka}/1"}  # KAFKA_NODE_ID


def test_a_broker_with_any_advertised_address_is_healthy_and_writes_only_its_volume(stack: Stack) -> None:
    advertised = "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://nowhere.invalid:9092"
    variables = ("--env", advertised, "--env", "KAFKA_LISTENERS=PLAINTEXT://:9099")
    run = ("docker", "run", "--detach", "--read-only", *variables)
    container = stack.run(*run, "minibroker").strip()
    try:
        assert health(stack, container) == "healthy"
    finally:
        stack.run("docker", "rm", "--force", "--volumes", container)


def health(stack: Stack, container: str) -> str:
    """The container's health, once it is known."""

    def status() -> str:
        return stack.run("docker", "inspect", "-f", "{{.State.Health.Status}}", container).strip()

    wait_until(lambda: status() != "starting", "the container's health")
    return status()
