"""Recorded sessions of a terminal: `minibroker` commands, and what each prints.

`tests/golden/commands/*.txt` have them, each under a title that states a behaviour. `python -m
tests.minibroker.command_sessions [FILE...]` runs them again and writes down what they print: read the diff.

    broker log.segment.bytes=100       above the first title: there is a broker, with these settings; without it none
    brokers 3                          there is a cluster, of so many brokers; `>` calls its verbs
    begin minibroker topics list       what is run as the broker starts
    console                            the broker has a console
    control                            the broker has a control socket, and its commands know it
    also kafka-python                  the commands use this client too, in turn after librdkafka
    also Apache Kafka 2.0.1            `make nightly` compares with it too, or with 3.9.1 or 4.4.0
    == a topic is created              a session, in an empty directory; the broker has no topics and groups
    $ minibroker topics create t       a command; `printf 'a' | ...` is its standard input, `... | grep WORD` filters
    $ yes 'a' | head -9 > file         writes a file
    $ NAME=value minibroker ...        changes the environment of a command
    $ curl -X POST /path -d '{}'       asks the console, with its token: the status, and the body as lines of JSON
    > write "t", ["a", "b"]            clients: a method of `Records`; what it opens stays to the end of the session
    created: t                         standard output
    ! minibroker: an error             standard error
    [1]                                an exit status other than 0

`FOLDER`, `HOST:PORT`, `TIME`, `MILLISECONDS`, `ID` and `UUID` stand for what differs from run to run.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from benchmarks.later_kafka import LaterKafka
from minibroker import Broker, Cluster, administration
from minibroker.cli.app import main
from minibroker.cli.parameters import CONTROL_VARIABLE
from minibroker.errors import BrokerError
from tests.books import GOLDEN, read_texts, record_files
from tests.console.asking import ask
from tests.console.conftest import RunningConsole, console_of
from tests.jvm import QUICK_JVM
from tests.minibroker.records_by_hand import Records

BOOKS = GOLDEN / "commands"
FIVE = ["a", "b", "c", "d", "e"]
LIBRDKAFKA = "minibroker.any_cluster.librdkafka"
OF_MINIBROKER = ("minibroker", "kafka-python")
console: RunningConsole | None = None  # of the book that is served
cluster: Cluster | None = None
NOWHERE = "127.0.0.1:9"
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
MASKS = (
    (re.compile(r'(?<="directory": ")[^"]*'), "FOLDER"),
    (re.compile(r"\b202[4-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"(?<![\w.])1[789]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r'(?<="producer_id": )\d+'), "ID"),
    (re.compile(r'(?<="leader_epoch": )\d+|(?<=leader {8})\d|(?<=follower {6})\d'), "E"),
    (re.compile(r'(?<="seconds": )[\d.e-]+'), "SECONDS"),
    (re.compile(r'(?<="held_ms": )\d+|(?<="left_ms": )\d+'), "MILLISECONDS"),
    (re.compile(r"\b\d\.\d s +(2[5-9]|30)\.\d s"), "HELD  LEFT"),
    (re.compile(r'(?<="rate": )(null|[\d.e-]+)'), "RATE"),
    (re.compile(r'(?<="points": )\[\[.*?\]\]'), "POINTS"),
    (re.compile(r'(?<="cluster_id": ")[\w-]{22}'), "ID"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
)


class Session(NamedTuple):
    title: str
    steps: list[str]
    text: str


class Book(NamedTuple):
    """A file of sessions."""

    path: Path
    head: str
    sessions: list[Session]

    def after(self, word: str) -> list[str]:
        """Return what follows this word in lines of the head."""
        return [line.removeprefix(word).strip() for line in self.head.splitlines() if line.split()[:1] == [word]]

    @property
    def has_broker(self) -> bool:
        return bool(self.after("broker") or self.after("brokers"))


def read_book(path: Path) -> Book:
    head, *parts = read_texts(path)
    return Book(path, head, [read_session(part.rstrip("\n")) for part in parts])


def read_session(text: str) -> Session:
    title, *lines = text.splitlines()
    return Session(title.removeprefix("== "), [line for line in lines if line[:2] in ("$ ", "> ")], text)


def books() -> list[Book]:
    return [read_book(path) for path in sorted(BOOKS.glob("*.txt"))]


@contextmanager
def serving(book: Book, directory: Path, kind: str = "minibroker") -> Iterator[str]:
    """A broker as the book wants it; its address."""
    settings = dict(each.split("=", 1) for line in book.after("broker") for each in line.split())
    with ExitStack() as stack:
        if not book.has_broker:
            bootstrap = NOWHERE
        elif book.after("brokers"):
            started = stack.enter_context(Cluster(int(book.after("brokers")[0]), settings=settings))
            stack.enter_context(patch.object(sys.modules[__name__], "cluster", started))
            bootstrap = started.bootstrap_servers
        elif kind in OF_MINIBROKER:
            if kind == "kafka-python":  # as if confluent-kafka were not installed
                stack.callback(sys.modules.__setitem__, LIBRDKAFKA, import_module(LIBRDKAFKA))
                sys.modules[LIBRDKAFKA] = None  # type: ignore[assignment]
            broker = stack.enter_context(Broker(settings=SETTINGS | settings, control=bool(book.after("control"))))
            bootstrap = broker.bootstrap_servers
            if broker.control_path is not None:
                stack.enter_context(patch.dict(os.environ, {CONTROL_VARIABLE: str(broker.control_path)}))
        elif kind == "Apache Kafka 2.0.1":
            kafka = ApacheKafka(kafka_jars(), directory, settings=settings, heap="512m")
            bootstrap = stack.enter_context(kafka).bootstrap
        else:
            later = LaterKafka(directory, settings, release=kind.removeprefix("Apache Kafka "), java_options=QUICK_JVM)
            stack.callback(later.kill)
            bootstrap = later.start().bootstrap
        for line in book.after("begin"):
            assert main([*shlex.split(line)[1:], "-b", bootstrap]) == 0
        if book.after("console"):
            socket = ["--control", os.environ[CONTROL_VARIABLE]] if book.after("control") else []
            running = stack.enter_context(console_of(bootstrap, "--allow-changes", *socket))
            stack.enter_context(patch.object(sys.modules[__name__], "console", running))
        yield bootstrap


def held(session: Session, bootstrap: str, directory: Path) -> str:
    """The session with what its commands print now, as a file has it."""
    if cluster is not None:
        cluster.reset()
    elif bootstrap != NOWHERE:
        with administration.connected(bootstrap) as connection:
            administration.empty(connection)
    lines = [f"== {session.title}"]
    environment = {"MINIBROKER_BOOTSTRAP": bootstrap, "NO_COLOR": "1"}
    with ExitStack() as stack, chdir(directory), patch.dict(os.environ, environment):
        for step in session.steps:
            printed = command(step[2:]) if step.startswith("$ ") else asked(step[2:], bootstrap, stack)
            lines += [step, *(masked(line, bootstrap, directory) for line in printed)]
    return "\n".join(lines)


def command(line: str) -> list[str]:
    """Return what a line typed at a terminal prints."""
    words, pattern, data = shlex.split(line), "", b""
    if words[-3:-1] == ["|", "grep"]:
        words, pattern = words[:-3], words[-1]
    if re.match("[A-Z_]+=", words[0]):
        with patch.dict(os.environ, [words[0].split("=", 1)]):
            return command(shlex.join(words[1:]))
    if words[0] == "curl":
        return [each for each in answer(words[1:]) if re.search(pattern, each)]
    if words[0] in ("printf", "yes"):
        data, words = words[1].encode("latin-1").decode("unicode_escape").encode("latin-1"), words[2:]
        if words[:2] == ["|", "head"]:
            data, words = (data + b"\n") * int(words[2][1:]), words[3:]
        if words[0] == ">":
            Path(words[1]).parent.mkdir(exist_ok=True)
            Path(words[1]).write_bytes(data)
            return []
        words = words[1:]
    status, out, err = run(words[1:], data)
    return [
        *(each.rstrip() for each in out.splitlines() if re.search(pattern, each)),
        *(f"! {each}" for each in err.splitlines()),
        *([f"[{status}]"] if status else []),
    ]


def answer(words: list[str]) -> list[str]:
    """The status and the body that the console answers with; of an answer with rows each row is a line."""
    method = words[1] if words[0] == "-X" else "GET"
    path = words[2] if words[0] == "-X" else words[0]
    assert console is not None
    found = ask(console, method, path, words[-1].encode() if "-d" in words else None, token=True)
    return [str(found.status), *shown(found.json)]


def shown(document: Any) -> list[str]:
    """JSON with a line for each value of the document, and for each element of a list in it."""
    lines = []
    for name, value in document.items():
        if isinstance(value, list) and value:
            lines += [f"  {name}:", *(f"    {json.dumps(each, ensure_ascii=False)}" for each in value)]
        else:
            lines.append(f"  {name}: {json.dumps(value, ensure_ascii=False)}")
    return lines


def run(arguments: list[str], data: bytes) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `minibroker`."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="surrogateescape") for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data))):
        status = main(arguments)
    for stream in (out, err):
        stream.seek(0)
    return status, out.read(), err.read()


def asked(call: str, bootstrap: str, stack: ExitStack) -> list[str]:
    """Return what a client's call returns."""
    name, _, arguments = call.partition(" ")
    if cluster is not None:
        eval(f"verb({arguments})", {"verb": getattr(cluster, name), "cluster": cluster, "has_no_leader": has_no_leader})
        return []
    verb = getattr(Records(bootstrap), name)
    found = eval(f"verb({arguments})", {"verb": verb, "FIVE": FIVE})
    if isinstance(found, AbstractContextManager):
        stack.enter_context(found)
        return []
    return [] if found is None else [repr((each.key, each.value, each.headers)) for each in found]


def has_no_leader(topic: str) -> bool:
    """Whether no broker of the cluster leads partition 0."""
    assert cluster is not None
    try:
        cluster.leader_of(topic)
    except BrokerError:
        return True
    return False


def masked(line: str, bootstrap: str, directory: Path) -> str:
    if bootstrap != NOWHERE:
        for address in bootstrap.split(","):
            line = line.replace(address, "HOST:PORT")
    line = line.replace(str(directory), "FOLDER")
    for pattern, name in MASKS:
        line = pattern.sub(name, line)
    return line


def held_again(path: Path) -> Iterator[str]:
    book = read_book(path)
    with tempfile.TemporaryDirectory() as directory, serving(book, Path(directory)) as bootstrap:
        yield book.head
        for number, session in enumerate(book.sessions):
            folder = Path(directory) / str(number)
            folder.mkdir()
            yield held(session, bootstrap, folder)


if __name__ == "__main__":
    record_files(BOOKS, held_again)
