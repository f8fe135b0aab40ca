"""`minibroker serve` around the broker: the banner, the ready file, signals while it starts, whose child it is."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minibroker.broker.__main__ import (
    STOP_SIGNALS,
    StartFailed,
    banner,
    listen_on,
    parse_arguments,
    prepare_ready_file,
    run,
)
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.serve_options import ServeOptions

ENDED_SECONDS = 60

Serve = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start `minibroker serve` on a free port and in a directory of its own."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "minibroker", "serve", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", str(tmp_path / "data"), *map(str, arguments)]
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_until(descriptor: int, text: str) -> str:
    seen = ""
    while text not in seen:
        seen += os.read(descriptor, 4096).decode()
    return seen


@pytest.mark.slow
@pytest.mark.integration
def test_a_terminal_shows_where_the_broker_is_and_what_to_type_next(serve: Serve, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = serve(stderr=theirs)
    os.close(theirs)

    seen = read_until(ours, "Ctrl-C")
    process.terminate()

    assert process.wait(ENDED_SECONDS) == 0
    os.close(ours)
    assert "bootstrap.servers   127.0.0.1:" in seen
    assert str(tmp_path / "data") in seen
    assert "minibroker topics list --bootstrap-server 127.0.0.1:" in seen


@pytest.mark.slow
@pytest.mark.integration
def test_a_log_file_has_only_log_lines(serve: Serve, tmp_path: Path) -> None:
    process = serve("--ready-file", tmp_path / "ready")
    assert process.stderr is not None
    line = next(line for line in process.stderr if "ready at" in line)

    process.terminate()
    _, rest = process.communicate(timeout=ENDED_SECONDS)

    assert process.returncode == 0
    assert "INFO minibroker.broker: minibroker is ready at 127.0.0.1:" in line
    assert "bootstrap.servers" not in rest


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_while_it_starts_ends_it_quietly_with_status_0(
    serve: Serve, tmp_path: Path, number: signal.Signals
) -> None:
    config = tmp_path / "server.properties"
    os.mkfifo(config)
    process = serve("--config", config, "--ready-file", tmp_path / "ready")

    # This returns when the broker opens the file to read it, and the broker then waits for what is in it.
    with config.open("w"):
        process.send_signal(number)
        _, said = process.communicate(timeout=ENDED_SECONDS)

    assert (process.returncode, said) == (0, "")
    assert not (tmp_path / "ready").exists()


@pytest.mark.slow
@pytest.mark.integration
def test_a_broker_whose_parent_has_ended_already_stops_in_order(serve: Serve) -> None:
    process = serve("--parent-pid", 1 if os.getppid() != 1 else 2)

    _, said = process.communicate(timeout=ENDED_SECONDS)

    assert process.returncode == 0
    assert "which started this broker, has ended" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.integration
def test_a_data_directory_that_cannot_be_read_is_told_in_one_line(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "data" / "minibroker.json").mkdir(parents=True)
    process = serve()

    _, said = process.communicate(timeout=ENDED_SECONDS)

    (line,) = said.splitlines()
    assert process.returncode == 1
    assert line.startswith(f"minibroker: the data directory {tmp_path / 'data'} failed: ")


@pytest.mark.slow
@pytest.mark.integration
def test_every_bad_setting_has_a_line(serve: Serve) -> None:
    process = serve("--set", "num.partitions=0", "--set", "log.segment.bytes=many")

    _, said = process.communicate(timeout=ENDED_SECONDS)

    assert process.returncode == 1
    assert [line.split(":")[0] for line in said.splitlines()] == ["minibroker", "minibroker"]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("name", "reason"), [("x" * 120, "too long"), ("nowhere/control", "No such file")])
def test_a_control_socket_that_cannot_be_made_is_told_in_one_line(
    serve: Serve, tmp_path: Path, name: str, reason: str
) -> None:
    process = serve("--control", tmp_path / name)

    _, said = process.communicate(timeout=ENDED_SECONDS)

    (line,) = said.splitlines()
    assert process.returncode == 1
    assert line.startswith(f"minibroker: cannot create the control socket {tmp_path / name}: ")
    assert reason in line and line.endswith("; name another with --control PATH")


@pytest.mark.slow
@pytest.mark.integration
def test_who_does_not_ask_for_control_does_not_pay_for_it() -> None:
    """Nothing of it is imported, and trio runs on its own clock."""
    program = (
        "import sys, trio, minibroker.broker.app as app\n"
        "trio.run = lambda run, *arguments, clock: print('clock', clock)\n"
        "app.BrokerApp.load = lambda self: None\n"
        "from minibroker.broker.config.kafka_config import KafkaConfig\n"
        "app.run(KafkaConfig({'log.dirs': '/nowhere'}), [], on_loaded=lambda: None, on_ready=print)\n"
        "print(*sys.modules)"
    )

    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    assert said.startswith("clock None\n")
    parts = {f"minibroker.broker.{part}" for part in ("control", "turnable_clock", "faults", "transcript")}
    assert not {*parts, "trio.testing"} & set(said.split())


# -- in this process


@pytest.fixture
def config(tmp_path: Path) -> KafkaConfig:
    return KafkaConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})


@pytest.fixture
def listeners(config: KafkaConfig) -> Iterator[list[socket.socket]]:
    listeners = listen_on(config)
    yield listeners
    for listener in listeners:
        listener.close()


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """The stop signals that arrive while `signals_go_to` is in force; this process's handlers come back."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield []
    for number, handler in before.items():
        signal.signal(number, handler)


