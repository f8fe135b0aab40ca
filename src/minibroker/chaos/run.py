"""One test under one plan, in a pytest of its own: makes the faults when the test is called, writes what came of it.

Each broker that the test's process starts gets a control socket, and for the run without faults a transcript. The
faults strike from the call of the test to its end, in brokers that it starts itself from their start; neither its
fixtures nor what the methods of `Broker` and `Cluster` ask is struck.
"""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.administered import Administered
from minibroker.chaos.trials import TEMPORARY
from minibroker.client.coordinators import OF_GROUPS, OF_TRANSACTIONS, at_coordinators
from minibroker.cluster import Cluster
from minibroker.errors import BrokerError
from minibroker.faults import Call, Fault
from minibroker.process import Broker
from minibroker.protocol.api import TESTS_CLIENT_ID, ApiKey
from minibroker.protocol.client_ids import OF_TOOLS

BETWEEN_BROKERS = re.compile(r"broker-\d+(-.*)?")
OF_OTHER_RUNS = {
    "usepdb": False,
    "trace": False,
    "lf": False,
    "failedfirst": False,
    "newfirst": False,
    "stepwise": False,
}

# What a test asks a broker, or a cluster. Where an action of a fault comes in between, it is asked again,
READING = [(Administered, "records"), (Administered, "topics"), (Broker, "lag")]
# and this waits for the action, or the action for this: it may not be done twice.
WRITING = [
    *((Administered, name) for name in ("produce", "add_acls", "remove_acls", "add_users", "remove_users")),
    *((kind, name) for kind in (Broker, Cluster) for name in ("create_topic", "reset")),
]
FAIL_OVER_SECONDS = 5.0  # from the death of a leader
RESTART_SECONDS = 30.0
POLL_SECONDS = 0.02

# The brokers of the session's fixtures, by the fixtures' names.
Fixtures = Callable[[], dict[str, Broker | Cluster | None]]


