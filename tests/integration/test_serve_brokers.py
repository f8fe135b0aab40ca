"""`minibroker serve --brokers`: a cluster from the command line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from minibroker.control import Control
from minibroker.errors import BrokerError

WAIT_SECONDS = 20.0
SERVE = [sys.executable, "-P", "-m", "minibroker", "serve", "--brokers", "3"]


def brokers_at(bootstrap: str) -> list[int]:
    return sorted(
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=WAIT_SECONDS).brokers
    )


def until_there_are(bootstrap: str, broker_ids: list[int]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while brokers_at(bootstrap) != broker_ids:
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def launcher(tmp_path: Path, data_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [*SERVE, "--listen", "127.0.0.1:0", "--data-dir", str(data_dir), "--ready-file", str(tmp_path / "ready")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + WAIT_SECONDS
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline, "not in time"
            time.sleep(0.01)
        yield process
        process.kill()


def test_three_brokers_start_together_and_are_driven_by_their_launcher(
    launcher: subprocess.Popen[bytes], tmp_path: Path, data_dir: Path
) -> None:
    bootstrap = (tmp_path / "ready").read_text().strip()
    assert brokers_at(bootstrap) == [1, 2, 3]
    control = Control(data_dir / "cluster" / "launcher.control")

    control.call("kill", broker_id=2)
    until_there_are(bootstrap, [1, 3])
    with pytest.raises(BrokerError, match="broker 2 does not run; start it first"):
        control.call("pause", broker_id=2)
    control.call("start", broker_id=2)
    until_there_are(bootstrap, [1, 2, 3])
    with pytest.raises(BrokerError, match="there is no broker 4; the ids are 1 to 3"):
        control.call("start", broker_id=4)

    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(WAIT_SECONDS) == 0
    assert launcher.stderr is not None
    printed = launcher.stderr.read().decode()
    assert f"bootstrap.servers   {bootstrap}" in printed
    assert "broker 2 has ended (SIGKILL)" not in printed  # it was asked for
    logs = [(data_dir / f"{each}.log").read_text() for each in (1, 2, 3)]
    assert all("Traceback" not in log for log in logs)


def test_a_broker_that_dies_is_reported_and_the_others_go_on(
    launcher: subprocess.Popen[bytes], tmp_path: Path, data_dir: Path
) -> None:
    bootstrap = (tmp_path / "ready").read_text().strip()
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)

    deadline = time.monotonic() + WAIT_SECONDS
    while len(brokers_at(bootstrap)) != 2:
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
    launcher.terminate()
    assert launcher.stderr is not None
    assert b"has ended (SIGKILL)" in launcher.stderr.read()


def test_an_address_in_use_is_one_error_with_the_next_step(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [*SERVE, "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--data-dir", str(tmp_path)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)

    assert ended.returncode == 1
    assert "minibroker: broker 1 has ended with status 1" in ended.stderr
    assert "choose another address with --listen" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", "x"], "--brokers makes a cluster, and --cluster joins one: give one of them"),
        (["--control", "x"], "each broker of --brokers has a control socket, in the data directory"),
    ],
)
def test_options_of_one_broker_are_not_those_of_a_cluster(options: list[str], message: str) -> None:
    ended = subprocess.run([*SERVE, *options], capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)

    assert (ended.returncode, message in ended.stderr) == (1, True)
