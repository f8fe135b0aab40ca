"""`--act-as`: minibroker beside the release that it acts as, asked the same at the wire; and met by real clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from benchmarks.later_kafka import LaterKafka
from minibroker.broker.config.profiles import RELEASES, Habit, profile_of
from minibroker.conformance.answers import Plain, differences
from minibroker.conformance.conversation import CLOSED, SocketPeer
from minibroker.conformance.steps import Script, Step, call
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.api_table import LATER_RELEASES, RELEASES_UNTIL_2_0, versions_of
from tests.conformance.comparing import wait_for_coordinator
from tests.conformance.scripts import conversations
from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.clients import JAVA_OF_RELEASES, Client, ClientError
from tests.integration.conftest import Drivers, Join, StartMinibroker
from tests.integration.members import wait_until_read
from tests.integration.records import Record, numbered
from tests.integration.wire import connection_to

PROFILES = RELEASES_UNTIL_2_0
CLIENTS = ("kafka-python-3.0", "confluent-kafka", "aiokafka")
GROUP_LIBRARIES = ("kafka-python", "confluent-kafka", "aiokafka")
# The last before the one that every comparison is with.
beside_the_releases = pytest.mark.sample(of=lambda pair: pair == "1.1")
ASKED = conversations("releases")

# APIs between brokers, which Apache Kafka lists and minibroker does not (docs/reference/apis.md).
NOT_LISTED = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
# An authorizer without rules, which allows everything until a test gives some, and quotas that one test exceeds.
GUARDED: dict[str, str | int] = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "quota.producer.default": 100_000,  # bytes/s
    "quota.consumer.default": 14_500,
}
# Settings that the fixture gives to one of the two, or whose default is of a part that minibroker has not.
NOT_ALIKE = {
    "broker.id", "listeners", "log.dirs", "zookeeper.connect", "offsets.topic.replication.factor",
    "transaction.state.log.min.isr", "transaction.state.log.replication.factor",
    "allow.everyone.if.no.acl.found", "listener.security.protocol.map", "principal.builder.class", "ssl.cipher.suites",
}  # fmt: skip


class Pair(NamedTuple):
    """A release, and minibroker that acts as it, both with their own defaults."""

    name: str
    release: BrokerProcess
    minibroker: BrokerProcess

    def differences(self, script: Script) -> list[str]:
        """In what is answered to those steps whose APIs the release has; messages for people aside."""
        last = versions_of(self.name)
        steps = [replace(step, version=min(step.version, last[step.key][1])) for step in script if step.key in last]
        theirs, ours = (hold(broker, steps) for broker in (self.release, self.minibroker))
        return [
            f"{step!r}: {each}"
            for step, their, our in zip(steps, theirs, ours, strict=True)
            for each in differences(their, our)
            if "error_message" not in each
        ]


def hold(broker: BrokerProcess | LaterKafka, script: Script) -> list[Plain]:
    with closing(SocketPeer(broker.host, broker.port)) as peer:
        return peer.hold(script, "of-")


@pytest.fixture(scope="module", params=PROFILES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    name: str = request.param
    directory = tmp_path_factory.mktemp("release")
    has_delay = profile_of(name).has_setting("group.initial.rebalance.delay.ms")
    try:
        jars = kafka_jars(release=RELEASES[name])
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with ExitStack() as stack:
        kafka = ApacheKafka(jars, directory / "kafka", settings=GUARDED, heap="256m")
        settings: dict[str, str | int] = {"group.initial.rebalance.delay.ms": 0} if has_delay else {}
        minibroker = Minibroker(directory / "minibroker", "--act-as", name, settings=settings | GUARDED)
        stack.callback(minibroker.kill)
        stack.callback(kafka.kill)
        started = Pair(name, kafka.start(), minibroker.wait_until_ready())
        for broker in (started.release, started.minibroker):
            with closing(SocketPeer(broker.host, broker.port)) as peer:
                wait_for_coordinator(peer)
        yield started


@beside_the_releases
def test_it_offers_the_versions_that_the_release_has(pair: Pair) -> None:
    theirs, ours = (offer(broker.bootstrap) for broker in (pair.release, pair.minibroker))

    assert ours == {key: versions for key, versions in theirs.items() if key in ours}
    assert theirs.keys() - ours.keys() == NOT_LISTED


def offer(bootstrap: str) -> dict[int, tuple[int, int]]:
    with connection_to(bootstrap) as connection:
        return {key: (first, last) for key, first, last in connection.ask_for_versions().api_keys}


@beside_the_releases
def test_both_close_at_an_api_after_the_release_and_refuse_a_later_api_versions(pair: Pair) -> None:
    last = versions_of(pair.name)
    apis = [api for api in API_TABLE.values() if api.key is not ApiKey.API_VERSIONS and not api.is_unlisted]
    script = [Step(api.name, last.get(api.key, (0, -1))[1] + 1, raw=bytes(40), connection=api.name) for api in apis]
    versions = [Step("ApiVersions", version, raw=b"") for version in (last[ApiKey.API_VERSIONS][1] + 1, 99)]

    for broker in pair[1:]:
        assert [CLOSED] * len(script) == hold(broker, script)
    assert hold(pair.release, versions) == hold(pair.minibroker, versions)


@beside_the_releases
@pytest.mark.parametrize("pair", [name for name in PROFILES if name != "0.10"], indirect=True)
def test_its_settings_and_their_defaults_are_those_of_the_release(pair: Pair) -> None:
    asked = [call("DescribeConfigs", 0, resources=[(4, "0", None)])]

    theirs, ours = (
        {row["name"]: row for row in hold(broker, asked)[0]["results"][0]["configs"] if row["name"] not in NOT_ALIKE}
        for broker in pair[1:]
    )

    assert theirs.keys() == ours.keys()
    assert differences(theirs, ours) == []


@beside_the_releases
def test_it_has_the_habits_of_the_release(pair: Pair) -> None:
    assert pair.differences(ASKED["habits of the release"]()) == []


@beside_the_releases
@pytest.mark.parametrize("pair", [name for name in PROFILES if name != "0.10"], indirect=True)
def test_it_answers_no_error_code_that_came_after_the_release(pair: Pair) -> None:
    assert pair.differences(ASKED["error codes that came later"]()) == []


@beside_the_releases
@pytest.mark.parametrize("pair", [name for name in PROFILES if name != "0.10"], indirect=True)
def test_its_authorizer_answers_as_that_of_the_release(pair: Pair) -> None:
    assert pair.differences(ASKED["the authorizer"]()) == []
    assert pair.differences(ASKED["topics that a client may not describe"]()) == []


@beside_the_releases
@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_it_throttles_a_client_beyond_its_quota_as_the_release(pair: Pair, client: str) -> None:
    last = versions_of(pair.name)
    steps = [
        replace(step, version=min(step.version, last[step.key][1])) for step in ASKED[f"a {client} beyond its quota"]()
    ]

    theirs, ours = (timed(broker, steps) for broker in pair[1:])

    throttled_ms = [each["throttle_time_ms"] for each in theirs.answers]
    assert max(throttled_ms) > 500
    # The samples of a window begin when a client first asks: the times are alike but for one of them.
    assert [each["throttle_time_ms"] for each in ours.answers] == pytest.approx(throttled_ms, rel=0.25, abs=1000)
    for their, our in zip(theirs.answers, ours.answers, strict=True):
        assert differences(without_throttle(their), without_throttle(our)) == []
    holds_back = Habit.HOLDS_ANSWERS_BACK in profile_of(pair.name).habits
    for side in (theirs, ours):
        took = [seconds * 1000 + 20 >= answer["throttle_time_ms"] for answer, seconds in zip(*side, strict=True)]
        assert all(took) is holds_back


class Timed(NamedTuple):
    answers: list[Any]
    seconds: list[float]


def timed(broker: BrokerProcess, steps: Script) -> Timed:
    """The answers but the first, to the creation of the topic, and how long each of them took."""
    found = Timed([], [])
    with closing(SocketPeer(broker.host, broker.port)) as peer:
        for step in steps:
            began = time.monotonic()
            found.answers.extend(peer.hold([step], "of-"))
            found.seconds.append(time.monotonic() - began)
    return Timed(found.answers[1:], found.seconds[1:])


def without_throttle(answer: Any) -> Any:
    return {name: value for name, value in answer.items() if name != "throttle_time_ms"}


# Settings of later releases that have a default by the machine, or of what minibroker does otherwise in every release.
NOT_ALIKE_LATER = NOT_ALIKE | {
    "group.min.session.timeout.ms",
    "group.initial.rebalance.delay.ms",
    "metric.reporters",
    "ssl.enabled.protocols",
    "ssl.protocol",
}


@pytest.mark.sample(of=lambda name: name == "4.4")
@pytest.mark.parametrize("name", [each for each in LATER_RELEASES if each != "2.8"])
def test_a_later_release_has_its_versions_its_refusals_and_its_defaults(name: str, acting: Any, tmp_path: Path) -> None:
    kafka = LaterKafka(tmp_path, release=RELEASES[name], heap="256m")
    ours = acting(name)
    first_refused = [
        Step(API_TABLE[key].name, 2 if key == ApiKey.PRODUCE else first - 1, raw=bytes(40), connection=str(key))
        for key, (first, _) in versions_of(name).items()
        if first or (key == ApiKey.PRODUCE and name.startswith("4"))
    ]
    described = [call("DescribeConfigs", 2, resources=[(4, "0", None)])]
    try:
        theirs = kafka.start()
        offered = offer(theirs.bootstrap)
        rows = [
            {row["name"]: row["value"] for row in hold(each, described)[0]["results"][0]["configs"]}
            for each in (theirs, ours)
        ]

        assert offer(ours.bootstrap) == {key: offered[key] for key in versions_of(name)}
        for each in (theirs, ours):
            assert hold(each, first_refused) == [CLOSED] * len(first_refused)
        common = rows[0].keys() & rows[1].keys() - NOT_ALIKE_LATER
        assert {key: rows[1][key] for key in common} == {key: rows[0][key] for key in common}
        assert rows[1].keys() - rows[0].keys() <= NOT_ALIKE_LATER
    finally:
        kafka.kill()


@pytest.fixture
def acting(start_minibroker: StartMinibroker) -> Any:
    """Start minibroker acting as a release, with a group that need not wait."""

    def start(name: str) -> Minibroker:
        settings = {"group.min.session.timeout.ms": 100}
        if profile_of(name).has_setting("group.initial.rebalance.delay.ms"):
            settings["group.initial.rebalance.delay.ms"] = 0
        return start_minibroker("--act-as", name, settings=settings).wait_until_ready()

    return start


@pytest.mark.parametrize("name", PROFILES)
def test_clients_write_and_read(name: str, acting: Any, drivers: Drivers) -> None:
    broker = acting(name)
    records = numbered(20)

    # aiokafka 0.14 sends batches of magic 2 to any broker, and Apache Kafka 0.10.2.2 refuses them too.
    for library in CLIENTS if name != "0.10" else CLIENTS[:2]:
        client = drivers.get(library, broker.bootstrap)
        client.produce(library, records, codec="gzip")
        assert [record.value for record in records] == [each.value for each in client.consume(library, len(records))]


@pytest.mark.sample(of=lambda name: name in ("0.10", "1.1"))
@pytest.mark.parametrize("name", PROFILES)
def test_members_of_groups_read(name: str, acting: Any, drivers: Drivers, join: Join) -> None:
    broker = acting(name)
    values = [str(number) for number in range(10)]
    writer = drivers.get("confluent-kafka", broker.bootstrap)
    writer.produce("topic", [Record(None, value.encode()) for value in values])

    members = [join(library, library, "topic", bootstrap=broker.bootstrap) for library in GROUP_LIBRARIES]

    for member in members:
        wait_until_read(values, member)
        member.commit()
        assert member.committed(0) == len(values)


@pytest.mark.ability("records")
@pytest.mark.sample(of=lambda name: name == "0.10")  # each old client goes on in a group in test_old_clients.py
@pytest.mark.parametrize("name", JAVA_OF_RELEASES)
def test_the_java_client_of_the_release_writes_and_reads_in_a_group(name: str, acting: Any, drivers: Drivers) -> None:
    client = drivers.get(JAVA_OF_RELEASES[name], acting(name).bootstrap)

    written = client.produce("topic", numbered(20), codec="lz4")
    read = client.consume_in_group("topic", "group", len(written))

    assert [each.value for each in written] == [each.value for each in read]


@pytest.mark.parametrize(
    ("library", "words"),
    [
        ("java-3.9", "Attempting to use idempotence with a broker which does not support"),
        ("kafka-python-3.0", "Idempotent/Transactional producer requires broker >= 0.11"),
    ],
)
def test_clients_refuse_features_that_a_release_lacks(library: str, words: str, acting: Any, drivers: Drivers) -> None:
    client: Client = drivers.get(library, acting("0.10").bootstrap)

    with pytest.raises(ClientError, match=words):
        client.produce("topic", numbered(1), enable_idempotence=True)

    assert client.produce("topic", numbered(1), enable_idempotence=False)