class Actions:
    """The actions of faults, such as a restart, in threads beside the test."""

    def __init__(self) -> None:
        self._turn = threading.RLock()
        self._begun = self._ended = 0
        self._ended_at = -math.inf

    def acting(self, action: Callable[..., object]) -> Callable[..., object]:
        """The action, which takes its turn with what a test asks."""

        def act(*arguments: int) -> None:
            with self._turn:
                self._begun += 1
                try:
                    action(*arguments)
                finally:
                    self._ended += 1
                    self._ended_at = time.monotonic()

        return act

    def writing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any, **named: Any) -> Any:
            with self._turn:
                return method(*arguments, **named)

        return asked

    def reading(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(broker: Administered, *arguments: Any, **named: Any) -> Any:
            deadline = time.monotonic() + RESTART_SECONDS
            while True:
                ended = self._ended
                try:
                    return method(broker, *arguments, **named)
                except BrokerError:
                    fails_over = isinstance(broker, Cluster) and time.monotonic() < self._ended_at + FAIL_OVER_SECONDS
                    if not (self._begun > ended or fails_over) or time.monotonic() > deadline:
                        raise
                    time.sleep(POLL_SECONDS)

        return asked


class ChaosRun:
    """The plugin of such a pytest. `order` is the file of `Order` in trials.py."""

    def __init__(self, config: pytest.Config, order: Path, fixtures: Fixtures) -> None:
        self._order: dict[str, Any] = json.loads(order.read_text())
        self._folder = order.parent
        self._fixtures = fixtures
        self._brokers: list[Broker] = []
        self._clusters: list[Cluster] = []
        self._places: dict[int, str] = {}  # by the number of the broker
        self._made: dict[str, Fault | Call] = {}  # by line
        self._impossible: dict[str, str] = {}
        self._called_ns: tuple[int, int] | None = None
        self._reports: list[pytest.TestReport] = []
        config.args[:] = [str(config.rootpath / self._order["test"])]
        for name, value in (OF_OTHER_RUNS | {"xmlpath": None}).items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        self._watch_brokers()

    def _watch_brokers(self) -> None:
        init, ready, start = Broker.__init__, Broker.await_ready, Cluster.start

        def made(broker: Broker, **arguments: Any) -> None:
            arguments["control"] = True
            if self._order["is_recorded"]:
                arguments["transcript"] = self._folder / f"{len(self._brokers)}.transcript"
            self._brokers.append(broker)
            init(broker, **arguments)
            self._note(broker)

        def awaited(broker: Broker, **arguments: Any) -> Broker:
            ready(broker, **arguments)
            if self._called_ns is not None and broker._cluster_dir is None:
                self._make("broker", broker)
            return broker

        def started(cluster: Cluster, *arguments: Any, **named: Any) -> Cluster:
            start(cluster, *arguments, **named)
            if cluster not in self._clusters:
                self._clusters.append(cluster)
                self._note(cluster)
                if self._called_ns is not None:
                    self._make("cluster", cluster)
            return cluster

        call = Call.__init__

        def called(fault: Call, action: Callable[..., object], *arguments: Any) -> None:
            call(fault, actions.acting(action), *arguments)

        actions = Actions()
        for kind, name, method in (
            (Broker, "__init__", made),
            (Broker, "await_ready", awaited),
            (Cluster, "start", started),
            (Call, "__init__", called),
            *((kind, name, actions.reading(getattr(kind, name))) for kind, name in READING),
            *((kind, name, actions.writing(getattr(kind, name))) for kind, name in WRITING),
        ):
            setattr(kind, name, method)

    def _note(self, made: Broker | Cluster) -> None:
        """Have its temporary files removed where this process is killed."""
        with (self._folder / TEMPORARY).open("a") as paths:
            print(made._work_dir, file=paths)

    # -- the test ---------------------------------------------------------------------------------------------

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [each for each in items if each.nodeid == self._order["test"]][:1]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        self._called_ns = (time.time_ns(), 0)
        of_fixtures = {name: each for name, each in self._fixtures().items() if each is not None}
        for name, each in of_fixtures.items():
            self._make(name, each)
        for broker in self._brokers:
            if broker.is_running and broker._cluster_dir is None and broker not in of_fixtures.values():
                self._make("broker", broker)
        for cluster in self._clusters:
            if cluster not in of_fixtures.values():
                self._make("cluster", cluster)
        try:
            return (yield)
        finally:
            self._called_ns = (self._called_ns[0], time.time_ns())
            self._struck = {line: struck(fault) for line, fault in self._made.items()}
            for fault in self._made.values():
                if isinstance(fault, Call):
                    fault.lift()  # also waits for a broker that starts again
            for broker in self._brokers:
                if broker.is_running:
                    broker.faults.lift_all()

    def _make(self, place: str, of: Broker | Cluster) -> None:
        """Make the faults of a broker by this name, once: when it has started again, they have ended with it."""
        for each in of.brokers if isinstance(of, Cluster) else [of]:
            number = self._brokers.index(each)
            if number in self._places:
                return
            self._places[number] = place
        lines = [line for named, line in self._order["faults"] if named == place]
        if isinstance(of, Cluster) and any(".kill" in line for line in lines):
            of.wait_for(lambda: has_coordinators(of), timeout=RESTART_SECONDS)
        for line in lines:
            try:
                self._made[line] = eval(line, {place: of})  # a line that plan.py has made
            except BrokerError as error:  # the release as which it acts does not have it
                self._impossible[line] = str(error)

    # -- what came of it --------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_sessionfinish(self) -> None:
        if not self._reports:  # pytest says why
            return
        failed = [each for each in self._reports if each.failed]
        is_called = any(each.when == "call" and each.passed for each in self._reports)
        has_begun = self._called_ns is not None
        result = {
            "outcome": ("failed" if has_begun else "not begun") if failed else "passed" if is_called else "skipped",
            "text": "\n".join(each.longreprtext for each in failed),
            "sections": [each for report in failed[:1] for each in report.sections],
            "seconds": sum(each.duration for each in self._reports),
            "asked": [(*key, count) for key, count in sorted(Counter(self._asked()).items(), key=str)],
            "struck": getattr(self, "_struck", {}),
            "impossible": self._impossible,
        }
        (self._folder / "result.json").write_text(json.dumps(result))

    def _asked(self) -> Iterator[tuple[int, str, str, str | None, bool]]:
        """Yield the requests of the call of the test, as `plan.Requests` without a count, after a broker's number."""
        from minibroker.transcript.exchanges import read_transcript

        if not self._order["is_recorded"] or self._called_ns is None:
            return
        begun_ns, ended_ns = self._called_ns
        for number, place in self._places.items():
            for each in read_transcript(self._folder / f"{number}.transcript"):
                if begun_ns <= each.time_ns <= ended_ns and each.head.api_key in set(ApiKey):
                    name = each.client_id
                    is_of_test = name not in (*OF_TOOLS, TESTS_CLIENT_ID) and not BETWEEN_BROKERS.fullmatch(name or "")
                    yield number, place, ApiKey(each.head.api_key).name.lower(), name, is_of_test


def has_coordinators(cluster: Cluster) -> bool:
    """Have a cluster make the topics of its coordinators, for which all its brokers must live. Raises BrokerError."""
    with cluster._administered() as client:
        for kind in (OF_GROUPS, OF_TRANSACTIONS)[: 1 + client.version_of(ApiKey.FIND_COORDINATOR)]:
            at_coordinators(client, [TESTS_CLIENT_ID], bool, kind)
    return True


def struck(fault: Fault | Call) -> bool:
    """Whether it may have struck; that of a broker that has started again is not known."""
    try:
        return fault.count > 0
    except BrokerError:
        return True
