"""The pytest plugin, there as soon as minibroker is installed: a broker for the tests of a session.

A test asks for `minibroker` and has a broker, a process of its own, started when the first test asks and stopped with
the session; under pytest-xdist each worker has one. A test during which a broker dies fails, with the broker's last
log lines, and the next test finds the session's broker started again. What a broker logs while a test runs is a
section of that test's report if it fails.

Imports little: every pytest run of an installation passes through here, whether it wants a broker or not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from minibroker.process import Broker

TOPIC_NAME_MAX = 249
UNIQUE_DIGITS = 8
NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9._-]+")
BROKER_FIXTURES = {"minibroker", "minibroker_factory"}


class Brokers:
    """The brokers that run for tests: the session's, and those that a test has made."""

    def __init__(self, log_dir: Path | None, worker: str) -> None:
        self.log_dir = log_dir
        self.worker = worker
        self.of_session: Broker | None = None
        self.of_test: list[Broker] = []
        self._logged_bytes: dict[Path, int] = {}
        self._count = 0

    def make(self, **arguments: Any) -> Broker:
        """A broker that is not started yet; its log is kept where --minibroker-log says."""
        from minibroker.process import Broker

        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            arguments.setdefault("log_file", self.log_dir / f"minibroker-{self.worker}-{self._count}.log")
        self._count += 1
        return Broker(**arguments)

    def all(self) -> list[Broker]:
        return [*([self.of_session] if self.of_session is not None else []), *self.of_test]

    def begin_test(self) -> None:
        """Have the session's broker run, without the faults of the test before; note where the logs are now."""
        if self.of_session is not None:
            if not self.of_session.is_running:
                self.of_session.start()
            elif self.of_session.has_control:
                self.of_session.faults.lift_all()
        self._logged_bytes = {each.log_file: log_size(each.log_file) for each in self.all()}

    def logged(self, broker: Broker) -> str:
        """What it has logged since the test began."""
        with broker.log_file.open("rb") as log:
            log.seek(self._logged_bytes.get(broker.log_file, 0))
            return log.read().decode(errors="replace")


def log_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


BROKERS = pytest.StashKey[Brokers]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("minibroker").addoption(
        "--minibroker-log",
        metavar="DIR",
        type=Path,
        help="keep the logs of the brokers that tests use in this directory, a file for each broker",
    )
    parser.addini(
        "minibroker_control",
        type="bool",
        default=False,
        help="have the session's broker take what tests do to minibroker.clock and minibroker.faults",
    )


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid", "main")  # pytest-xdist's
    log_dir = config.getoption("--minibroker-log")
    if log_dir is not None:
        log_dir = config.invocation_params.dir / log_dir
    config.stash[BROKERS] = Brokers(log_dir, worker)


# -- fixtures -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def minibroker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A Kafka broker for the whole session: `minibroker.bootstrap_servers`. Under pytest-xdist each worker has one."""
    brokers = pytestconfig.stash[BROKERS]
    with brokers.make(control=pytestconfig.getini("minibroker_control")) as broker:
        brokers.of_session = broker
        yield broker
        brokers.of_session = None


@pytest.fixture
def minibroker_clean(minibroker: Broker) -> Broker:
    """The session's broker without any topic or group, whatever tests before have left."""
    minibroker.reset()
    return minibroker


@pytest.fixture
def minibroker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., Broker]]:
    """Starts brokers of the test's own, with the arguments of `minibroker.Broker`; they are closed after the test."""
    brokers = pytestconfig.stash[BROKERS]

    def start(**arguments: Any) -> Broker:
        broker = brokers.make(**arguments)
        brokers.of_test.append(broker)
        return broker.start()

    yield start
    while brokers.of_test:
        brokers.of_test.pop().close()


@pytest.fixture
def minibroker_unique(request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes names that nobody else uses, for topics and groups: `minibroker_unique("orders")`."""

    def unique(prefix: str = request.node.name) -> str:
        import uuid

        digits = uuid.uuid4().hex[:UNIQUE_DIGITS]
        return f"{NOT_IN_A_NAME.sub('-', prefix)[: TOPIC_NAME_MAX - UNIQUE_DIGITS - 1]}-{digits}"

    return unique


@pytest.fixture
def minibroker_topic(minibroker: Broker, minibroker_unique: Callable[..., str]) -> str:
    """The name of a new topic on the session's broker, of one partition, which no other test uses."""
    name = minibroker_unique()
    minibroker.create_topic(name, partitions=1)
    return name


# -- a broker that dies, and what it logged -------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    if uses_brokers(item):
        item.config.stash[BROKERS].begin_test()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if uses_brokers(item):
        brokers = item.config.stash[BROKERS]
        for broker in brokers.all():
            if report.failed:
                report.sections.append((f"minibroker {broker.bootstrap_servers}", brokers.logged(broker)))
            if broker.has_died and report.when == "call":
                blame(report, broker.obituary())
    return report


def uses_brokers(item: pytest.Item) -> bool:
    return not BROKER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def blame(report: pytest.TestReport, obituary: str) -> None:
    """Fail the test for its broker's death, which stands before whatever else went wrong."""
    before = f"\n\n{report.longreprtext}" if report.failed else ""
    report.outcome = "failed"
    report.longrepr = f"While this test ran, {obituary}{before}"
