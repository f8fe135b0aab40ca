"""`minibroker serve --brokers N`: starts the brokers of a cluster on this machine, and stops them together.

Each broker is a process of its own, with the ids 1 to N, ports that follow each other (those of `--set listeners=...`
and `advertised.listeners` too), and a directory each under the data directory, beside the one that they share:

    DIR/1  DIR/2  DIR/3     data directories of the brokers
    DIR/1.log ...           what each logs
    DIR/cluster             the state of the cluster
    DIR/cluster/1.control   control sockets of the brokers

A broker that ends, also by `kill -9`, stays away until it is started again, by `minibroker cluster start` for example.
This process takes such calls at DIR/cluster/launcher.control, in the form of the brokers' control sockets. The console
is a process of its own, beside the brokers: it goes on while any of them does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibroker.broker.starting import stop_signals
from minibroker.broker.wings.testing.control.console_child import ConsoleChild, ConsoleError
from minibroker.protocol.text import OTHER_FORM
from minibroker.storage.cluster_settings import settings_of_cluster
from minibroker.storage.data_dir.directory_lock import DirectoryLock
from minibroker.storage.files.checkpoints import write_atomically
from minibroker.storage.files.socket_path import socket_address
from minibroker.storage.files.storage_errors import LogDirectoryError

DEFAULT_ADDRESS = "127.0.0.1:9092"
DEFAULT_DATA_DIR = "minibroker-data"
READY_SECONDS = 30.0
READY_POLL_SECONDS = 0.005
LOG_LINES_SHOWN = 5
REASON = "minibroker: "  # begins a line that says why a broker has ended
WARNING = re.compile(r"^\S+ \S+ WARNING minibroker\.broker\.(?:config\.\S+|cluster\.first_topics): (.*)$", re.MULTILINE)

LISTENERS, ADVERTISED_LISTENERS = "listeners", "advertised.listeners"  # settings
PLAIN = re.compile(r"(?:PLAINTEXT(?=://\S+$)|\w+(?=://\S+ \(PLAINTEXT\)$))://(\S+)")  # a line of a ready file
PORT = re.compile(r"(?<=:)[0-9]+(?=\s*(,|$))")

START = "start"
BROKERS = "brokers"
SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGTERM,
    "pause": signal.SIGSTOP,
    "resume": signal.SIGCONT,
}
ENDING = ("kill", "stop")
CALL_SECONDS = 5.0
WATCH_SECONDS = 0.2
CALL_BYTES_MAX = 1 << 16


class LaunchFailed(Exception):
    """A broker has not started; the message has its last log lines."""


class Launcher:
    """The brokers of `serve --brokers`. `passed` are the arguments that each of them gets as they are."""

    def __init__(self, options: argparse.Namespace, passed: Sequence[str]) -> None:
        self._count: int = options.brokers
        self.directory = Path(options.data_dir or DEFAULT_DATA_DIR).absolute()
        address: str = options.listen or DEFAULT_ADDRESS
        self._host, _, port = address.rpartition(":")
        self._first_port = int(port)
        self._options = options
        self._passed = passed
        self._has_listeners = any(name_of(each) == LISTENERS for each in passed)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._log_starts: dict[int, int] = {}  # where the log of a broker's process begins in its file
        self.addresses: dict[int, str] = {}
        self.registries: dict[int, str] = {}
        self._listeners: dict[int, list[str]] = {}

    def start(self, broker_id: int, first_topics: str | None = "") -> None:
        """Start the process of a broker; `first_topics` as --create-topics, None for those of the environment."""
        ready_file = self._ready_file(broker_id)
        ready_file.unlink(missing_ok=True)
        command = self._command(broker_id, ready_file)
        command += [] if first_topics is None else ["--create-topics", first_topics]
        with self.log_of(broker_id).open("ab") as log:
            self._log_starts[broker_id] = log.tell()
            self._processes[broker_id] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0
            )

    def check(self) -> None:
        """Check the settings as `serve --check` of one broker does; write nothing. Raises LaunchFailed.

        Settings differ by ports only, which follow each other: the first and the last broker speak for all.
        """
        for broker_id in sorted({1, self._count}):
            command = [*self._command(broker_id, self._ready_file(broker_id)), "--check"]
            if broker_id == 1 and self._options.create_topics is not None:
                command += ["--create-topics", self._options.create_topics]
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode:
                raise LaunchFailed(f"broker {broker_id}: {reasons_in(done.stderr)}")
            if broker_id == 1:
                print(done.stderr, end="", file=sys.stderr)

    def _command(self, broker_id: int, ready_file: Path) -> list[str]:
        options = self._options
        port = self._first_port and self._first_port + broker_id - 1
        command = [sys.executable, "-P", "-m", "minibroker", "serve", "--parent-pid", str(os.getpid())]
        if not self._has_listeners:
            command += ["--listen", self.addresses.get(broker_id, f"{self._host}:{port}")]
        command += ["--data-dir", str(self.directory / str(broker_id)), "--cluster", str(self.directory / "cluster")]
        command += ["--ready-file", str(ready_file), "--control", str(self.control_of(broker_id))]
        for name, value in settings_of_cluster(self._count, options.act_as).items():
            command += ["--set", f"{name}={value}"]
        command += [of_broker(each, broker_id) for each in self._passed]
        for name, address in (("--metrics", options.metrics), ("--schema-registry", options.schema_registry)):
            if address is not None:
                host, _, first = address.rpartition(":")
                command += [name, f"{host}:{int(first) and int(first) + broker_id - 1}"]
        if options.transcript is not None:
            command += ["--transcript", f"{options.transcript}.{broker_id}"]
        return [*command, "--set", f"broker.id={broker_id}"]

    def await_ready(self) -> None:
        """Wait until all brokers answer requests. Raises LaunchFailed."""
        deadline = time.monotonic() + READY_SECONDS
        for broker_id, process in self._processes.items():
            ready_file = self._ready_file(broker_id)
            while not ready_file.exists():
                if process.poll() is not None:
                    raise LaunchFailed(
                        f"broker {broker_id} has ended with status {process.returncode}:\n{self._end_of_log(broker_id)}"
                    )
                if time.monotonic() > deadline:
                    raise LaunchFailed(f"broker {broker_id} is not ready:\n{self._end_of_log(broker_id)}")
                time.sleep(READY_POLL_SECONDS)
            self.addresses[broker_id], *self._listeners[broker_id] = ready_file.read_text().splitlines()
            if self._options.schema_registry is not None:
                self.registries[broker_id] = self._listeners[broker_id].pop().partition("=")[2]

    def stop(self) -> None:
        """Stop all brokers, in order."""
        for process in self._processes.values():
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that is paused
        for process in self._processes.values():
            process.wait()

    def call(self, name: str, broker_id: int) -> None:
        """Do to a broker as a call asks. Raises LaunchFailed with the reason of a refusal."""
        process = self._processes.get(broker_id)
        if name not in (START, *SIGNALS):
            raise LaunchFailed(f"unknown call {name!r}; there are {', '.join((BROKERS, START, *SIGNALS))}")
        if not 1 <= broker_id <= self._count:
            raise LaunchFailed(f"there is no broker {broker_id}; the ids are 1 to {self._count}")
        if name == START:
            if process is not None:
                raise LaunchFailed(f"broker {broker_id} runs already; stop or kill it first")
            self.start(broker_id)
            self.await_ready()
        elif process is None:
            state = "is dead already" if name in ENDING else "does not run; start it first"
            raise LaunchFailed(f"broker {broker_id} {state}")
        else:
            process.send_signal(SIGNALS[name])
            if name in ENDING:
                process.wait()
                self.watch()

    def brokers(self) -> list[dict[str, Any]]:
        """All brokers, also the ended ones, for JSON."""
        return [
            {
                "broker_id": broker_id,
                "address": self.addresses.get(broker_id),
                "state": state_of(self._processes.get(broker_id)),
                "pid": self._processes[broker_id].pid if broker_id in self._processes else None,
            }
            for broker_id in range(1, self._count + 1)
        ]

    def watch(self) -> dict[int, int]:
        """The brokers that have ended since the last call, with their exit statuses."""
        ended = {each: process.returncode for each, process in self._processes.items() if process.poll() is not None}
        for broker_id in ended:
            del self._processes[broker_id]
        return ended

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses[each] for each in sorted(self.addresses))

    @property
    def plain_addresses(self) -> str:
        """Return the addresses in plaintext of the brokers that have one; else all addresses."""
        plain = [PLAIN.match(each) for broker_id in sorted(self._listeners) for each in self._listeners[broker_id]]
        return ",".join(each[1] for each in plain if each is not None) or self.bootstrap_servers

    @property
    def is_running(self) -> bool:
        return bool(self._processes)

    def log_of(self, broker_id: int) -> Path:
        return self.directory / f"{broker_id}.log"

    def control_of(self, broker_id: int) -> Path:
        return self.directory / "cluster" / f"{broker_id}.control"

    def _ready_file(self, broker_id: int) -> Path:
        return self.directory / "cluster" / f"{broker_id}.ready"

    def warnings(self) -> list[str]:
        """The warnings of the brokers at their start, about settings and topics, each once."""
        logs = map(self._log, sorted(self._processes))
        return list(dict.fromkeys(warning for log in logs for warning in WARNING.findall(log)))

    def _log(self, broker_id: int) -> str:
        return self.log_of(broker_id).read_bytes()[self._log_starts[broker_id] :].decode(errors="replace")

    def _end_of_log(self, broker_id: int) -> str:
        return reasons_in(self._log(broker_id))


def state_of(process: subprocess.Popen[bytes] | None) -> str:
    """Return running, paused (by SIGSTOP) or ended."""
    if process is None or process.poll() is not None:
        return "ended"
    with suppress(OSError):
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return "paused"
    return "running"


def reasons_in(log: str) -> str:
    """Return the reasons in the last lines of a log; if they give none, these lines."""
    lines = log.splitlines()[-LOG_LINES_SHOWN:]
    return "\n".join([line.removeprefix(REASON) for line in lines if line.startswith(REASON)] or lines)


def name_of(argument: str) -> str:
    """The name of the setting that an argument sets, as `KEY=VALUE` or `--set=KEY=VALUE`."""
    return argument.removeprefix("--set=").partition("=")[0].strip()


def of_broker(argument: str, broker_id: int) -> str:
    """The argument as a broker gets it: the ports of listeners are broker 1's, and each other broker has the next."""
    if name_of(argument) not in (LISTENERS, ADVERTISED_LISTENERS):
        return argument
    return PORT.sub(lambda found: str(int(found[0]) + broker_id - 1) if int(found[0]) else found[0], argument)


