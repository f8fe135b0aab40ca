"""`minibroker serve --console`: one command for a broker and its page, of which nothing is left however it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minibroker.broker.wings.testing.control.console_child import ConsoleChild, ConsoleError, private_folder
from tests.console.asking import ask, change, get
from tests.console.conftest import RunningConsole
from tests.integration.members import wait_until_gone

pytestmark = [pytest.mark.slow, pytest.mark.integration]

END_SECONDS = 10.0


class Served:
    """A broker with a console, and what it has made."""

    def __init__(self, process: subprocess.Popen[str], temporary: Path, log: Path) -> None:
        self.process = process
        self.log = log
        self.console = RunningConsole(process)
        self.temporary = temporary

    @property
    def control(self) -> Path:
        (folder,) = self.temporary.iterdir()
        return folder / "control"

    def children(self) -> list[int]:
        listed = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(each) for each in listed.stdout.split()]


@contextmanager
def served(tmp_path: Path, *options: str) -> Iterator[Served]:
    temporary = Path(tempfile.mkdtemp(prefix="served-"))  # short: a socket is below it
    command = [sys.executable, "-m", "minibroker", "serve", "--listen", "127.0.0.1:0", "--console", "0", *options]
    log = tmp_path / "log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [*command, "--data-dir", str(tmp_path / "data")],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env=os.environ | {"TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1"},
        ) as process,
    ):
        try:
            yield Served(process, temporary, log)
        finally:
            process.kill()
            shutil.rmtree(temporary)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda each: each.name)
def test_nothing_is_left_of_a_broker_with_a_console(tmp_path: Path, number: signal.Signals) -> None:
    with served(tmp_path) as broker:
        cluster = get(broker.console, "/api/cluster")
        assert (cluster["control"], cluster["changes"]) == (True, True)
        assert broker.control.stat().st_mode & 0o777 == 0o600
        (child,) = broker.children()

        begun = time.monotonic()
        if number == signal.SIGINT:
            os.killpg(broker.process.pid, number)  # as a terminal sends Ctrl-C: to the console, too
        else:
            broker.process.send_signal(number)
        status = broker.process.wait(END_SECONDS)
        wait_until_gone(child, seconds=END_SECONDS)

        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        assert time.monotonic() - begun < END_SECONDS / 2  # its connections do not keep the broker
        assert list(broker.temporary.iterdir()) == []
        assert "was removed" not in broker.log.read_text()  # the console leaves the socket to a broker that is there


def test_the_console_of_a_broker_has_all_of_its_metrics(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        get(broker.console, "/api/cluster")
        ask(broker.console, "GET", "/metrics")  # begins the counting
        change(broker.console, "POST", "/api/topics", name="orders", partitions=1)
        metrics = ask(broker.console, "GET", "/metrics")

    assert (metrics.status, metrics.headers["content-type"][:11]) == (200, "text/plain;")
    text = metrics.body.decode()
    assert "\nkafka_brokers 1.0\n" in text
    (created,) = re.findall(r'kafka_network_requestmetrics_requests_total\{request="CreateTopics".*\} (.+)', text)
    assert float(created) == 1
    assert 'kafka_topic_partitions{topic="orders"} 1.0' in text


def test_a_broker_serves_on_when_its_console_is_killed(tmp_path: Path) -> None:
    with served(tmp_path) as broker:
        get(broker.console, "/api/cluster")
        (child,) = broker.children()
        os.kill(child, signal.SIGKILL)

        broker.process.send_signal(signal.SIGTERM)

        assert broker.process.wait(END_SECONDS) == 0
        assert list(broker.temporary.iterdir()) == []


def test_a_long_name_of_the_temporary_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))

    folder = private_folder()
    folder.rmdir()

    assert folder.parent == Path("/tmp")


def test_a_console_whose_port_is_taken_ends_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConsoleError, match=f"127.0.0.1:{port}: Address already in use; choose .*--console PORT"):
            ConsoleChild(f"127.0.0.1:{port}", controls=[Path("control")], client_config=None)


def test_a_console_needs_its_libraries(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['hypercorn'] = None\n"
        "from minibroker.broker.wings.testing.control.console_child import ConsoleChild, ConsoleError\n"
        "import minibroker.broker.wings.testing.control.console_child as child\n"
        "child.find_spec = lambda name: None\n"
        "try: ConsoleChild('127.0.0.1:0', controls=[], client_config=None)\n"
        "except ConsoleError as error: print(error)"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed == "--console needs hypercorn; run: pip install hypercorn starlette\n"
