"""`minibroker serve` around the broker: the banner, the ready file, signals while it starts, whose child it is."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.__main__ import (
    STOP_SECONDS,
    allow_most_files,
    listen_on,
    prepare_ready_file,
    run,
    settings_of,
    stop_with_parent,
    zookeeper_of,
)
from minibroker.broker.__main__ import serve as serve_here
from minibroker.broker.arguments import parse_arguments
from minibroker.broker.banner import banner
from minibroker.broker.config.kafka_config import KafkaConfig, load_config
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.starting import StartError, stop_signals

STOP_SIGNALS = stop_signals()
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


def starts_a_process(test: Any) -> Any:
    return pytest.mark.slow(pytest.mark.integration(test))


@starts_a_process
def test_a_terminal_shows_the_address_and_the_next_command(serve: Serve, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = serve(stderr=theirs)
    os.close(theirs)

    seen = ""
    while "Ctrl-C" not in seen:
        seen += os.read(ours, 4096).decode()
    process.terminate()

    assert process.wait(ENDED_SECONDS) == 0
    os.close(ours)
    assert "bootstrap.servers   127.0.0.1:" in seen
    assert str(tmp_path / "data") in seen
    assert "minibroker topics list --bootstrap-server 127.0.0.1:" in seen


@starts_a_process
def test_a_log_file_has_only_log_lines(serve: Serve, tmp_path: Path) -> None:
    process = serve("--ready-file", tmp_path / "ready")
    assert process.stderr is not None
    line = next(line for line in process.stderr if "ready at" in line)

    process.terminate()
    _, rest = process.communicate(timeout=ENDED_SECONDS)

    assert process.returncode == 0
    assert "INFO minibroker.broker: minibroker is ready at 127.0.0.1:" in line
    assert "bootstrap.servers" not in rest


@starts_a_process
@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_while_it_starts_ends_it_with_status_0(serve: Serve, tmp_path: Path, number: signal.Signals) -> None:
    config = tmp_path / "server.properties"
    os.mkfifo(config)
    process = serve("--config", config, "--ready-file", tmp_path / "ready")

    # This returns when the broker opens the file to read it, and the broker then waits for what is in it.
    with config.open("w"):
        process.send_signal(number)
        _, said = process.communicate(timeout=ENDED_SECONDS)

    assert (process.returncode, said) == (0, "")
    assert not (tmp_path / "ready").exists()


@starts_a_process
def test_a_broker_whose_parent_has_ended_already_stops_in_order(serve: Serve) -> None:
    process = serve("--parent-pid", 1 if os.getppid() != 1 else 2)

    _, said = process.communicate(timeout=ENDED_SECONDS)

    assert process.returncode == 0
    assert "which started this broker, has ended" in said
    assert "Traceback" not in said


def test_a_broker_that_does_not_stop_after_its_parent_has_ended_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[object] = []
    monkeypatch.setattr("time.sleep", done.append)
    monkeypatch.setattr("os.kill", lambda pid, number: done.append((pid, number)))

    stop_with_parent(parent_pid=-1)

    assert done == [(os.getpid(), signal.SIGTERM), STOP_SECONDS, (os.getpid(), signal.SIGKILL)]


@starts_a_process
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ([], ["the data directory {}/data failed: .*"]),
        (["--set", "num.partitions=0", "--set", "log.segment.bytes=many"], ["Invalid value .*", "Invalid value .*"]),
        (["--control", "{}/" + "x" * 120], ["cannot create the control socket {}/x+: .*too long; .* --control PATH"]),
        (["--control", "{}/no/c"], ["cannot create the control socket {}/no/c: .*No such file.*; .* --control PATH"]),
        (["--zookeeper", "--set", "zookeeper.connect=a:b"], ["'a:b' is not HOST:PORT, .*--zookeeper HOST:PORT, or .*"]),
        (["--zookeeper"], ["'' is not HOST:PORT, such as 127.0.0.1:2181; name the ZooKeeper with --zookeeper .*"]),
        (
            ["--set", "zookeeper.connection.timeout.ms=1", "--zookeeper", "127.0.0.1:1"],
            ["cannot use ZooKeeper at 127.0.0.1:1: Connection refused; start it, or name another in zookeeper.connect"],
        ),
        (
            ["--zookeeper", "h:1", "--set", "zookeeper.set.acl=true"],
            ["zookeeper.set.acl=true: this broker logs in to no ZooKeeper, so its nodes are open; set it to false, .*"],
        ),
        (
            ["--zookeeper", "h:1", "--set", "inter.broker.protocol.version=0.10.2", "--act-as", "0.10"],
            ["inter.broker.protocol.version=0.10.2: this broker does not speak it; upgrade .* 0.11 first"],
        ),
        (["--zookeeper", "h:1", "--cluster", "{}"], ["--cluster and --zookeeper are clusters of two kinds; .*"]),
    ],
)
def test_a_failure_to_start_has_a_line(serve: Serve, tmp_path: Path, arguments: list[str], lines: list[str]) -> None:
    if not arguments:
        (tmp_path / "data" / "minibroker.json").mkdir(parents=True)
    process = serve(*(each.format(tmp_path) for each in arguments))

    _, said = process.communicate(timeout=ENDED_SECONDS)

    assert process.returncode == 1
    failures = [line for line in said.splitlines() if " INFO " not in line]
    for line, expected in zip(failures, lines, strict=True):
        assert re.fullmatch(f"minibroker: {expected.format(tmp_path)}", line), line


@pytest.mark.parametrize("option", ["--brokers=3", "--cluster=shared"])
def test_several_brokers_are_refused_where_there_are_no_locks_of_linux(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setattr("minibroker.broker.__main__.stop_at_once_on_signals", lambda: None)

    assert serve_here([option]) == 1
    assert capsys.readouterr().err == (
        "minibroker: several brokers on one machine share locks of Linux; serve one, or run the image\n"
    )


def test_the_zookeeper_of_a_settings_file_is_joined_only_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    config = load_config(None, ["zookeeper.connect=there:2181/kafka"], listen=None, data_dir="d")

    with caplog.at_level("INFO"):
        assert zookeeper_of(parse_arguments([]), config) is None
    assert caplog.messages[-1] == "zookeeper.connect: no effect without --zookeeper, this broker needs no ZooKeeper"
    assert caplog.records[-1].levelname == "INFO"
    for setting in ("broker.id=2", "offsets.topic.replication.factor=3"):
        one_of_several = load_config(None, ["zookeeper.connect=there:2181", setting], listen=None, data_dir="d")
        assert zookeeper_of(parse_arguments([]), one_of_several) is None
        assert caplog.records[-1].levelname == "WARNING"
        assert caplog.messages[-1].endswith("is a cluster of its own; `serve --brokers 3` starts a cluster")
    assert zookeeper_of(parse_arguments(["--zookeeper"]), config) == "there:2181/kafka"
    assert zookeeper_of(parse_arguments(["--zookeeper", "here:1"]), config) == "here:1"


QUICK = [
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.heartbeat.interval.ms=250",
    "group.consumer.assignment.interval.ms=0",
]
WAIT = "group.initial.rebalance.delay.ms=70"


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ("", QUICK),
        ("--listen 127.0.0.1:0", QUICK),
        ("--listen A://localhost:9092,B://[::1]:9093", QUICK),
        (f"--set {WAIT}", [*QUICK, WAIT]),  # the last counts
        ("--set listeners=A://127.0.0.1:9092", [*QUICK, "listeners=A://127.0.0.1:9092"]),
        ("--set listeners=A://:9092", ["listeners=A://:9092"]),
        ("--listen :9092", []),
        ("--listen A://127.0.0.1:9092,B://10.0.0.7:9092", []),
        ("--config server.properties", []),
        ("--environment", []),
        ("--act-as 2.0", []),
    ],
)
def test_a_first_join_waits_for_others_where_a_broker_is_like_another_or_seen_by_others(
    arguments: str, settings: list[str]
) -> None:
    assert settings_of(parse_arguments(arguments.split())) == settings


@starts_a_process
def test_a_broker_without_control_imports_nothing_of_it() -> None:
    """Nothing of it is imported, nor of a schema registry, and trio runs on its own clock."""
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
    parts = {f"minibroker.broker.wings.{part}" for part in ("testing.control", "testing.faults", "looking.tracer")}
    assert not {*parts, "trio.testing"} & set(said.split())
    kit = {
        f"minibroker.{each}"
        for each in ("schemas", "conformance", "chaos", "lab", "aws", "broker.wings.registry.serving")
    }
    assert not {*kit, "h11", "avro", "jsonschema", "proto_schema_parser", "google"} & set(said.split())


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """The stop signals that arrive while `signals_go_to` is in force; this process's handlers come back."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield []
    for number, handler in before.items():
        signal.signal(number, handler)


