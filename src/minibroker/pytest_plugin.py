"""The pytest plugin, active once minibroker is installed: a broker for the tests of a session.

The fixture `minibroker` is a broker in a process of its own, started for the first test that requests it and stopped
with the session; under pytest-xdist each worker has one. When a broker dies during a test, that test fails with the
broker's last log lines, and the next test gets the session's broker restarted. The report of a failed test has a
section with everything its brokers logged.

It imports little, because every pytest run of the installation loads it, with or without a broker.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dis import opmap
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from minibroker.acl import Acl
    from minibroker.cluster import Cluster
    from minibroker.process import Broker

TOPIC_NAME_MAX = 249
UNIQUE_DIGITS = 8
NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9._-]+")
OURS = "minibroker"
# What calls tests and fixtures, and what our own context managers are made of.
PYTESTS = {"_pytest", "pluggy", "unittest", "contextlib"}
# kafka-python's own, one for each of its messages when it is imported. What a test's own code does is shown as ever.
OF_KAFKA_PYTHON = (
    "ignore:read_text is deprecated:DeprecationWarning:kafka.protocol.schemas.load_json",
    "ignore:open_text is deprecated:DeprecationWarning:importlib.resources._legacy",  # by that read_text
)
BROKER_FIXTURES = {"minibroker", "minibroker_factory", "minibroker_cluster"}
CLUSTER_BROKERS = 3
TEST_SECONDS_MAX = 86_400.0
TRANSCRIPT_SUFFIX = ".transcript"


class Brokers:
    """The brokers of the tests: the session's, and those of the present test."""

    def __init__(self, log_dir: Path | None, worker: str) -> None:
        self.log_dir = log_dir
        self.worker = worker
        self.of_session: Broker | None = None
        self.of_test: list[Broker] = []
        self.cluster: Cluster | None = None
        self._logged_bytes: dict[Path, int] = {}
        self._count = 0

    def make(self, **arguments: Any) -> Broker:
        """Make a broker without starting it; --minibroker-log keeps its log, and its transcript if it has one."""
        from minibroker.process import Broker

        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            log_file = self.log_dir / f"minibroker-{self.worker}-{self._count}.log"
            arguments.setdefault("log_file", log_file)
            if arguments.get("transcript") is True:
                arguments["transcript"] = log_file.with_suffix(TRANSCRIPT_SUFFIX)
        self._count += 1
        return Broker(**arguments)

    def make_cluster(self, **arguments: Any) -> Cluster:
        """Make a cluster without starting it; --minibroker-log keeps the logs of its brokers."""
        from minibroker.cluster import Cluster

        if self.log_dir is not None:
            self.log_dir.mkdir(parents=True, exist_ok=True)
            arguments["log_prefix"] = self.log_dir / f"minibroker-{self.worker}-cluster"
        return Cluster(**arguments)

    def all(self) -> list[Broker]:
        of_cluster = [] if self.cluster is None else self.cluster.brokers
        return [*([self.of_session] if self.of_session is not None else []), *of_cluster, *self.of_test]

    def begin_test(self) -> None:
        """Restart the brokers of the session that have ended, lift the faults of the last test, note the ends of the
        logs."""
        if self.cluster is not None:
            self.cluster.restore()
        if self.of_session is not None:
            if not self.of_session.is_running:
                self.of_session.start()
            elif self.of_session.has_control:
                self.of_session.faults.lift_all()
        logs = [each.log_file for each in self.all()]
        self._logged_bytes = {log: log.stat().st_size if log.exists() else 0 for log in logs}

    def logged(self, broker: Broker) -> str:
        """The broker's log since the test began."""
        with broker.log_file.open("rb") as log:
            log.seek(self._logged_bytes.get(broker.log_file, 0))
            return log.read().decode(errors="replace")


def address_of(broker: Broker) -> str:
    from minibroker.errors import BrokerError

    try:
        return broker.bootstrap_servers
    except BrokerError:
        return "that did not start"


