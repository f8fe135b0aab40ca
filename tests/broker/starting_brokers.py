"""Brokers that start together over a journal of any length, and die or stand still meanwhile, are to be one cluster.

`python -m tests.broker.starting_brokers --rounds 200 --seed 1`. Each broker is a process that is only a member of the
cluster. A round draws how long the journal is and how its brokers ended, when each starts, and at which call to the
system some of them are killed (SIGKILL) or stopped (SIGSTOP). Those that run are to agree while others are stopped;
then the others go on or start again, at last all are killed and start at one moment, and all are to agree each time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import trio

from minibroker.broker.cluster.state import Change
from minibroker.broker.wings.several.member import ClusterMember
from minibroker.broker.wings.several.shared_state import COMPACTED_BYTES, SharedState
from minibroker.storage.files import disk
from tests.broker.state_promises import TOPIC, broker_at, with_isr

# To the system, by the module where the journal finds them.
CALLS = [
    (disk, name)
    for name in ("open_file", "pread", "write", "rename", "listdir", "remove", "close", "fdatasync", "fsync")
]
CALLS_MAX = 50  # of a start, and some more
SESSION_TIMEOUT_MS = 300
DISTANCE_SECONDS = 0.02
START_SECONDS = 0.03  # from the first fork to the first start
AGREED_SECONDS = 30.0
POLL_SECONDS = 0.01
TOPICS_OF_EACH = 3
READ_BYTES = 1 << 20

Report = dict[str, Any]


class Trap(NamedTuple):
    """A signal that a broker gets before a call to the system, the first of which has the number 1.

    It is killed in the middle of a write.
    """

    number: int
    signal: signal.Signals


NO_TRAP = Trap(0, signal.SIGKILL)


class Brokers:
    """The processes of a round."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory = directory
        self.count = count
        self.pids: dict[int, int] = {}
        self.stopped: set[int] = set()
        self.reports: dict[int, Report] = {}
        self.stored: set[str] = set()
        self._selector = selectors.DefaultSelector()

    def start(self, starts: Mapping[int, float], traps: Mapping[int, Trap] | None = None) -> None:
        """Start brokers, each so many seconds after the first one could."""
        first = time.monotonic() + START_SECONDS
        for broker_id, seconds in starts.items():
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                live(self.directory, broker_id, first + seconds, (traps or {}).get(broker_id, NO_TRAP), writing)
            os.close(writing)
            self.pids[broker_id] = pid
            self._selector.register(open(reading, "rb", buffering=0), selectors.EVENT_READ, broker_id)  # noqa: SIM115

    def kill(self) -> None:
        """Kill all."""
        for pid in self.pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.pids.clear()
        self.stopped.clear()
        self.reports.clear()

    def go_on(self) -> None:
        for broker_id in self.stopped:
            os.kill(self.pids[broker_id], signal.SIGCONT)
            self.reports.pop(broker_id, None)
        self.stopped.clear()

    def agree(self) -> None:
        """Wait until all that run report one cluster. Raises AssertionError with what they report."""
        deadline = time.monotonic() + AGREED_SECONDS
        while True:
            self._hear()
            running = self.pids.keys() - self.stopped
            if not running or self._are_one(running):
                return
            assert time.monotonic() < deadline, f"{len(running)} run, and report {self._shown()}"

    def _are_one(self, running: set[int]) -> bool:
        reports = [self.reports.get(each) for each in running]
        first = reports[0]
        return (
            first is not None
            and all(each is not None and each["cluster"] == first["cluster"] for each in reports)
            and all(each["is_at_path"] for each in reports if each is not None)
            and running <= set(first["cluster"]["lives"]) <= running | self.stopped
            and first["cluster"]["controller"][0] in running
            and sum(each["is_controller"] for each in reports if each is not None) == 1
            and self.stored <= set(first["cluster"]["topics"])
        )

    def _shown(self) -> str:
        for each in self.reports.values():
            missing = sorted(self.stored - set(each["cluster"]["topics"]))
            each["cluster"]["topics"] = f"{len(each['cluster']['topics'])} of {len(self.stored)}, without {missing}"
        return json.dumps(self.reports, indent=1)

    def _hear(self) -> None:
        """Note what brokers report, and who has been killed or stopped."""
        for key, _ in self._selector.select(POLL_SECONDS):
            content = os.read(key.fd, READ_BYTES)
            if not content:
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
                continue
            while not content.endswith(b"\n"):
                content += os.read(key.fd, READ_BYTES) or b"\n"
            for line in content.splitlines():
                if line.endswith(b"}"):
                    self.reports[key.data] = json.loads(line)
                    self.stored.update(self.reports[key.data]["stored"])
        for broker_id, pid in list(self.pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if ended and os.WIFSTOPPED(status):
                self.stopped.add(broker_id)
            elif ended:
                assert os.WIFSIGNALED(status), f"broker {broker_id} has ended with status {status}"
                del self.pids[broker_id]
                self.reports.pop(broker_id, None)


def live(directory: Path, broker_id: int, at: float, trap: Trap, reporting: int) -> None:
    """Be a broker, in a process of its own."""
    status = 1
    try:
        time.sleep(max(0.0, at - time.monotonic() - 0.001))
        while time.monotonic() < at:
            pass
        set_trap(trap)
        state = SharedState(directory, broker_id)
        state.open()
        trio.run(LightBroker(state, broker_id, reporting).run)
        status = 0
    except BaseException as error:
        print(f"broker {broker_id}: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def set_trap(trap: Trap) -> None:
    left = trap.number

    def called(name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            if name == "write" and trap.signal is signal.SIGKILL:
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            os.kill(os.getpid(), trap.signal)
        return real(*arguments, **named)

    if left:
        for module, name in CALLS:
            setattr(module, name, partial(called, name, getattr(module, name)))


class LightBroker:
    """A member that stores a few topics, and reports what it sees of the cluster."""

    def __init__(self, state: SharedState, broker_id: int, reporting: int) -> None:
        self._state = state
        self._broker_id = broker_id
        self._reports = open(reporting, "wb", buffering=0)  # noqa: SIM115
        self._stored: list[str] = []
        self._parent_pid = os.getppid()
        self._reported = b""
        self._member = ClusterMember(
            state,
            broker_id=broker_id,
            broker=lambda: broker_at(broker_id),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            on_news=lambda news: None,
            on_beat=self._beat,
        )

    async def run(self) -> None:
        await self._member.run()

    def _beat(self) -> None:
        if os.getppid() != self._parent_pid:
            os._exit(1)
        state = self._state
        if len(self._stored) < TOPICS_OF_EACH:
            name = f"of-{self._broker_id}-{os.getpid()}-{len(self._stored)}"
            while not state.save("a topic", Change({name: TOPIC._replace(name=name)})):
                pass
            self._stored.append(name)
        report = {
            "cluster": {
                "journal": os.fstat(state._journal._fd).st_ino,
                "cluster_id": state.cluster_id,
                "controller": [state.controller_id, state.controller_epoch],
                "lives": sorted(state.lives),
                "incarnations": sorted(life.incarnation for life in state.lives.values()),
                "topics": {
                    name: sum(each.state_version for each in topic.partitions.values())
                    for name, topic in state.topics.items()
                },
            },
            "is_at_path": os.path.samestat(os.fstat(state._journal._fd), os.stat(state.directory / "state")),
            "is_controller": state.is_controller,
            "stored": self._stored,
        }
        line = json.dumps(report).encode() + b"\n"
        if line != self._reported:
            self._reported = line
            self._reports.write(line)


class Round(NamedTuple):
    """The brokers of a round, and what befalls them."""

    brokers: int
    journal_bytes: int
    topics_bytes: int  # of the journal, what its topics need
    ends_killed: bool
    starts: dict[int, float]
    traps: dict[int, Trap]
    second_starts: dict[int, float]


def draw(source: random.Random) -> Round:
    ids = range(1, source.randint(3, 5) + 1)
    limits = source.choice((COMPACTED_BYTES, READ_BYTES)) + source.randint(-300, 300)
    size = source.choice((0, limits, limits, source.randint(1, 10 << 17), source.randint(1, 10 << 20)))
    # Longer than half of the journal, it is not written anew.
    topics = int(size * source.choice((0, 0, 0.1, source.uniform(0.4, 0.6), 1)))

    def starts() -> dict[int, float]:
        distance = source.choice((0.0, DISTANCE_SECONDS))
        return {each: source.uniform(0, distance) for each in source.sample(ids, len(ids))}

    signals = (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)
    trapped = source.sample(ids, source.randint(0, len(ids)))
    traps = {each: Trap(source.randint(1, CALLS_MAX), source.choice(signals)) for each in trapped}
    return Round(len(ids), size, topics, source.random() < 0.6, starts(), traps, starts())


def write_journal(directory: Path, drawn: Round) -> set[str]:
    """Write the journal that earlier brokers have left; return its topics."""
    if not drawn.journal_bytes:
        return set()
    states = {}
    for broker_id in range(1, drawn.brokers + 1):
        state = states[broker_id] = SharedState(directory, broker_id)
        state.open()
        state.register(broker_at(broker_id))
    first = states[1]
    first.claim_controller()
    names: list[str] = []
    while first._journal.position < drawn.topics_bytes or not names:
        names.append(f"topic-{len(names)}")
        text = "x" * min(50_000, drawn.topics_bytes)
        first.save("a topic", Change({names[-1]: TOPIC._replace(name=names[-1], configs={"text": text})}))
    line_bytes = max(20, drawn.journal_bytes // 100)
    while first._journal.position < drawn.journal_bytes:
        topic = with_isr(first.topics[names[0]], 0, (1,))
        room = drawn.journal_bytes - first._journal.position
        configs = {"text": f"{topic.partitions[0].state_version:0{min(line_bytes, max(20, room - 500))}}"}
        assert first.save("a topic", Change({topic.name: topic._replace(configs=configs)}))
    for state in reversed(states.values()):
        if drawn.ends_killed:
            state.locks.release()
            state._journal.close()
        else:
            state.close()
    return set(names)


def play(seed: int) -> str:
    """Play a round; return what it was. Raises AssertionError."""
    drawn = draw(random.Random(seed))
    directory = Path(tempfile.mkdtemp(prefix=f"starting-{seed}-"))
    brokers = Brokers(directory, drawn.brokers)
    try:
        brokers.stored = write_journal(directory, drawn)
        path = directory / "state"
        before = path.stat().st_size if path.exists() else 0
        brokers.start(drawn.starts, drawn.traps)
        brokers.agree()
        seen = f"{drawn.brokers - len(brokers.pids)} killed, {len(brokers.stopped)} stopped"
        brokers.go_on()
        brokers.start({each: at for each, at in drawn.second_starts.items() if each not in brokers.pids})
        brokers.agree()
        between = path.stat().st_size
        brokers.kill()
        brokers.start(dict.fromkeys(range(1, drawn.brokers + 1), 0.0))
        brokers.agree()
        assert [*directory.glob("state*")] == [path], "files are left over"
        return f"seed {seed}: journal {before} -> {between} -> {path.stat().st_size}, {drawn.brokers} brokers, {seen}"
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}\n{drawn}") from error
    finally:
        brokers.kill()
        shutil.rmtree(directory)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.broker.starting_brokers")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next has one more")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.rounds):
        try:
            print(play(seed), flush=True)
        except AssertionError as error:
            wrong += 1
            print(error, flush=True)
    print(f"{options.rounds - wrong} of {options.rounds} rounds ended as one cluster")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