RunFaked = Callable[..., None]


@pytest.fixture
def run_faked(monkeypatch: pytest.MonkeyPatch, signals: list[int], tmp_path: Path) -> Iterator[RunFaked]:
    """Run, in place of the broker, what takes the signals over when it runs, and gives them back when it stops."""
    config = KafkaConfig({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    listeners = listen_on(config)

    def run_it(
        ready_file: Path | None = None, *, before_the_loop: Iterable[int] = (), at_the_end: Iterable[int] = ()
    ) -> None:
        def run_app(*_: object, on_loaded: Any, on_ready: Any, options: ServeOptions) -> None:
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
        run(config, listeners, ready_file, ServeOptions())

    yield run_it
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize(
    ("before_the_loop", "at_the_end", "seen"),
    [
        pytest.param([signal.SIGTERM], [], [signal.SIGTERM], id="between loading and serving it is not lost"),
        pytest.param([], [signal.SIGINT, signal.SIGTERM], [], id="while it stops it changes nothing"),
    ],
)
def test_signals_when_the_broker_does_not_listen_to_them(
    run_faked: RunFaked, signals: list[int], before_the_loop: list[int], at_the_end: list[int], seen: list[int]
) -> None:
    run_faked(before_the_loop=before_the_loop, at_the_end=at_the_end)

    assert signals == seen


def test_a_ready_file_that_cannot_be_written_stops_it(run_faked: RunFaked, signals: list[int], tmp_path: Path) -> None:
    (tmp_path / "ready.tmp").mkdir()

    with pytest.raises(StartError, match="cannot write --ready-file"):
        run_faked(tmp_path / "ready")

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

    with pytest.raises(StartError, match=f"cannot write --ready-file {tmp_path / name}: "):
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


def test_a_broker_may_open_as_many_files_as_the_system_allows() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, most) - 1, most))
    try:
        allow_most_files()

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