BROKERS = pytest.StashKey[Brokers]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("minibroker").addoption(
        "--minibroker-log",
        metavar="DIR",
        type=Path,
        help="keep the logs of the tests' brokers in this directory, one file per broker",
    )
    parser.getgroup("minibroker").addoption(
        "--minibroker-chaos",
        metavar="PLANS",
        type=int,
        help="run the tests that pass with a broker again, each under so many plans of faults",
    )
    parser.getgroup("minibroker").addoption(
        "--minibroker-chaos-seed",
        metavar="SEED[.PLAN]",
        help="draw the plans from this seed, which a run prints; SEED.PLAN is one plan, which a failure prints",
    )
    parser.getgroup("minibroker").addoption("--minibroker-chaos-run", type=Path, help=argparse.SUPPRESS)
    parser.getgroup("minibroker").addoption(
        "--minibroker-chaos-timeout",
        metavar="SECONDS",
        type=seconds_of_a_test,
        default=60.0,
        help="how long a test may take under faults, and twice its time without; 60 without it; then it has failed",
    )
    parser.addini(
        "minibroker_settings",
        type="linelist",
        help="Kafka's settings for the session's broker, one name=value in a line",
    )
    parser.addini(
        "minibroker_unknown_settings",
        type="bool",
        default=False,
        help="start the session's broker with settings that Kafka does not have, which then are warnings",
    )
    parser.addini(
        "minibroker_act_as",
        type="string",
        default="",
        help="the release of Apache Kafka as which the session's broker acts: 0.10, 0.11, 1.1, 2.0, 2.8, ..., 4.4",
    )
    parser.addini(
        "minibroker_control",
        type="bool",
        default=False,
        help="start the session's broker with minibroker.clock and minibroker.faults",
    )
    parser.addini(
        "minibroker_schema_registry",
        type="bool",
        default=False,
        help="start the session's broker with a schema registry: minibroker.schema_registry_url",
    )
    parser.addini(
        "minibroker_transcript",
        type="bool",
        default=False,
        help="record the requests and responses of the session's broker: minibroker.transcript",
    )
    parser.addini(
        "minibroker_security",
        type="string",
        default="",
        help="the security protocol of the session's broker: SSL, SASL_PLAINTEXT or SASL_SSL; an open broker without",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid", "main")  # pytest-xdist's
    for each in OF_KAFKA_PYTHON:
        config.addinivalue_line("filterwarnings", each)
    ini_settings(config)  # a line that cannot be read ends the session here
    log_dir = config.getoption("--minibroker-log")
    if log_dir is not None:
        log_dir = config.invocation_params.dir / log_dir
    config.stash[BROKERS] = Brokers(log_dir, worker)
    options = config.option
    if options.minibroker_chaos_run is not None:
        join_chaos(config)
    elif options.minibroker_chaos is not None or options.minibroker_chaos_seed is not None:
        begin_chaos(config)


def seconds_of_a_test(text: str) -> float:
    """Read how long a test may take under faults. Raises ArgumentTypeError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= TEST_SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text}: write how many seconds a test may take, such as 60")
    return seconds


def begin_chaos(config: pytest.Config) -> None:
    """Run tests again under faults, when all have run. Raises UsageError."""
    from minibroker.chaos.session import ChaosSession, Marking, asked_by

    asked = asked_by(config.option.minibroker_chaos, config.option.minibroker_chaos_seed)
    if asked is None:
        return
    config.pluginmanager.register(Marking(uses_brokers, config.stash[BROKERS].all), "minibroker-chaos-marking")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(ChaosSession(config, asked), "minibroker-chaos")


def join_chaos(config: pytest.Config) -> None:
    """Run one test under the faults that such a session has ordered."""
    from minibroker.chaos.run import ChaosRun

    brokers = config.stash[BROKERS]
    run = ChaosRun(
        config,
        config.option.minibroker_chaos_run,
        lambda: {"minibroker": brokers.of_session, "minibroker_cluster": brokers.cluster},
    )
    config.pluginmanager.register(run, "minibroker-chaos-run")


def ini_settings(config: pytest.Config) -> dict[str, str]:
    """The lines of `minibroker_settings`. Raises UsageError."""
    settings = {}
    for line in config.getini("minibroker_settings"):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not (name and equals):
            raise pytest.UsageError(f"minibroker_settings: {line}: write name=value, one in a line")
        settings[name] = value
    return settings


# -- the session's broker, as it is configured ----------------------------------------------------------------


@pytest.fixture(scope="session")
def minibroker_settings(pytestconfig: pytest.Config) -> dict[str, Any]:
    """Kafka's settings for the session's broker: the ini option of this name. Override it to compute them."""
    return dict(ini_settings(pytestconfig))


@pytest.fixture(scope="session")
def minibroker_act_as(pytestconfig: pytest.Config) -> str | None:
    """The release of Apache Kafka as which the session's broker acts: the ini option of this name, None without."""
    return pytestconfig.getini("minibroker_act_as") or None


@pytest.fixture(scope="session")
def minibroker_control(pytestconfig: pytest.Config) -> bool:
    """Whether the session's broker has a clock and faults: the ini option of this name."""
    return bool(pytestconfig.getini("minibroker_control"))


@pytest.fixture(scope="session")
def minibroker_transcript(pytestconfig: pytest.Config) -> bool | Path:
    """Whether the session's broker records a transcript, or where: the ini option of this name."""
    return bool(pytestconfig.getini("minibroker_transcript"))


@pytest.fixture(scope="session")
def minibroker_security(pytestconfig: pytest.Config) -> str | None:
    """The security protocol of the session's broker: the ini option of this name, None for an open broker."""
    return pytestconfig.getini("minibroker_security") or None


@pytest.fixture(scope="session")
def minibroker_users() -> Mapping[str, str] | Iterable[str]:
    """The users of a secured session's broker, as `Broker` takes them: none. Override it to name some."""
    return ()


@pytest.fixture(scope="session")
def minibroker_acls() -> Iterable[Acl] | None:
    """The rules of a secured session's broker, as `Broker` takes them: None, which allows everything. Override it."""
    return None


# -- brokers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def minibroker(
    pytestconfig: pytest.Config,
    minibroker_settings: Mapping[str, Any],
    minibroker_act_as: str | None,
    minibroker_control: bool,
    minibroker_transcript: bool | Path,
    minibroker_security: str | None,
    minibroker_users: Mapping[str, str] | Iterable[str],
    minibroker_acls: Iterable[Acl] | None,
) -> Iterator[Broker]:
    """A Kafka broker for the whole session: `minibroker.bootstrap_servers`. Under pytest-xdist each worker has one."""
    brokers = pytestconfig.stash[BROKERS]
    with brokers.make(
        settings=minibroker_settings,
        unknown_settings=pytestconfig.getini("minibroker_unknown_settings"),
        act_as=minibroker_act_as,
        control=minibroker_control,
        transcript=minibroker_transcript,
        schema_registry=pytestconfig.getini("minibroker_schema_registry"),
        security=minibroker_security,
        users=minibroker_users,
        acls=minibroker_acls,
    ) as broker:
        brokers.of_session = broker
        yield broker
        brokers.of_session = None


