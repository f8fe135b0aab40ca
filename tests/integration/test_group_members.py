"""Members of groups that come and go: two to five, of all libraries, leaving, killed, coming back.

What each library calls static members, cooperative assignors, patterns and reset policies, it has here.
"""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Callable, Iterable
from functools import partial

import pytest
from confluent_kafka import KafkaError, TopicPartition

from minibroker.protocol.errors import ErrorCode
from tests.integration.brokers import BrokerProcess, apache_kafka_jars
from tests.integration.clients import ClientError
from tests.integration.conftest import Group, Join, NewTopic, StartMinibroker, Write
from tests.integration.drivers.line_protocol import Deadline
from tests.integration.librdkafka import PATIENCE_SECONDS, consumer_of
from tests.integration.members import LIBRARIES, GroupMember, wait_until, wait_until_read, wait_until_shared

PARTITIONS = 4
EVENTS = 8
MOST_MEMBERS = 5
MANY_PARTITIONS = 10
REBALANCING = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)
# As each library puts it. Java's consumer, after a refused heartbeat, reports that the group has rebalanced.
SHUT_OUT = r"(?i)fenced|fatal|not part of an active group|group has already rebalanced"
CLOSE_SECONDS = 20.0  # on a busy machine: less than librdkafka waits where it waits
LONG_SESSION_MS = 120_000  # no session ends, however busy the machine is, nor while a member is started again
# In both protocols: a name before `/consumer` is a library.
OF_BOTH_PROTOCOLS = (
    ("confluent-kafka", "franz-go/consumer", "confluent-kafka/consumer", "java-4.4/consumer"),
    ("java/consumer", "java-4.4", "confluent-kafka/consumer", "franz-go", "java-4.4/consumer", "kafka-python"),
)
QUICK_BROKER: dict[str, str | int] = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
WITH_STATIC_MEMBERS = [*(each for each in LIBRARIES if each != "kafkajs"), "java-4.4"]
# aiokafka joins by its name, but sends none with what comes then: each is taken for unknown, and joins again
WITH_STATIC_MEMBERS_THAT_ARE_FENCED = [each for each in WITH_STATIC_MEMBERS if each != "aiokafka"]
WITH_COOPERATIVE_ASSIGNOR = [each for each in WITH_STATIC_MEMBERS if each != "aiokafka"]


class Troop:
    """Members of one group that a seed lets join, commit, leave and die; what was committed was noted before."""

    def __init__(self, join: Join, topic: str, libraries: Iterable[str], seed: int) -> None:
        self.members: list[GroupMember] = []
        self._join = join
        self._topic = topic
        self._libraries = itertools.cycle(libraries)
        self._rng = random.Random(seed)
        self._seen: set[str] = set()

    def join(self) -> None:
        library, _, protocol = next(self._libraries).partition("/")
        settings = {"group_protocol": protocol} if protocol else {"partition_assignment_strategy": "range"}
        self.members.append(self._join(library, f"group-{self._topic}", self._topic, **settings))

    def happen(self) -> None:
        """One more, or one less: never none, never more than five."""
        self._commit(self._rng.choice(self.members))
        crowded = len(self.members) == MOST_MEMBERS
        if len(self.members) == 1 or (not crowded and self._rng.random() < 0.5):
            self.join()
            return
        gone = self.members.pop(self._rng.randrange(len(self.members)))
        if self._rng.random() < 0.5:
            gone.kill()
        else:
            gone.close()
            gone.kill()

    def _commit(self, member: GroupMember) -> None:
        try:
            member.commit()
        except ClientError as error:
            assert error.code in REBALANCING or error.code is None or error.code < 0, error
        self._seen.update(member.values())

    def seen(self) -> set[str]:
        """Return what members have read: those here, and those gone before they committed the last time."""
        return self._seen.union(*(member.values() for member in self.members))


