"""Fixtures of the integration tests: one broker and one driver per client for the whole session."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from tests.integration.brokers import BrokerProcess, Minibroker, apache_kafka_jars, free_port
from tests.integration.clients import KINDS, Client, UnavailableError
from tests.integration.members import GroupMember
from tests.integration.records import Record
from tests.integration.secured import SecuredBroker, secured_broker

SESSION_SETTINGS: dict[str, str | int] = {
    "log.retention.ms": -1,  # records of the tests carry old timestamps
    "num.partitions": 2,  # of topics created by being named
    "socket.request.max.bytes": 10_000_000,
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 1000,  # who is killed is missed soon
}
HERE = Path(__file__).parent
DISK_BYTES = 8 * 2**20

GetClient = Callable[[str], Client]
NewTopic = Callable[..., str]
StartMinibroker = Callable[..., Minibroker]
Join = Callable[..., GroupMember]
Write = Callable[..., list[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that none runs with the fast ones by mistake."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.integration)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def is_apache_kafka() -> bool:
    return apache_kafka_jars() is not None


@pytest.fixture(scope="session")
def jars() -> Path:
    """The jars of Apache Kafka 2.0.1."""
    try:
        return kafka_jars()
    except KafkaUnavailable as error:
        pytest.skip(f"needs Apache Kafka 2.0.1: {error}")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The session's broker."""
    directory = tmp_path_factory.mktemp("broker")
    jars = apache_kafka_jars()
    if jars is not None:
        with ApacheKafka(jars, directory, settings=SESSION_SETTINGS, heap="512m") as kafka:
            yield kafka
        return
    started = Minibroker(directory, settings=SESSION_SETTINGS)
    try:
        yield started.wait_until_ready()
    finally:
        started.kill()


@pytest.fixture(scope="session", params=["kafka", "minibroker"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that asks for a login: Apache Kafka, which proves the tests right, and minibroker."""
    of_kafka = request.getfixturevalue("jars") if request.param == "kafka" else None
    with secured_broker(tmp_path_factory.mktemp("secured"), of_kafka) as broker:
        yield broker


class Drivers:
    """Drivers by client and broker, started on first use. One whose process ended is started again."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self._log = log_path.open("ab")
        self._started: dict[tuple[str, str], Client] = {}

    def get(self, name: str, bootstrap: str) -> Client:
        """The driver of a client on a broker; skips the test when the client is not here."""
        known = self._started.get((name, bootstrap))
        if known is not None and known.is_running:
            return known
        try:
            self._started[name, bootstrap] = Client(KINDS[name], bootstrap, self._log)
        except UnavailableError as error:
            pytest.skip(str(error))
        return self._started[name, bootstrap]

    def close(self) -> None:
        for client in self._started.values():
            client.kill()
        self._log.close()


@pytest.fixture(scope="session")
def session_drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Drivers of the session's broker."""
    with closing(Drivers(tmp_path_factory.mktemp("drivers") / "drivers.log")) as drivers:
        yield drivers


@pytest.fixture
def drivers(tmp_path: Path) -> Iterator[Drivers]:
    """Drivers of a test's own brokers; they end with the test."""
    with closing(Drivers(tmp_path / "drivers.log")) as started:
        yield started


@pytest.fixture(scope="session")
def client(broker: BrokerProcess, session_drivers: Drivers) -> GetClient:
    """A client by name, on the session's broker."""

    def get(name: str) -> Client:
        assert broker.is_running, f"the session's broker is gone:\n{broker.log_text[-4000:]}"
        return session_drivers.get(name, broker.bootstrap)

    return get


@pytest.fixture(scope="session")
def new_topic(client: GetClient) -> NewTopic:
    """Create a topic with a name of its own."""
    numbers = itertools.count()

    def create(name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        topic = f"{name}-{next(numbers)}"
        options = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs or {})}
        codes = client("kafka-python-3.0").call("create_topics", topics={topic: options}, validate_only=False)
        assert {topic: 0} == codes
        return topic

    return create


@pytest.fixture
def join(broker: BrokerProcess, tmp_path: Path) -> Iterator[Join]:
    """Start a member of a group; all are killed when the test ends."""
    started: list[GroupMember] = []
    with (tmp_path / "members.log").open("wb") as log:

        def start(
            library: str, group: str, topic: str, *, bootstrap: str = broker.bootstrap, **settings: object
        ) -> GroupMember:
            try:
                started.append(GroupMember(library, bootstrap, group, topic, log, **settings))
            except UnavailableError as error:
                pytest.skip(str(error))
            return started[-1]

        yield start
        for member in started:
            member.kill()


@pytest.fixture
def write(session_drivers: Drivers, broker: BrokerProcess) -> Write:
    """Write so many records to each of four partitions, or of as many as there are; their values."""
    numbers = itertools.count()

    def to(topic: str, count: int, *, partitions: int = 4, bootstrap: str = broker.bootstrap) -> list[str]:
        writer = session_drivers.get("confluent-kafka", bootstrap)
        values = [[f"{next(numbers)}" for _ in range(count)] for _ in range(partitions)]
        for partition, batch in enumerate(values):
            writer.produce(topic, [Record(None, each.encode()) for each in batch], partition=partition)
        return list(itertools.chain.from_iterable(values))

    return to


class Group(NamedTuple):
    """A group of its own, and its topic of four partitions."""

    topic: str
    start: Join
    write_to: Write

    def join(self, library: str, **settings: object) -> GroupMember:
        return self.start(library, f"group-{self.topic}", self.topic, **settings)

    def write(self, count: int) -> list[str]:
        """Write so many records to each partition; their values."""
        return self.write_to(self.topic, count)


@pytest.fixture
def group(join: Join, new_topic: NewTopic, write: Write) -> Group:
    return Group(new_topic("grouped", 4), join, write)


@pytest.fixture
def start_minibroker(tmp_path: Path, is_apache_kafka: bool) -> Iterator[StartMinibroker]:
    """Start brokers for one test, each in a folder under tmp_path; they are killed when it ends."""
    if is_apache_kafka:
        pytest.skip("about minibroker's own process: run it without MINIBROKER_TEST_KAFKA")
    started: list[Minibroker] = []

    def start(
        *arguments: str, name: str = "one", settings: Mapping[str, str | int] | None = None, flags: bool = True
    ) -> Minibroker:
        started.append(Minibroker(tmp_path / name, *arguments, settings=settings, flags=flags))
        return started[-1]

    yield start
    for broker_process in started:
        broker_process.kill()


@pytest.fixture
def start_in_place(start_minibroker: StartMinibroker) -> StartMinibroker:
    """Start brokers one after the other, each in the directory and at the address of the one before."""
    listen = ("--listen", f"127.0.0.1:{free_port()}")
    return lambda **options: start_minibroker(*listen, **options).wait_until_ready()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounts a small file system: run the tests as root")
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)], check=False)
    if mounted.returncode:
        pytest.skip("may not mount here: run the tests where root has CAP_SYS_ADMIN")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)