class Calls:
    """The launcher's socket: one connection after the other, with its calls. Raises OSError.

    `call` is a call for a broker, `brokers` the one that lists them.
    """

    def __init__(
        self, path: Path, call: Callable[[str, int], None], brokers: Callable[[], list[dict[str, Any]]]
    ) -> None:
        path.unlink(missing_ok=True)
        self._path = path
        self._call = call
        self._brokers = brokers
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with socket_address(path) as address:
            self._socket.bind(address)
        path.chmod(0o600)
        self._socket.listen()

    def answer_for(self, seconds: float) -> None:
        """Answer the calls of a connection, if one comes within that time."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            connection, _ = self._socket.accept()
            with connection, suppress(OSError):  # the caller has left
                connection.settimeout(CALL_SECONDS)
                with connection.makefile("rb") as lines:
                    while line := lines.readline(CALL_BYTES_MAX):
                        connection.sendall(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            asked = json.loads(line)
            if asked["call"] == BROKERS:
                return {"result": self._brokers()}
            self._call(str(asked["call"]), int(asked["arguments"]["broker_id"]))
        except (LaunchFailed, *OTHER_FORM) as error:
            return {"error": str(error)}
        return {"result": None}

    def close(self) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)


def launch(options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Start the brokers, and serve until a signal; with --check, check settings only. Raises LaunchFailed, OSError."""
    launcher = Launcher(options, passed_of(arguments))
    if options.check:
        launcher.check()
        return
    lock = DirectoryLock(launcher.directory)
    try:
        lock.acquire()
    except LogDirectoryError as error:
        raise LaunchFailed(f"{error}; name another directory with --data-dir DIR") from error
    console = console_of(launcher, options)
    launcher.directory.joinpath("cluster").mkdir(parents=True, exist_ok=True)
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)  # of an earlier run
    stops: list[int] = []
    for number in stop_signals():
        signal.signal(number, lambda number, frame: stops.append(number))
    calls = Calls(launcher.directory / "cluster" / "launcher.control", launcher.call, launcher.brokers)
    try:
        for broker_id in range(1, options.brokers + 1):
            launcher.start(broker_id, options.create_topics if broker_id == 1 else "")
        launcher.await_ready()
        if options.ready_file is not None:
            write_atomically(options.ready_file, f"{launcher.bootstrap_servers}\n".encode())
        for warning in launcher.warnings():
            print(f"minibroker: {warning}", file=sys.stderr)
        console_line = "" if console is None else console.ready_line(launcher.plain_addresses)
        if console_line and not sys.stdout.isatty():
            print(console_line, flush=True)  # for programs, as a broker with a console prints it
        print(banner(launcher, console_line), file=sys.stderr, flush=True)
        while not stops and launcher.is_running:
            calls.answer_for(WATCH_SECONDS)
            for broker_id, status in launcher.watch().items():
                how = f"status {status}" if status >= 0 else signal.Signals(-status).name
                print(f"minibroker: broker {broker_id} has ended ({how})", file=sys.stderr, flush=True)
    finally:
        calls.close()
        if console is not None:
            console.stop()
        launcher.stop()
        if console is not None:
            console.close()