@pytest.fixture
def minibroker_clean(minibroker: Broker) -> Broker:
    """The session's broker, emptied of all topics and groups."""
    minibroker.reset()
    return minibroker


@pytest.fixture
def minibroker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., Broker]]:
    """A function that starts a broker for this test alone, with the arguments of `minibroker.Broker`.

    The options and fixtures of the session's broker do not apply to it.
    """
    brokers = pytestconfig.stash[BROKERS]

    def start(**arguments: Any) -> Broker:
        broker = brokers.make(**arguments)
        brokers.of_test.append(broker)
        return broker.start()

    yield start
    while brokers.of_test:
        brokers.of_test.pop().close()


@pytest.fixture(scope="session")
def minibroker_cluster(pytestconfig: pytest.Config, minibroker_settings: Mapping[str, Any]) -> Iterator[Cluster]:
    """A cluster of three brokers for the whole session, with the settings of `minibroker_settings`.

    Before each test, brokers that the last one has killed, stopped or paused run again.
    """
    brokers = pytestconfig.stash[BROKERS]
    with brokers.make_cluster(
        brokers=CLUSTER_BROKERS,
        settings=minibroker_settings,
        unknown_settings=pytestconfig.getini("minibroker_unknown_settings"),
    ) as cluster:
        brokers.cluster = cluster
        yield cluster
        brokers.cluster = None


@pytest.fixture
def minibroker_unique(request: pytest.FixtureRequest) -> Callable[..., str]:
    """A function that makes unique names for topics and groups: `minibroker_unique("orders")`."""

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
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # Only now: pytest puts in the error of a `unittest.TestCase` when it makes the report.
    if call.excinfo is not None and is_refusal(error := call.excinfo.value):
        is_outside = end_in_the_test(error)
        shown = pytest.ExceptionInfo.from_exception(error)
        report.longrepr = f"minibroker: {error}" if is_outside else item.repr_failure(shown)
    if uses_brokers(item):
        brokers = item.config.stash[BROKERS]
        for broker in brokers.all():
            if report.failed and (logged := brokers.logged(broker)):
                report.sections.append((f"minibroker {address_of(broker)}", logged))
            if broker.has_died and report.when == "call":
                blame(report, broker.obituary())
    return report


def is_refusal(error: BaseException) -> bool:
    """Whether a `raise` of ours refuses what a test asks for: its message has all that a user needs."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None or package_of(innermost) != OURS:
        return False
    is_raised = innermost.tb_frame.f_code.co_code[innermost.tb_lasti] == opmap["RAISE_VARARGS"]
    return is_raised and isinstance(error, (TypeError, ValueError, *own_errors()))


def own_errors() -> tuple[type[BaseException], ...]:
    from minibroker.errors import BrokerError
    from minibroker.waiting import WaitError

    return BrokerError, WaitError


def end_in_the_test(error: BaseException) -> bool:
    """Cut our own frames off the error's traceback; return whether those of pytest alone are left."""
    if not isinstance(error, AssertionError):
        error.__cause__, error.__suppress_context__ = None, True  # the message has it
    last, each = None, error.__traceback__
    while each is not None:
        if package_of(each) not in {OURS, *PYTESTS}:
            last = each
        each = each.tb_next
    if last is not None:
        last.tb_next = None
    return last is None


def package_of(traceback: TracebackType) -> str:
    name: str = traceback.tb_frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


def uses_brokers(item: pytest.Item) -> bool:
    return not BROKER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def blame(report: pytest.TestReport, obituary: str) -> None:
    """Fail the test because its broker died, and put this before any other failure."""
    before = f"\n\n{report.longreprtext}" if report.failed else ""
    report.outcome = "failed"
    report.longrepr = f"While this test ran, {obituary}{before}"
