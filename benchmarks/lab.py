"""Runs the cases: brokers side by side, the load client, a folder for all files; closing it ends everything.

Brokers start when a case first asks for them. Everything started is killed when the lab closes, error or not, and
the folder goes with it.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from benchmarks.frames import Frame, write_frames
from benchmarks.installed import Minibroker, install, install_checkout, install_compiled
from benchmarks.later_kafka import LaterKafka
from benchmarks.measurements import BEFORE, COMPILED, LATER_KAFKA, MINIBROKER, Run, Samples, interleave
from benchmarks.processes import (
    ProcessError,
    ServerProcess,
    free_port,
    module_command,
    run_json,
)
from benchmarks.topics import Broker

HERE = Path(__file__).resolve().parent
COMPILE_SECONDS = 60.0
READY_SECONDS = 60.0
GRACE_SECONDS = 60.0
RELAYED = "any"  # topic of a relay, which has whichever it is asked for
MAX_LOOP_SECONDS = 120.0
# Deleted topics' files go at once, not a minute later in another round: unmapping gigabytes takes CPU.
SETTINGS = {"log.segment.delete.delay.ms": "100"}
# Kafka's own log cleaner keeps 128 MB for compaction, which no case does; without it its memory compares fairly.
KAFKA_SETTINGS = {**SETTINGS, "log.cleaner.enable": "false"}


class CaseUnavailableError(RuntimeError):
    """A case cannot run on this machine; the message is the reason, in one line."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How long to measure: `volume` scales messages, requests and seconds."""

    rounds: int
    volume: float
    with_kafka: bool
    against: Path | None = None  # another checkout of minibroker
    with_compiled: bool = False  # minibroker's compiled form too

    def amount(self, full: int) -> int:
        return max(1, int(full * self.volume))