@pytest.mark.ability("groups")
@pytest.mark.parametrize(
    "libraries",
    [["kafka-python", "confluent-kafka", "aiokafka", "java", "franz-go"], ["kafkajs"]],
    ids=["five libraries", "kafkajs"],
)
def test_every_record_is_read_while_members_join_leave_and_die(
    libraries: list[str], join: Join, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic("troop", MANY_PARTITIONS)
    troop = Troop(join, topic, libraries, seed=5)
    written: list[str] = []
    troop.join()
    troop.join()
    wait_until_shared(troop.members, MANY_PARTITIONS)

    for _ in range(EVENTS):
        written += write(topic, 5, partitions=MANY_PARTITIONS)
        troop.happen()
    while len(troop.members) < MOST_MEMBERS:
        troop.join()

    wait_until_shared(troop.members, MANY_PARTITIONS)
    written += write(topic, 5, partitions=MANY_PARTITIONS)
    wait_until(lambda: troop.seen() >= set(written), f"{len(written)} records")
    assert troop.seen() == set(written)


@pytest.mark.ability("new protocol")
@pytest.mark.parametrize(
    ("libraries", "events"),
    [
        pytest.param(OF_BOTH_PROTOCOLS[0], 3, id="three events"),
        *(
            pytest.param(libraries, 16, id=f"many events {number}", marks=pytest.mark.nightly)
            for number, libraries in enumerate(OF_BOTH_PROTOCOLS)
        ),
    ],
)
def test_members_of_both_protocols_share_a_group_while_members_and_the_broker_die(
    libraries: tuple[str, ...], events: int, start_in_place: StartMinibroker, join: Join, write: Write
) -> None:
    settings = QUICK_BROKER | {
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.session.timeout.ms": 3000,
        "group.consumer.assignment.interval.ms": 0,
        "num.partitions": PARTITIONS,
    }
    broker = start_in_place(settings=settings)
    bootstrap = broker.bootstrap
    written = write("t", 1, bootstrap=bootstrap)
    troop = Troop(partial(join, bootstrap=bootstrap), "t", libraries, seed=7)
    troop.join()
    troop.join()
    wait_until_shared(troop.members, PARTITIONS)

    for number in range(events):
        written += write("t", 5, bootstrap=bootstrap)
        troop.happen()
        if number % 4 == 2:
            broker.kill()
            broker = start_in_place(settings=settings)
    while len(troop.members) < PARTITIONS:
        troop.join()

    wait_until_shared(troop.members, PARTITIONS)
    written += write("t", 5, bootstrap=bootstrap)
    wait_until(lambda: troop.seen() >= set(written), f"{len(written)} records")
    assert troop.seen() == set(written)
    for member in troop.members:
        member.commit()
    committed = [[member.committed(partition) for partition in range(PARTITIONS)] for member in troop.members]
    assert committed == [[len(written) // PARTITIONS] * PARTITIONS] * len(troop.members)


@pytest.mark.ability("groups")
@pytest.mark.sample(of=lambda library: library == "kafkajs")  # for others a member is killed, and the broker above
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_member_goes_on_where_it_committed_after_the_broker_was_killed(
    library: str, start_in_place: StartMinibroker, join: Join, write: Write
) -> None:
    broker = start_in_place(settings=QUICK_BROKER | {"num.partitions": PARTITIONS})
    before = write("t", 5, bootstrap=broker.bootstrap)
    member = join(library, "group", "t", bootstrap=broker.bootstrap)
    wait_until_read(before, member)
    member.commit()

    broker.kill()
    start_in_place(settings=QUICK_BROKER)
    after = write("t", 5, bootstrap=broker.bootstrap)

    wait_until(lambda: set(after) <= set(member.values()), "what was written after the restart")
    assert [member.committed(partition) for partition in range(PARTITIONS)] == [5] * PARTITIONS
    member.commit()
    member.close()
    next_member = join(library, "group", "t", bootstrap=broker.bootstrap)
    wait_until_read(write("t", 1, bootstrap=broker.bootstrap), next_member)


with_static_members = pytest.mark.skipif(
    apache_kafka_jars() is not None, reason="Apache Kafka 2.0.1 has no static members (2.3 has)"
)


@with_static_members
@pytest.mark.ability("static")
@pytest.mark.sample(of=lambda library: library in ("kafka-python", "java"))
@pytest.mark.parametrize("library", WITH_STATIC_MEMBERS)
def test_a_killed_static_member_comes_back_and_the_others_keep_their_partitions(library: str, group: Group) -> None:

    def start(name: str) -> GroupMember:
        return group.join(library, group_instance_id=name, session_timeout_ms=LONG_SESSION_MS)

    one, two = start("one"), start("two")
    wait_until_shared([one, two], PARTITIONS)
    had, lost_before = two.assignment(), one.lost()

    two.kill()
    back = start("two")

    wait_until(lambda: back.assignment() == had, "the partitions it had")
    wait_until_read(group.write(5), one, back)
    assert one.lost() == lost_before


@with_static_members
def test_a_static_member_of_librdkafka_outlives_a_broker_that_is_away_for_its_session(
    start_in_place: StartMinibroker, write: Write
) -> None:
    """It has no member id when the broker is back, and commits what it was to commit before it joins again."""
    settings = QUICK_BROKER | {"num.partitions": PARTITIONS}
    broker = start_in_place(settings=settings)
    left, lost = set(write("t", 5, bootstrap=broker.bootstrap)), []
    consumer = consumer_of(
        broker.bootstrap,
        "group",
        group_instance_id="one",
        session_timeout_ms=6000,
        enable_auto_commit=True,
        auto_commit_interval_ms=500,  # those that no broker answers wait for a session timeout each
        reconnect_backoff_max_ms=200,
        auto_offset_reset="earliest",
    )

    def poll() -> None:
        for message in consumer.consume(10, 0.1):
            error = message.error()
            assert error is None or error.code() != KafkaError._FATAL, error
            if error is None:
                left.discard((message.value() or b"").decode())

    consumer.subscribe(["t"], on_lost=lambda _, partitions: lost.extend(partitions))
    poll_until(lambda: not left, poll)

    broker.kill()
    poll_until(lambda: bool(lost), poll)
    start_in_place(settings=settings)
    left.update(write("t", 5, bootstrap=broker.bootstrap))

    poll_until(lambda: not left, poll)
    consumer.close()


def poll_until(is_done: Callable[[], bool], poll: Callable[[], None]) -> None:
    deadline = Deadline(PATIENCE_SECONDS)
    while not is_done():
        deadline.seconds_left("what a consumer polls for")
        poll()


@with_static_members
@pytest.mark.ability("static")
@pytest.mark.sample(of=lambda library: library in ("confluent-kafka", "franz-go"))
@pytest.mark.parametrize("library", WITH_STATIC_MEMBERS_THAT_ARE_FENCED)
def test_a_second_member_of_the_same_name_shuts_out_the_first(library: str, group: Group) -> None:
    settings = {"group_instance_id": "name", "session_timeout_ms": LONG_SESSION_MS}
    first = group.join(library, **settings)
    wait_until_shared([first], PARTITIONS)
    wait_until_read(group.write(1), first)

    second = group.join(library, **settings)

    wait_until_shared([second], PARTITIONS)
    assert_is_shut_out(first)
    wait_until(lambda: bool(second.values()), "what the first could not commit")
    second.commit()


def assert_is_shut_out(member: GroupMember) -> None:
    """By its commit, or by a heartbeat before it; which may leave franz-go nothing that it could commit."""
    try:
        member.commit()
    except ClientError as error:
        assert re.search(SHUT_OUT, str(error)), error
    else:
        assert member.lost() == list(range(PARTITIONS))


@pytest.mark.ability("cooperative")
@pytest.mark.sample(of=lambda library: library in ("confluent-kafka", "java"))
@pytest.mark.parametrize("library", WITH_COOPERATIVE_ASSIGNOR)
def test_a_cooperative_member_loses_no_more_than_another_gets(library: str, group: Group) -> None:
    settings = {"partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": LONG_SESSION_MS}
    one = group.join(library, **settings)
    wait_until_shared([one], PARTITIONS)

    two = group.join(library, **settings)
    wait_until_shared([one, two], PARTITIONS)

    wait_until_read(group.write(5), one, two)
    assert one.lost() == two.assignment()
    assert two.lost() == []


# What a client asks for the same way as all others do is tried with few of them.
@pytest.mark.ability("groups")
@pytest.mark.sample(of=lambda library: library in ("aiokafka", "franz-go"))
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_pattern_is_subscribed_to(library: str, join: Join, new_topic: NewTopic, write: Write) -> None:
    name = f"pattern-{library}"
    topics = [new_topic(name) for _ in range(2)]
    other = new_topic(f"not-{name}")
    write(other, 1, partitions=1)
    values = [value for topic in topics for value in write(topic, 3, partitions=1)]

    member = join(library, f"group-{name}", f"^{name}-.*")

    wait_until_read(values, member)


@pytest.mark.ability("groups")
@pytest.mark.sample(of=lambda library: library == "kafkajs")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_new_group_with_latest_begins_at_the_end(library: str, group: Group) -> None:
    group.write(3)
    member = group.join(library, auto_offset_reset="latest")
    wait_until_shared([member], PARTITIONS)

    written: list[str] = []

    def has_read_one() -> bool:
        """A member has positions some time after it has partitions: what comes before them is not read."""
        written.extend(group.write(1))
        return bool(member.values())

    wait_until(has_read_one, "a record")
    assert set(member.values()) <= set(written)


@pytest.mark.ability("groups")
@pytest.mark.sample(of=lambda library: library == "confluent-kafka")
@pytest.mark.parametrize("library", [each for each in LIBRARIES if each != "kafkajs"])
def test_a_new_group_with_none_fails(library: str, group: Group) -> None:
    group.write(1)

    member = group.join(library, auto_offset_reset="none")

    wait_until(lambda: member.failure() is not None, "the failure")
    assert member.values() == []


@pytest.mark.ability("groups", "@platformatic/kafka")
@pytest.mark.ability("records", "@platformatic/kafka")
def test_a_client_of_topic_ids_and_nothing_older_shares_a_group_seeks_and_goes_on(group: Group) -> None:
    """@platformatic/kafka asks OffsetFetch 8 and later only, and reads in the last version of Fetch that it knows."""
    one = group.join("@platformatic/kafka")
    two = group.join("@platformatic/kafka")
    wait_until_shared([one, two], PARTITIONS)
    wait_until_read(group.write(3), one, two)
    one.commit()
    two.commit()
    two.close()
    wait_until_shared([one], PARTITIONS)
    assert [one.committed(partition) for partition in range(PARTITIONS)] == [3] * PARTITIONS

    offset = one.call("produce", partition=1, value="own")
    wait_until(lambda: "own" in one.values(), "its own record")
    one.call("seek", partition=1, offset=offset - 1)
    wait_until(lambda: one.values().count("own") == 2, "its own record again")
    one.close()
    last = group.join("@platformatic/kafka")
    wait_until_read(["own"], last)


@pytest.mark.parametrize("is_subscribed", [True, False], ids=["subscribed", "assigned"])
def test_librdkafka_with_automatic_commits_closes_at_once(
    is_subscribed: bool, broker: BrokerProcess, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic("closing")
    values = write(topic, 3, partitions=1)
    reader = consumer_of(broker.bootstrap, topic, enable_auto_commit=True, auto_offset_reset="earliest")
    if is_subscribed:
        reader.subscribe([topic])
    else:
        reader.assign([TopicPartition(topic, 0)])
    assert [(message.value() or b"").decode() for message in reader.consume(3, 20)] == values

    begun = time.monotonic()
    reader.close()

    assert time.monotonic() - begun < CLOSE_SECONDS
    again = consumer_of(broker.bootstrap, topic)
    assert [each.offset for each in again.committed([TopicPartition(topic, 0)], 10)] == [3]
    again.close()