def console_of(launcher: Launcher, options: argparse.Namespace) -> ConsoleChild | None:
    """Raises LaunchFailed."""
    if options.console is None:
        return None
    controls = [launcher.control_of(each) for each in range(1, options.brokers + 1)]
    try:
        return ConsoleChild(options.console, controls=controls, client_config=options.console_config)
    except ConsoleError as error:
        raise LaunchFailed(str(error)) from error


def passed_of(arguments: Sequence[str]) -> list[str]:
    """The arguments, less the ones that the launcher sets for each broker."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own = ("--brokers", "--create-topics", "--listen", "--data-dir", "--ready-file", "--metrics", "--transcript")
    for name in (*own, "--schema-registry", "--parent-pid"):
        parser.add_argument(name)
    parser.add_argument("--console", nargs="?")
    return parser.parse_known_args(list(arguments))[1]


def banner(launcher: Launcher, console_line: str) -> str:
    """The lines that a person at a terminal wants to copy."""
    bootstrap = launcher.bootstrap_servers
    registries = ",".join(launcher.registries[each] for each in sorted(launcher.registries))
    registry = f"\n    schema registries   {registries}" if registries else ""
    console = f"\n    console             {console_line.partition(' at ')[2]}" if console_line else ""
    return f"""
  minibroker is ready: a cluster of {len(launcher.addresses)} brokers
    bootstrap.servers   {bootstrap}{registry}{console}
    data and logs       {launcher.directory}
    control sockets     {launcher.control_of(1)}, and so on
    look at it          minibroker topics list --bootstrap-server {bootstrap}
    write to it         KafkaProducer(bootstrap_servers="{bootstrap}", acks="all")
    kill one            minibroker cluster kill 1 --data-dir {shlex.quote(str(launcher.directory))}
    stop it             Ctrl-C
"""
