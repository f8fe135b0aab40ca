"""A broker that goes away under `consume --follow` or `produce` is reported at once, and so is its return."""

from __future__ import annotations

import gc
import io
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from minibroker import Broker
from minibroker.cli.app import main
from minibroker.cli.liveness import gone_brokers_reported
from minibroker.client.address import Address
from tests.minibroker.commands import running

REPORTED_WITHIN_SECONDS = 2.0
GONE = "minibroker: the broker at {} does not answer; waiting until it is back\n"
BACK = "minibroker: the broker at {} is back\n"


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.sample(of=lambda confluent_kafka, group: (confluent_kafka == "without") is not bool(group))
@pytest.mark.parametrize(
    ("confluent_kafka", "group"), [("confluent_kafka", []), ("without", []), ("confluent_kafka", ["-g", "reports"])]
)
def test_a_broker_that_dies_and_returns_is_reported_and_nothing_is_lost(
    confluent_kafka: str, group: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if confluent_kafka == "without":
        (hidden := tmp_path_factory.mktemp("hidden") / "confluent_kafka.py").write_text("raise ModuleNotFoundError")
        monkeypatch.setenv("PYTHONPATH", str(hidden.parent))
    with Broker() as broker:
        broker.create_topic("orders")
        address = broker.bootstrap_servers
        with (
            running("consume", "orders", "--follow", "-b", address, *group) as consumer,
            running("produce", "orders", "-b", address, stdin=subprocess.PIPE) as producer,
        ):
            assert producer.stdin and producer.stderr and consumer.stdout and consumer.stderr
            both = (consumer.stderr, producer.stderr)
            producer.stdin.write("before\n" * 1000)  # over 8 KiB: as much as Python reads ahead
            producer.stdin.flush()
            assert consumer.stdout.readline() == "before\n"

            broker.kill()
            killed_at = time.monotonic()
            assert [errors.readline() for errors in both] == [GONE.format(address)] * 2
            assert time.monotonic() - killed_at < REPORTED_WITHIN_SECONDS

            broker.start()
            started_at = time.monotonic()
            assert [errors.readline() for errors in both] == [BACK.format(address)] * 2
            assert time.monotonic() - started_at < REPORTED_WITHIN_SECONDS

            out, err = producer.communicate("after\n", timeout=60)
            assert (producer.returncode, out, err) == (0, "produced: 1001 records to orders\n", "")
            while (line := consumer.stdout.readline()) == "before\n":
                pass
            assert line == "after\n"


def test_a_broker_that_closes_an_idle_connection_is_connected_to_again_silently(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        with gone_brokers_reported([Address(*server.getsockname())]):
            for _ in range(2):
                server.accept()[0].close()
            with server.accept()[0]:
                pass

    assert capsys.readouterr().err == ""


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # of kafka-python, that tried to connect again
def test_a_broker_that_dies_meanwhile_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("minibroker.cli.produce.DELIVERY_TIMEOUT_MS", 1000)
    with Broker() as broker:
        broker.create_topic("orders")

        def lines_and_a_crash(*_: object) -> Iterator[bytes]:
            broker.kill()
            yield b"one\n"

        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        monkeypatch.setattr("minibroker.cli.produce.watched", lines_and_a_crash)
        status = main(["produce", "orders", "-b", broker.bootstrap_servers])
    gc.collect()

    gone, line = capsys.readouterr().err.splitlines()
    assert status == 1
    assert "does not answer; waiting until it is back" in gone
    assert "topic orders acknowledges no more records; check its brokers with" in line
