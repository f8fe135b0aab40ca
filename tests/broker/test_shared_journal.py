"""A long journal is continued by a short one, while brokers start, change it, stand still and die."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.cluster.sections import NEXT_PRODUCER_ID
from minibroker.broker.cluster.state import (
    NO_CONTROLLER,
    BrokerGone,
    BrokerReturned,
    Change,
    ControllerChanged,
)
from minibroker.broker.wings.several.shared_journal import SharedJournal
from minibroker.broker.wings.several.shared_state import COMPACTED_BYTES, SharedState, SharedStateError
from tests.broker.starting_brokers import CALLS
from tests.broker.state_promises import TOPIC, broker_at, with_isr


class Killed(BaseException):
    """Ends a broker as kill -9 does."""


class Paused:
    """Does something before one of the calls to the system in its block, of which the first has the number 1.

    To the broker of the block it is as if it had been stopped (SIGSTOP) for that time. Python collects no garbage
    meanwhile: files of earlier tests would be closed by calls that count here.
    """

    def __init__(self, number: int, meanwhile: Callable[[], object]) -> None:
        self.left = number
        self._meanwhile = meanwhile
        self._real = [(module, name, getattr(module, name)) for module, name in CALLS]

    def __enter__(self) -> Paused:
        gc.disable()
        for module, name, real in self._real:
            setattr(module, name, partial(self._call, real))
        return self

    def __exit__(self, *error: object) -> None:
        for module, name, real in self._real:
            setattr(module, name, real)
        gc.enable()

    def _call(self, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.__exit__()
            self._meanwhile()
            self.__enter__()
        return real(*arguments, **named)


class Brokers:
    """Brokers on one directory, and the topics that they were told are stored."""

    def __init__(self, directory: Path, stored: Iterable[str] = ()) -> None:
        self.directory = directory
        self.running: dict[int, SharedState] = {}
        self.stored = set(stored)

    def open(self, broker_id: int) -> SharedState:
        state = self.running[broker_id] = SharedState(self.directory, broker_id)
        state.open()
        return state

    def join(self, broker_id: int) -> None:
        state = self.running[broker_id]
        state.register(broker_at(broker_id))
        if state.controller_id == NO_CONTROLLER:
            state.claim_controller()
        self.change(broker_id)

    def start(self, broker_id: int) -> None:
        self.open(broker_id)
        self.join(broker_id)

    def change(self, broker_id: int) -> None:
        """Make a topic, and again if others have changed the state meanwhile."""
        name = f"topic-{len(self.stored)}-of-{broker_id}"
        while not self.running[broker_id].save("a topic", Change({name: TOPIC._replace(name=name)})):
            pass
        self.stored.add(name)

    def grow(self, broker_id: int) -> None:
        """Change a topic until the journal is long."""
        state = self.running[broker_id]
        while state._journal.position <= COMPACTED_BYTES:
            topic = with_isr(state.topics["topic-0-of-1"], 0, (1,))
            configs = {"text": f"{state._journal.position:020000}"}
            assert state.save("a topic", Change({topic.name: topic._replace(configs=configs)}))

    def kill(self, broker_id: int) -> None:
        """Drop what the kernel would."""
        state = self.running.pop(broker_id)
        state.locks.release()
        if hasattr(state, "_journal"):
            state._journal.close()

    def close(self) -> None:
        for broker_id in [*self.running]:
            self.kill(broker_id)

    def assert_they_agree(self) -> None:
        """They have one journal, the one at the path, and read the same in it; it has all that was stored."""
        for _ in range(2):  # a change of the first one shows to the others
            for state in self.running.values():
                state.look()
                if state.controller_id == NO_CONTROLLER:
                    state.claim_controller()
        path = self.directory / "state"
        one, *others = self.running.values()
        for state in (one, *others):
            assert os.path.samestat(os.fstat(state._journal._fd), path.stat())
            assert state.is_registered
            assert state.topics.keys() >= self.stored
            assert state._known() == one._known()
            assert state.cluster_id == one.cluster_id
        assert [each.is_controller for each in self.running.values()].count(True) == 1


Copies = Callable[[], Brokers]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Brokers:
    """Brokers 1 to 3, of which the first controlled, after kill -9 of all; their journal is long."""
    brokers = Brokers(tmp_path_factory.mktemp("killed"))
    for broker_id in (1, 2, 3):
        brokers.start(broker_id)
    brokers.grow(1)
    brokers.close()
    return brokers


@pytest.fixture
def brokers(killed: Brokers, tmp_path: Path) -> Iterator[Copies]:
    """Gives copies of the killed ones."""
    numbers = count()
    copies = []

    def copied() -> Brokers:
        copies.append(Brokers(shutil.copytree(killed.directory, tmp_path / str(next(numbers))), set(killed.stored)))
        return copies[-1]

    yield copied
    for each in copies:
        each.close()


def has_read(brokers: Brokers) -> None:
    brokers.open(2)
    brokers.start(3)
    brokers.grow(3)
    brokers.kill(3)


def runs(brokers: Brokers) -> None:
    brokers.start(2)
    brokers.grow(2)


MEANWHILE: dict[str, tuple[Callable[[Brokers], object], Callable[[Brokers], object]]] = {
    "another starts": (lambda brokers: None, lambda brokers: brokers.start(2)),
    "another that has read it joins": (has_read, lambda brokers: brokers.join(2)),
    "another that runs changes it": (runs, lambda brokers: brokers.change(2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True], ids=["goes on", "is killed"])
@pytest.mark.parametrize(("before", "meanwhile"), MEANWHILE.values(), ids=MEANWHILE.keys())
def test_a_broker_is_stopped_at_any_point_of_its_start(
    brokers: Copies,
    before: Callable[[Brokers], object],
    meanwhile: Callable[[Brokers], object],
    is_killed: bool,
) -> None:
    is_compacted = set()
    for number in count(1):
        cluster = brokers()
        before(cluster)

        def elsewhere(cluster: Brokers = cluster) -> None:
            meanwhile(cluster)
            if is_killed:
                raise Killed

        with Paused(number, elsewhere) as paused, suppress(Killed):
            cluster.start(1)
        if paused.left > 0:
            break
        is_compacted.add((cluster.directory / "state").stat().st_size < COMPACTED_BYTES)
        if is_killed:
            cluster.kill(1)
            cluster.start(1)
        cluster.start(3)
        cluster.assert_they_agree()
        assert [*cluster.directory.glob("state*")] == [cluster.directory / "state"]
    assert True in is_compacted


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [6, pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)])])
def test_brokers_that_start_together_and_die_meanwhile_are_one_cluster(rounds: int) -> None:
    command = [sys.executable, "-m", "tests.broker.starting_brokers", "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_broker_that_runs_reads_on_without_news(brokers: Copies) -> None:
    cluster = brokers()
    cluster.start(1)
    cluster.start(2)
    cluster.grow(2)
    before = cluster.running[1].topics["topic-0-of-1"]
    cluster.running[1].look()
    cluster.running[1].take_news()
    cluster.open(3)
    assert (cluster.directory / "state").stat().st_size < COMPACTED_BYTES / 2
    cluster.running[1].look()
    assert cluster.running[1].take_news() == []
    assert cluster.running[1].topics["topic-0-of-1"] != before
    cluster.join(3)
    cluster.assert_they_agree()


def test_a_broker_that_has_missed_a_journal_has_the_differences_as_news(brokers: Copies) -> None:
    cluster = brokers()
    cluster.start(1)
    cluster.start(2)
    still, second = cluster.running.values()
    cluster.grow(2)
    still.look()
    still.take_news()

    cluster.start(3)
    second.look()
    second.end_life_of(1)
    second.claim_controller()
    moved = with_isr(second.topics["topic-2-of-3"], 0, (1,))
    assert second.save("changes", Change({"topic-1-of-2": None, "topic-2-of-3": moved}, {NEXT_PRODUCER_ID: 1000}))
    cluster.grow(2)
    cluster.kill(3)
    cluster.start(3)

    still.look()
    *others, change = still.take_news()
    assert others == [BrokerGone(1), BrokerGone(3), BrokerReturned(3), ControllerChanged(2)]
    assert isinstance(change, Change)
    assert change.topics.keys() == {f"topic-{each}" for each in ("0-of-1", "1-of-2", "2-of-3", "5-of-3", "6-of-3")}
    assert (change.topics["topic-1-of-2"], change.topics["topic-2-of-3"]) == (None, moved)
    assert change == Change(change.topics, {NEXT_PRODUCER_ID: 1000})
    still.register(broker_at(1))
    cluster.stored.remove("topic-1-of-2")
    cluster.assert_they_agree()


def test_a_line_after_the_end_is_void_and_put_into_the_next_journal_unless_it_may_be_stale(brokers: Copies) -> None:
    cluster = brokers()
    first = cluster.open(1)
    first.register(broker_at(1))
    cluster.grow(1)
    cluster.open(2)
    topic = with_isr(first.topics["topic-0-of-1"], 0, (1, 2))
    assert not first.save("the ISR", Change({"topic-0-of-1": topic}))
    assert first.save("the ISR", Change({"topic-0-of-1": topic}))
    cluster.grow(1)
    cluster.open(3)
    assert first.claim_controller()
    for broker_id in (2, 3):
        cluster.join(broker_id)
    cluster.assert_they_agree()


def test_a_journal_that_does_not_become_much_shorter_stays(brokers: Copies) -> None:
    cluster = brokers()
    cluster.start(1)
    for number in range(3):
        topic = TOPIC._replace(configs={"text": f"{number:040000}"})
        assert cluster.running[1].save("a topic", Change({f"long-{number}": topic}))
    path = cluster.directory / "state"
    before = path.stat()
    assert before.st_size > COMPACTED_BYTES
    cluster.start(2)
    assert os.path.samestat(before, path.stat())
    assert [*cluster.directory.glob("state*")] == [path]


def test_a_file_that_should_continue_the_journal_and_is_gone_is_an_error(brokers: Copies) -> None:
    cluster = brokers()
    cluster.start(1)
    path = cluster.directory / "state"
    cluster.running[1]._journal.append({"ends_after": path.stat().st_size, "continued_by": "state.2.gone"})
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match=r"state\.2\.gone"):
            cluster.running[1].look()
    with pytest.raises(SharedStateError, match=r"cannot use the cluster's directory .*: No such file or directory"):
        SharedState(cluster.directory, 2).open()


def test_a_line_that_comes_between_keeps_the_journal(tmp_path: Path) -> None:
    journal, other = SharedJournal(tmp_path / "state"), SharedJournal(tmp_path / "state")
    journal.append({"text": "x" * 100})
    assert len([*journal.read()]) == len([*other.read()]) == 1
    other.append({"b": 1})
    journal.compact("state.1.new", [{"a": 1}])
    other.append({"c": 1})
    for each in (journal, other):
        assert [line for _, line in each.read() if "ends_after" not in line] == [{"b": 1}, {"c": 1}]
        assert each.continued_by is None


def test_a_broker_removes_only_files_of_its_killed_predecessor(brokers: Copies) -> None:
    cluster = brokers()
    for broker_id in (1, 2, 11):
        (cluster.directory / f"state.{broker_id}.left").touch()
    cluster.start(1)
    assert {each.name for each in cluster.directory.glob("state*")} == {"state", "state.2.left", "state.11.left"}