class Lab:
    """A context manager; it calls `say` with each event."""

    def __init__(self, plan: Plan, *, say: Callable[[str], None]) -> None:
        self.plan = plan
        self._say = say
        self._stack = ExitStack()
        self._folders = 0
        self._kafka_jars: Path | None = None
        self.kafka_reason = "left out by --against" if plan.against else "left out by --no-kafka"

    def __enter__(self) -> Lab:
        self.directory = Path(tempfile.mkdtemp(prefix="minibroker-bench-"))
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        if self.plan.with_kafka:
            try:
                self._kafka_jars = kafka_jars()
                self.kafka_reason = ""
                self.kafka.wait_until_ready()
            except (KafkaUnavailable, ProcessError) as reason:
                self._kafka_jars = None
                self.kafka_reason = str(reason)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def has_kafka(self) -> bool:
        return self._kafka_jars is not None

    def new_folder(self, purpose: str) -> Path:
        """A new folder."""
        self._folders += 1
        folder = self.directory / f"{purpose}-{self._folders}"
        folder.mkdir()
        return folder

    # -- brokers ------------------------------------------------------------------------------------------------

    @cached_property
    def builds(self) -> dict[str, Path]:
        """The Python of an installed, compiled minibroker by its name: this one, and the one it is compared with."""
        folder = self.new_folder("builds")  # a failure is to be told again by the next case
        pythons = {MINIBROKER: install(folder / "installed")}
        if self.plan.with_compiled:
            pythons[COMPILED] = install_compiled(folder / "installed-compiled")
        if self.plan.against is not None:
            pythons[BEFORE] = install_checkout(self.plan.against, folder / "installed-before")
        return pythons

    @cached_property
    def minibroker(self) -> Minibroker:
        """The minibroker that most cases share."""
        return self._stack.enter_context(self.new_minibroker())

    @cached_property
    def compiled(self) -> Minibroker:
        """The compiled form that most cases share; only where it takes part."""
        return self._stack.enter_context(self.new_minibroker(build=COMPILED))

    @cached_property
    def before(self) -> Minibroker:
        """The one of the other checkout that most cases share; only where there is one."""
        return self._stack.enter_context(self.new_minibroker(build=BEFORE))

    @cached_property
    def kafka(self) -> ApacheKafka:
        """The Apache Kafka that most cases share; only if `has_kafka`."""
        return self._stack.enter_context(self.new_kafka())

    @cached_property
    def later_kafka(self) -> LaterKafka:
        """The Apache Kafka of today, if `has_kafka`. It assigns with each heartbeat, as a local minibroker does."""
        release = LATER_KAFKA.rpartition(" ")[2]
        folder = self.new_folder("later-kafka")
        settings = {**KAFKA_SETTINGS, "group.consumer.assignment.interval.ms": "0"}
        return self._stack.enter_context(LaterKafka(folder, settings, release=release, heap="1g"))

    def new_minibroker(self, *options: str, build: str = MINIBROKER) -> Minibroker:
        """One of its own, started with these options of `serve`; not started yet, and its user closes it."""
        folder = self.new_folder("minibroker")
        return Minibroker(self.builds[build], folder, name=build, settings=SETTINGS, options=options)

    def new_kafka(self, settings: Mapping[str, object] | None = None) -> ApacheKafka:
        """A new Apache Kafka with its ZooKeeper, with these settings too; not started, its user closes it."""
        if self._kafka_jars is None:
            raise ProcessError(f"no Apache Kafka: {self.kafka_reason}")
        return ApacheKafka(self._kafka_jars, self.new_folder("kafka"), settings={**KAFKA_SETTINGS, **(settings or {})})

    def brokers(self) -> list[Broker]:
        """minibroker; its compiled form and the one of another checkout where asked for; Apache Kafka where present."""
        return [*self._own_brokers(), *([self.kafka] if self.has_kafka else [])]

    def brokers_of_today(self) -> list[Broker]:
        """The same with the Apache Kafka of today."""
        return [*self._own_brokers(), *([self.later_kafka] if self.has_kafka else [])]

    def _own_brokers(self) -> list[Broker]:
        brokers: list[Broker] = [self.minibroker]
        if self.plan.with_compiled:
            brokers.append(self.compiled)
        if self.plan.against is not None:
            brokers.append(self.before)
        return brokers

    def close_brokers(self) -> None:
        """End the shared brokers, so that a case is alone on the machine; they start anew when asked for."""
        for name in ("minibroker", "compiled", "before", "kafka", "later_kafka"):
            broker = self.__dict__.pop(name, None)
            if broker is not None:
                broker.kill()

    # -- load ---------------------------------------------------------------------------------------------------

    @cached_property
    def _loop_command(self) -> list[str | Path]:
        program = self._compiled("request_loop")
        return module_command("benchmarks.load.request_loop") if program is None else [program]

    @cached_property
    def _consumer_loop(self) -> Path:
        """The program; no client in Python keeps up with ten sessions. Raises CaseUnavailableError."""
        program = self._compiled("consumer_loop")
        if program is None:
            raise CaseUnavailableError("consumers with sessions need a C compiler (Debian: apt install gcc libc6-dev)")
        return program

    def _compiled(self, name: str) -> Path | None:
        compiler = shutil.which("cc")
        if compiler is None:
            return None
        program = self.directory / name
        command = [compiler, "-O2", "-o", str(program), str(HERE / "load" / f"{name}.c")]
        done = subprocess.run(command, timeout=COMPILE_SECONDS, check=False)
        return program if done.returncode == 0 else None

    @property
    def loop_language(self) -> str:
        """The language of the request loop."""
        return "Python" if self._loop_command[0] == sys.executable else "C"

    def request_loop(self, host: str, port: int, frames: Sequence[Frame], **options: float) -> dict[str, float]:
        """Run the request loop to its end. `options` are its flags: connections, depth, seconds, requests, gap_us."""
        folder = self.new_folder("loop")
        command = self._loop(folder, host, port, frames, options)
        return run_json(command, seconds=options.get("seconds", MAX_LOOP_SECONDS) + GRACE_SECONDS)

    def consumer_loop(self, broker: Broker, topic: str, appends: Sequence[Frame], **options: float) -> dict[str, float]:
        """Run consumers with fetch sessions to their end, one Produce frame for each partition of the topic.

        `options` are the flags of consumer_loop.c: consumers, partitions, seconds, append_every, wait_ms, gap_us.
        """
        file = write_frames(self.new_folder("loop") / "frames", appends)
        command: list[str | Path] = [self._consumer_loop, broker.host, str(broker.port), file, topic, *_flags(options)]
        return run_json(command, seconds=options.get("seconds", MAX_LOOP_SECONDS) + GRACE_SECONDS)

    @contextmanager
    def background_loop(self, host: str, port: int, frames: Sequence[Frame], **options: float) -> Iterator[None]:
        """The same, running while the block does, from the moment all its connections are at work."""
        folder = self.new_folder("loop")
        command = self._loop(folder, host, port, frames, options)
        with (folder / "errors").open("w+") as errors:
            process = subprocess.Popen(
                [str(part) for part in command], cwd=HERE.parent, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            try:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    raise ProcessError(f"a load client ended early: {(folder / 'errors').read_text()}")
                yield
                if process.poll() is not None:
                    raise ProcessError(f"a load client ended too early: {(folder / 'errors').read_text()}")
            finally:
                process.kill()
                process.communicate()

    def _loop(
        self, folder: Path, host: str, port: int, frames: Sequence[Frame], options: Mapping[str, float]
    ) -> list[str | Path]:
        file = write_frames(folder / "frames", frames)
        return [*self._loop_command, host, str(port), file, *_flags({"seconds": MAX_LOOP_SECONDS, **options})]

    def raw_server(
        self, kind: str, *, response_bytes: int, file: Path | None = None
    ) -> AbstractContextManager[ServerProcess]:
        """A raw-socket server: `echo`, `sendfile` or `sendfile-loop`."""
        of_file: list[str | Path] = [] if file is None else ["--file", file]
        return self._serving("raw_server", kind, "--response-bytes", str(response_bytes), *of_file)

    def relay(self, *options: str) -> AbstractContextManager[ServerProcess]:
        """A relay of messages between clients; its topic is RELAYED."""
        return self._serving("relay", *options)

    @contextmanager
    def _serving(self, module: str, *arguments: str | Path) -> Iterator[ServerProcess]:
        """A server of `load/`, whose last argument is its port."""
        port = free_port()
        server = ServerProcess(
            module,
            module_command(f"benchmarks.load.{module}", *arguments, str(port)),
            self.new_folder("raw") / "log",
            port=port,
            environment={"PYTHONPATH": str(HERE.parent)},
        )
        try:
            server.wait_for_port(READY_SECONDS).close()
            yield server
        finally:
            server.kill()

    # -- rounds -------------------------------------------------------------------------------------------------

    def interleave(self, what: str, runs: Mapping[str, Run], *, warm_ups: int = 1) -> Samples:
        """Run all contenders in turn for as many rounds as planned."""

        def on_round(number: int) -> None:
            which = "warm-up" if number < 0 else f"round {number + 1} of {self.plan.rounds}"
            self._say(f"{what}: {which}")

        return interleave(runs, rounds=self.plan.rounds, warm_ups=warm_ups, on_round=on_round)


def _flags(options: Mapping[str, float]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        flags += [f"--{name.replace('_', '-')}", f"{value:g}" if name == "seconds" else str(int(value))]
    return flags


def allow_many_connections(wanted: int) -> int:
    """Raise the limit on open files, for this process and its children; return how many connections fit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard - 500)