def fake_app(
    monkeypatch: pytest.MonkeyPatch, signals: list[int], *, before_the_loop: list[int], at_the_end: list[int]
) -> None:
    """In place of the broker: takes the signals over when it runs, and gives them back when it stops."""

    def run_app(
        config: KafkaConfig,
        listeners: list[socket.socket],
        *,
        on_loaded: Callable[[], None],
        on_ready: Callable[[str, int], None],
        options: ServeOptions,
    ) -> None:
        on_loaded()
        for number in before_the_loop:
            signal.raise_signal(number)
        given = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        for number in STOP_SIGNALS:
            signal.signal(number, lambda number, frame: signals.append(number))
        on_ready("127.0.0.1", 9092)
        for number in STOP_SIGNALS:
            signal.signal(number, given[number])
        for number in at_the_end:
            signal.raise_signal(number)

    monkeypatch.setattr("minibroker.broker.app.run", run_app)


def test_a_signal_between_loading_and_serving_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, config: KafkaConfig, listeners: list[socket.socket], signals: list[int]
) -> None:
    fake_app(monkeypatch, signals, before_the_loop=[signal.SIGTERM], at_the_end=[])

    run(config, listeners, None, ServeOptions())

    assert signals == [signal.SIGTERM]


def test_a_signal_while_it_stops_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, config: KafkaConfig, listeners: list[socket.socket], signals: list[int]
) -> None:
    fake_app(monkeypatch, signals, before_the_loop=[], at_the_end=[signal.SIGINT, signal.SIGTERM])

    run(config, listeners, None, ServeOptions())

    assert signals == []


def test_a_ready_file_that_cannot_be_written_at_last_stops_the_broker(
    monkeypatch: pytest.MonkeyPatch,
    config: KafkaConfig,
    listeners: list[socket.socket],
    signals: list[int],
    tmp_path: Path,
) -> None:
    fake_app(monkeypatch, signals, before_the_loop=[], at_the_end=[])
    (tmp_path / "ready.tmp").mkdir()

    with pytest.raises(StartFailed, match="cannot write --ready-file"):
        run(config, listeners, tmp_path / "ready", ServeOptions())

    assert signals == [signal.SIGTERM]


def test_the_ready_file_of_an_earlier_run_goes_and_none_is_made(tmp_path: Path) -> None:
    path = tmp_path / "ready"
    path.write_text("127.0.0.1:1\n")

    prepare_ready_file(path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["missing/ready", "file/ready", "folder"])
def test_a_ready_file_that_cannot_be_made_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()

    with pytest.raises(StartFailed, match=f"cannot write --ready-file {tmp_path / name}: "):
        prepare_ready_file(tmp_path / name)


@pytest.mark.parametrize(
    ("host", "bootstrap"),
    [("127.0.0.1", "127.0.0.1:9092"), ("0.0.0.0", "localhost:9092"), ("::", "localhost:9092"), ("::1", "[::1]:9092")],
)
def test_the_banner_names_an_address_one_can_connect_to(host: str, bootstrap: str) -> None:
    assert f"bootstrap.servers   {bootstrap}\n" in banner(host, 9092, Path("/data"))


@pytest.mark.parametrize(("port", "is_one"), [("0", True), ("65535", True), ("65536", False), ("x", False)])
def test_an_address_to_listen_on_has_a_port_that_there_is(port: str, is_one: bool) -> None:
    arguments = ["--listen", f"127.0.0.1:{port}"]

    if is_one:
        assert parse_arguments(arguments).listen == arguments[1]
    else:
        with pytest.raises(SystemExit):
            parse_arguments(arguments)
