"""The steps that clients of share groups take, each client the same, with any broker that has such groups.

A step is a function of a `Stage`, which has a topic and a group of its own. `lacks` names the clients that have no such
thing, and why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from minibroker.protocol.errors import ErrorCode
from tests.integration.clients import ClientError, DriverProcess, go_program, java_driver, python_driver
from tests.integration.drivers.line_protocol import Deadline, DeadlineError
from tests.integration.librdkafka import values_in
from tests.integration.members import wait_until

DRIVERS: dict[str, Callable[[], list[str]]] = {
    "java-4.4": lambda: java_driver("4.4.0", "JavaSharer"),
    "franz-go": lambda: go_program("share"),
    "confluent-kafka": lambda: python_driver("sharer"),
}
POLL_MS = 200
SECONDS = 60.0
ALONE_MS = 3000  # a lock that is to end; no other lock does within a test
ACCEPT, RELEASE, REJECT, RENEW = "accept", "release", "reject", "renew"
ADMIN = {"confluent-kafka": "its AdminClient has no requests of share groups"}
KEEPS = {"franz-go": "accepts by itself, at its next poll, what it was told nothing of"}
MODES = {"franz-go": "has no modes: what it is told nothing of, it accepts at its next poll"}
ONE_BATCH = {"confluent-kafka": "has no share.acquire.mode"}


class Got(NamedTuple):
    """A record as a member has it."""

    topic: str
    partition: int
    offset: int
    value: str | None
    deliveries: int


class Member:
    """A member of the stage's group, in the client's process."""

    def __init__(self, driver: DriverProcess, name: str) -> None:
        self.driver = driver
        self.name = name
        self.has: dict[str | None, Got] = {}

    def call(self, operation: str, **arguments: Any) -> Any:
        return self.driver.call(operation, member=self.name, **arguments)

    def poll(self) -> list[Got]:
        found = [Got(*row) for row in self.call("poll", ms=POLL_MS)]
        self.has |= {each.value: each for each in found}
        return found

    def read(self, *values: str | None, kind: str | None = None, **kinds: str) -> dict[str | None, int]:
        """Poll until it has read these records, and no other; return how often each was delivered.

        What it has read is acknowledged at once: `kind` is for all, `kinds` for single values.
        """
        read: list[Got] = []
        deadline = Deadline(SECONDS)
        while len(read) < len(values):
            deadline.seconds_left(f"{values} after {[each.value for each in read]}")
            polled = self.poll()
            read += polled
            for each in polled:
                what = kinds.get(str(each.value), kind)
                if what is not None:
                    self.acknowledge(each.value, what)
        found = sorted(str(each.value) for each in read)
        assert found == sorted(map(str, values)), f"{found} in place of {values}"
        return {each.value: each.deliveries for each in read}

    def acknowledge(self, value: str | None, kind: str) -> None:
        got = self.has[value]
        self.call("acknowledge", topic=got.topic, partition=got.partition, offset=got.offset, kind=kind)

    def commit(self) -> set[int]:
        """Commit, and return the errors of partitions."""
        return {each or 0 for each in self.call("commit").values()}

    def close(self) -> None:
        self.call("close")


class Stage:
    """A topic `t` and a group, for one step of one client."""

    def __init__(self, client: str, bootstrap: str, driver: DriverProcess, log: IO[bytes], name: str) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.group = f"group-{name}"
        self.driver = driver
        self.log = log
        self.name = name
        self._address: dict[str, Any] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._address)
        self._members: list[Member] = []
        self._others: list[DriverProcess] = []
        self.create()
        self.configure(share_auto_offset_reset="earliest")

    def end(self) -> None:
        for member in self._members:
            member.close()
        for driver in self._others:
            driver.kill()

    # -- what the members find --------------------------------------------------------------------------------

    def topic(self, name: str = "t") -> str:
        return f"{name}-{self.name}"

    def create(self, name: str = "t", partitions: int = 1, *, configs: Mapping[str, str] | None = None) -> None:
        named = {each.replace("_", "."): value for each, value in (configs or {}).items()}
        for done in self._admin.create_topics([NewTopic(self.topic(name), partitions, 1, config=named)]).values():
            done.result()

    def delete(self, name: str = "t") -> None:
        for done in self._admin.delete_topics([self.topic(name)]).values():
            done.result()

    def grow(self, partitions: int) -> None:
        for done in self._admin.create_partitions([NewPartitions(self.topic(), partitions)]).values():
            done.result()

    def cut(self, offset: int) -> None:
        """Delete the records of the topic before this offset."""
        for done in self._admin.delete_records([TopicPartition(self.topic(), 0, offset)]).values():
            done.result()

    def configure(self, **configs: object) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, self.group, incremental_configs=entries)
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result()

    def write(self, *values: str | None, topic: str = "t", partition: int = 0, **more: Any) -> None:
        """Write one batch."""
        errors: list[Any] = [KafkaError._UNKNOWN_PARTITION]
        while errors:  # a broker may not know the partition yet
            assert set(errors) == {KafkaError._UNKNOWN_PARTITION}, errors
            errors.clear()
            producer = Producer(self._address | {"linger.ms": 60_000})
            for value in values:
                producer.produce(
                    self.topic(topic),
                    value,
                    partition=partition,
                    on_delivery=lambda error, _: errors.append(error.code()) if error else None,
                    **more,
                )
            assert producer.flush(SECONDS) == 0

    def transaction(self, *values: str) -> Producer:
        """Write records in a transaction, and leave it open."""
        producer = Producer(self._address | {"transactional.id": self.topic()})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic(), value, partition=0)
        assert producer.flush(SECONDS) == 0
        return producer

    def values_in(self, topic: str) -> list[bytes]:
        return values_in(self.bootstrap, self.topic(topic))[0]

    # -- members, and who looks after them --------------------------------------------------------------------

    def member(
        self,
        name: str = "one",
        *,
        topics: Sequence[str] = ("t",),
        mode: str = "implicit",
        most: int = 500,
        acquires: str = "batch_optimized",
        group: str = "",
        apart: bool = False,
    ) -> Member:
        """A new member; `apart` in a process of its own."""
        driver = self.driver
        if apart:
            driver = DriverProcess(self.client, [*DRIVERS[self.client](), self.bootstrap], self.log)
            self._others.append(driver)
        member = Member(driver, f"{name}-{self.name}")
        names = [self.topic(each) for each in topics]
        member.call("open", group=group or self.group, topics=names, mode=mode, most=most, acquires=acquires)
        if not apart:
            self._members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self._members.remove(member)
        member.close()

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Ask as an administrator."""
        return self.driver.call(operation, group=self.group, **arguments)

    def wait_for(self, operation: str, expected: Any) -> None:
        answers: list[Any] = [None]

        def is_there() -> bool:
            answers.append(self.ask(operation))
            return bool(answers[-1] == expected)

        try:
            wait_until(is_there, f"{expected} of {operation}", seconds=SECONDS)
        except DeadlineError:
            raise AssertionError(f"{operation}: {answers[-1]} in place of {expected}") from None

    def wait_for_lag(self, lag: int) -> None:
        """Of the topic's only partition. The start may be behind: docs/differences.md."""
        wait_until(lambda: [row[1] for row in self.ask("offsets").values()] == [lag], f"a lag of {lag}")


def refused(kind: str, call: Callable[[], object]) -> str:
    """The error that a client raises."""
    try:
        call()
    except ClientError as error:
        assert kind in error.kind, error
        return str(error)
    raise AssertionError(f"no {kind}")


def code_of(call: Callable[[], object]) -> int:
    """Kafka's error that a client raises."""
    try:
        call()
    except ClientError as error:
        return error.code or 0
    return 0


class Step(NamedTuple):
    take: Callable[[Stage], None]
    lacks: Mapping[str, str]


STEPS: dict[str, Step] = {}


def step(title: str, lacks: Mapping[str, str] | None = None) -> Callable[[Callable[[Stage], None]], None]:
    def note(take: Callable[[Stage], None]) -> None:
        assert title not in STEPS
        STEPS[title] = Step(take, lacks or {})

    return note


# -- subscriptions ----------------------------------------------------------------------------------------------------


@step("a subscription is listed, replaced and ended")
def _(stage: Stage) -> None:
    one = stage.member(topics=["t", "u"])
    assert one.call("subscription") == [stage.topic("t"), stage.topic("u")]
    one.call("subscribe", topics=[stage.topic("u")])
    assert one.call("subscription") == [stage.topic("u")]
    one.call("subscribe", topics=[])
    assert one.call("subscription") == []


@step("a member without a subscription may not poll", {"franz-go": "waits in its poll"})
def _(stage: Stage) -> None:
    assert "subscri" in refused("IllegalState", stage.member(topics=[]).poll)


@step("two topics are read")
def _(stage: Stage) -> None:
    stage.create("u", 2)
    stage.write("a")
    stage.write("b", topic="u", partition=0)
    stage.write("c", topic="u", partition=1)
    assert stage.member(topics=["t", "u"]).read("a", "b", "c") == {"a": 1, "b": 1, "c": 1}


@step("another topic is subscribed to")
def _(stage: Stage) -> None:
    stage.create("u")
    stage.write("a")
    one = stage.member()
    one.read("a")
    one.call("subscribe", topics=[stage.topic("u")])
    stage.write("b", topic="u")
    one.read("b")
    assert not any(one.poll() for _ in range(4))  # until the fetch is over that waits at the leader of the first topic
    stage.write("c")
    stage.write("d", topic="u")
    one.read("d")


@step("a topic is subscribed to before it is created")
def _(stage: Stage) -> None:
    one = stage.member(topics=["t", "u"])
    stage.write("a")
    one.read("a")
    stage.create("u")
    stage.write("b", topic="u")
    one.read("b")


@step("partitions are added")
def _(stage: Stage) -> None:
    one = stage.member()
    stage.write("a")
    one.read("a")
    stage.grow(3)
    stage.write("b", partition=1)
    stage.write("c", partition=2)
    one.read("b", "c")


@step("a topic is deleted, and the other is read on")
def _(stage: Stage) -> None:
    stage.create("u")
    one = stage.member(topics=["t", "u"])
    stage.write("a")
    one.read("a")
    stage.delete("t")
    stage.write("b", topic="u")
    one.read("b")


@step("a topic that was deleted and created again is read from its start")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member()
    one.read("a", "b")
    stage.leave(one)
    stage.delete()

    def is_made() -> bool:
        """A controller may have to delete it still."""
        try:
            stage.create()
        except KafkaException as error:
            assert error.args[0].code() == ErrorCode.TOPIC_ALREADY_EXISTS, error
            return False
        return True

    wait_until(is_made, "the end of the topic")
    stage.write("c")
    stage.member("two").read("c")


@step("a pattern is a name that no topic has", {"franz-go": "takes patterns by an option of its own"})
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member(topics=[])
    one.call("subscribe", topics=["^t.*"])
    assert code_of(one.poll) in (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    one.call("subscribe", topics=[stage.topic()])
    one.read("a")


# -- where a group begins ---------------------------------------------------------------------------------------------


@step("a group begins at the end")
def _(stage: Stage) -> None:
    stage.configure(share_auto_offset_reset="latest")
    stage.write("early")
    one = stage.member()
    read: list[str | None] = []

    def has_read() -> bool:
        stage.write("late")
        read.extend(each.value for each in one.poll())
        return bool(read)

    wait_until(has_read, "a record")
    assert set(read) == {"late"}


@step("a group begins at the start")
def _(stage: Stage) -> None:
    stage.write("a")
    stage.write("b")
    stage.member().read("a", "b")


@step("a group begins some time ago")
def _(stage: Stage) -> None:
    stage.configure(share_auto_offset_reset="by_duration:PT1H")
    stage.write("old", timestamp=1_600_000_000_000)
    stage.write("a")
    stage.member().read("a")


@step("a group begins behind records that were deleted")
def _(stage: Stage) -> None:
    for value in "abc":
        stage.write(value)
    stage.cut(2)
    stage.member().read("c")


@step("records that are deleted meanwhile are passed over")
def _(stage: Stage) -> None:
    one = stage.member(mode="explicit")
    stage.write("a")
    one.read("a", kind=RELEASE)
    stage.cut(1)
    one.commit()
    stage.write("b")
    assert one.read("b", kind=ACCEPT) == {"b": 1}


# -- acknowledgements -------------------------------------------------------------------------------------------------


def goes_on(stage: Stage, value: str = "next") -> None:
    """Another member has the next record, and no other. One that was killed may have had it first."""
    stage.write(value)
    stage.member("another").read(value)


@step("the next poll accepts what the last one gave")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member()
    one.read("a", "b")
    stage.write("c")
    one.read("c")
    assert one.commit() <= {0}
    stage.leave(one)
    goes_on(stage)


@step("a commit accepts what the last poll gave")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(apart=True)
    one.read("a", "b")
    assert one.commit() == {0}
    one.driver.kill()
    goes_on(stage)


@step("an asynchronous commit accepts, and calls back")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member()
    one.read("a", "b")
    one.call("commit_async")

    def is_told() -> bool:
        assert one.poll() == []
        return bool(one.call("told"))

    wait_until(is_told, "the callback")
    [(partition, offsets, error)] = one.call("told")
    assert (partition, error) == (f"{stage.topic()}-0", None)
    assert offsets == ([0, 1] if stage.client != "franz-go" else None)
    stage.leave(one)
    goes_on(stage)


@step("a synchronous commit calls back too")
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member()
    one.read("a")
    assert one.commit() == {0}
    wait_until(lambda: one.poll() == [] and bool(one.call("told")), "the callback")
    assert [error for _, _, error in one.call("told")] == [None]


@step("a commit of nothing does nothing")
def _(stage: Stage) -> None:
    one = stage.member()
    assert one.commit() == set()
    one.call("commit_async")
    stage.write("a")
    one.read("a")


@step("an accepted record does not come again")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit")
    one.read("a", "b", kind=ACCEPT)
    assert one.commit() == {0}
    stage.leave(one)
    goes_on(stage)


@step("a released record comes again, and its deliveries are counted")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit")
    assert one.read("a", "b", kind=RELEASE) == {"a": 1, "b": 1}
    assert one.commit() == {0}
    assert one.read("a", "b", a=ACCEPT, b=RELEASE) == {"a": 2, "b": 2}
    assert one.commit() == {0}
    assert one.read("b", kind=ACCEPT) == {"b": 3}


@step("a rejected record does not come again")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit")
    one.read("a", "b", a=REJECT, b=RELEASE)
    assert one.commit() == {0}
    assert one.read("b", kind=ACCEPT) == {"b": 2}
    one.commit()
    stage.leave(one)
    goes_on(stage)


@step("records of one poll are accepted, released and rejected")
def _(stage: Stage) -> None:
    stage.write("a", "b", "c", "d", "e")
    one = stage.member(mode="explicit")
    one.read("a", "b", "c", "d", "e", a=REJECT, b=RELEASE, c=ACCEPT, d=RELEASE, e=ACCEPT)
    assert one.commit() == {0}
    assert one.read("b", "d", kind=ACCEPT) == {"b": 2, "d": 2}


@step("the next poll sends what was acknowledged")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit")
    one.read("a", "b", a=RELEASE, b=ACCEPT)
    assert one.read("a", kind=ACCEPT) == {"a": 2}


@step("an asynchronous commit sends what was acknowledged")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit", acquires="record_limit")
    one.read("a", "b", a=RELEASE, b=ACCEPT)
    one.call("commit_async")
    assert stage.member("two", mode="explicit", acquires="record_limit").read("a", kind=ACCEPT) == {"a": 2}


@step("a renewed record is held on", {"confluent-kafka": "has no RENEW"})
def _(stage: Stage) -> None:
    stage.configure(share_record_lock_duration_ms=ALONE_MS)
    stage.write("a", "b")
    one = stage.member(mode="explicit", acquires="record_limit")
    one.read("a", "b")
    stage.configure(share_record_lock_duration_ms=60_000)
    one.acknowledge("a", RENEW)
    one.acknowledge("b", ACCEPT)
    assert one.commit() == {0}
    stage.write("c", "d")
    two = stage.member("two", mode="explicit", acquires="record_limit")
    two.read("c", "d", kind=ACCEPT)
    ends_at = time.monotonic() + 2 * ALONE_MS / 1000
    while time.monotonic() < ends_at:
        assert two.poll() == []
    if stage.client == "java-4.4":  # which gives it again
        assert one.read("a") == {"a": 1}
    one.acknowledge("a", ACCEPT)
    assert one.commit() == {0}


@step("all must be acknowledged before the next poll", MODES)
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit")
    one.read("a", "b", a=ACCEPT)
    refused("IllegalState", one.poll)
    one.acknowledge("b", ACCEPT)
    assert one.commit() == {0}


@step("nothing is acknowledged by word in the implicit mode", MODES)
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member()
    one.read("a")
    refused("IllegalState", lambda: one.acknowledge("a", ACCEPT))


@step("a record that was not delivered cannot be acknowledged", {"franz-go": "acknowledges records that it has given"})
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member(mode="explicit")
    one.read("a")
    one.has["b"] = one.has["a"]._replace(offset=7)
    refused("IllegalState", lambda: one.acknowledge("b", ACCEPT))
    one.acknowledge("a", ACCEPT)


@step("a word is changed before it is sent", {"franz-go": "keeps the first word"})
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member(mode="explicit")
    one.read("a", kind=ACCEPT)
    one.acknowledge("a", RELEASE)
    assert one.commit() == {0}
    assert one.read("a", kind=ACCEPT) == {"a": 2}


@step("a record is delivered so often and no more")
def _(stage: Stage) -> None:
    stage.configure(share_delivery_count_limit=2)
    stage.write("a")
    one = stage.member(mode="explicit")
    for count in (1, 2):
        assert one.read("a", kind=RELEASE) == {"a": count}
        assert one.commit() == {0}
    stage.write("b")
    one.read("b", kind=ACCEPT)


@step("without a limit of its own a group delivers five times")
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member(mode="explicit")
    for count in range(1, 6):
        assert one.read("a", kind=RELEASE) == {"a": count}
        assert one.commit() == {0}
    stage.write("b")
    one.read("b", kind=ACCEPT)


# -- how many records -------------------------------------------------------------------------------------------------


@step("a member takes no more records than it asks for", ONE_BATCH)
def _(stage: Stage) -> None:
    stage.write("a", "b", "c", "d", "e")
    one = stage.member(mode="explicit", most=2, acquires="record_limit")
    one.read("a", "b")
    two = stage.member("two", mode="explicit", most=2, acquires="record_limit")
    two.read("c", "d", kind=ACCEPT)
    one.acknowledge("a", ACCEPT)
    one.acknowledge("b", RELEASE)
    assert one.commit() == {0}


@step("a batch is taken whole")
def _(stage: Stage) -> None:
    stage.write("a", "b", "c")
    one = stage.member(mode="explicit", most=1)
    first = one.poll()
    while not first:
        first = one.poll()
    stage.write("d")
    assert stage.member("two", mode="explicit").read("d", kind=ACCEPT) == {"d": 1}
    for each in first:
        one.acknowledge(each.value, ACCEPT)
    one.commit()


@step("no more records are in flight than the group allows")
def _(stage: Stage) -> None:
    stage.configure(share_partition_max_record_locks=100)
    values = [str(number) for number in range(300)]
    for begin in range(0, 300, 50):
        stage.write(*values[begin : begin + 50])
    one = stage.member(mode="explicit")
    read: list[Got] = []
    most = 0
    deadline = Deadline(SECONDS)
    while len(read) < 300:
        deadline.seconds_left(f"300 records after {len(read)}")
        polled = one.poll()
        most = max(most, len(polled))
        for each in polled:
            one.acknowledge(each.value, ACCEPT)
        one.commit()
        read += polled
    assert sorted(int(each.value or -1) for each in read) == list(range(300))
    assert {each.deliveries for each in read} == {1}
    assert most <= 150


@step("records with keys, headers and without values come as they are")
def _(stage: Stage) -> None:
    stage.write("a", None, key=b"k", headers=[("h", b"1")])
    assert stage.member().read("a", None) == {"a": 1, None: 1}


# -- several members --------------------------------------------------------------------------------------------------


def all_read(members: Sequence[Member], values: Sequence[str]) -> list[set[str | None]]:
    """Have members read, in turn, until they have all these values, each once; return what each has."""
    read: list[list[str | None]] = [[] for _ in members]
    deadline = Deadline(SECONDS)
    while sum(map(len, read)) < len(values):
        deadline.seconds_left(f"{len(values)} records after {read}")
        for member, own in zip(members, read, strict=True):
            own += [each.value for each in member.poll()]
    assert sorted(str(each) for own in read for each in own) == sorted(values)
    return [set(own) for own in read]


@step("two members share a partition")
def _(stage: Stage) -> None:
    one, two = stage.member("one", most=1), stage.member("two", most=1)
    shared: list[set[str | None]] = []

    def is_shared() -> bool:
        values = [f"{len(shared)}-{number}" for number in range(10)]
        for value in values:
            stage.write(value)
        shared.append(set())
        found = all_read([one, two], values)
        return all(found)

    wait_until(is_shared, "records for both")


@step("members of many partitions have all records")
def _(stage: Stage) -> None:
    stage.grow(4)
    members = [stage.member(name) for name in ("one", "two", "three")]
    values = [f"{partition}-{number}" for partition in range(4) for number in range(5)]
    for partition in range(4):
        stage.write(*values[5 * partition : 5 * partition + 5], partition=partition)
    all_read(members, values)


@step("two groups have all records each")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    stage.member("one").read("a", "b")
    other = Stage(stage.client, stage.bootstrap, stage.driver, stage.log, f"other-{stage.name}")
    two = stage.member("two", group=other.group)
    two.read("a", "b")


@step("who leaves has its records delivered to another")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit")
    one.read("a", "b", a=ACCEPT)
    stage.leave(one)
    assert stage.member("two", mode="explicit").read("b", kind=ACCEPT) == {"b": 2}


@step("who leaves has accepted nothing of its last poll")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member()
    one.read("a", "b")
    stage.leave(one)
    assert stage.member("two").read("a", "b") == {"a": 2, "b": 2}


@step("who dies has its records delivered to another")
def _(stage: Stage) -> None:
    stage.write("a", "b")
    one = stage.member(mode="explicit", apart=True)
    one.read("a", "b")
    one.driver.kill()
    assert stage.member("two", mode="explicit").read("a", "b", kind=ACCEPT) == {"a": 2, "b": 2}


@step("a record whose lock has ended is delivered to another, and is no longer the first one's")
def _(stage: Stage) -> None:
    stage.configure(share_record_lock_duration_ms=ALONE_MS)
    stage.write("a", "b")
    one = stage.member(mode="explicit", acquires="record_limit")
    one.read("a", "b")
    stage.configure(share_record_lock_duration_ms=60_000)
    assert stage.member("two", mode="explicit", acquires="record_limit").read("a", "b", kind=ACCEPT) == {"a": 2, "b": 2}
    one.acknowledge("a", ACCEPT)
    one.acknowledge("b", ACCEPT)
    assert one.commit() == {ErrorCode.INVALID_RECORD_STATE}


@step("a member that left comes back, and the group goes on")
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member()
    one.read("a")
    one.commit()
    stage.leave(one)
    stage.write("b")
    stage.member("one").read("b")


@step("a poll is woken", {"franz-go": "ends a poll by its context", "confluent-kafka": "has no wakeup"})
def _(stage: Stage) -> None:
    one = stage.member()
    one.call("wake")
    refused("Wakeup", one.poll)
    stage.write("a")
    one.read("a")


@step(
    "a member knows how long it holds a record",
    {"franz-go": "tells it of each record", "confluent-kafka": "does not tell"},
)
def _(stage: Stage) -> None:
    stage.configure(share_record_lock_duration_ms=20_000)
    stage.write("a")
    one = stage.member()
    one.read("a")
    assert one.call("lock_ms") == 20_000


# -- transactions -----------------------------------------------------------------------------------------------------


@step("what was aborted is not read, nor what is open")
def _(stage: Stage) -> None:
    stage.configure(share_isolation_level="read_committed")
    stage.write("a")
    stage.transaction("aborted").abort_transaction(SECONDS)
    open_one = stage.transaction("committed")
    one = stage.member()
    one.read("a")
    stage.write("b")
    assert one.poll() == []
    open_one.commit_transaction(SECONDS)
    assert one.read("committed", "b") == {"committed": 1, "b": 1}
    assert one.commit() <= {0}


@step("without that isolation what was aborted is read")
def _(stage: Stage) -> None:
    stage.transaction("aborted").abort_transaction(SECONDS)
    open_one = stage.transaction("open")
    stage.member().read("aborted", "open")
    open_one.abort_transaction(SECONDS)


# -- dead-letter queues -----------------------------------------------------------------------------------------------


def given_up(stage: Stage, queue: str, **topic_configs: str) -> list[bytes]:
    """Have a group reject a record, and give another up; return the values in its dead-letter queue."""
    stage.create(queue, configs=topic_configs)
    stage.configure(
        errors_deadletterqueue_topic_name=stage.topic(queue),
        errors_deadletterqueue_copy_record_enable="true",
        share_delivery_count_limit=2,
    )
    stage.write("a", "b", "c")
    one = stage.member(mode="explicit")
    one.read("a", "b", "c", a=REJECT, b=RELEASE, c=ACCEPT)
    assert one.commit() == {0}
    one.read("b", kind=RELEASE)
    assert one.commit() == {0}
    stage.write("d")
    one.read("d", kind=ACCEPT)
    if topic_configs:
        wait_until(lambda: len(stage.values_in(queue)) == 2, "dead letters")
    return stage.values_in(queue)


@step("records that are rejected or given up go to the dead-letter queue")
def _(stage: Stage) -> None:
    assert given_up(stage, "dlq.t", errors_deadletterqueue_group_enable="true") == [b"a", b"b"]


@step("a topic that does not say so is no dead-letter queue")
def _(stage: Stage) -> None:
    assert given_up(stage, "dlq.t") == []


@step("a group without copies puts only the places of records into its dead-letter queue")
def _(stage: Stage) -> None:
    stage.create("dlq.t", configs={"errors_deadletterqueue_group_enable": "true"})
    stage.configure(errors_deadletterqueue_topic_name=stage.topic("dlq.t"))
    stage.write("a")
    one = stage.member(mode="explicit")
    one.read("a", kind=REJECT)
    assert one.commit() == {0}
    wait_until(lambda: stage.values_in("dlq.t") == [b""], "the dead letter")


# -- administration ---------------------------------------------------------------------------------------------------


@step("a group is listed", ADMIN)
def _(stage: Stage) -> None:
    assert stage.ask("list") == []
    one = stage.member()
    stage.write("a")
    one.read("a")
    stage.wait_for("list", ["Share" if stage.client.startswith("java") else "share", "Stable"])
    stage.leave(one)
    stage.wait_for("list", ["Share" if stage.client.startswith("java") else "share", "Empty"])


@step("a group is described, with what its members have", ADMIN)
def _(stage: Stage) -> None:
    stage.grow(2)
    one = stage.member()
    stage.write("a")
    one.read("a")
    stage.wait_for("describe", {"state": "Stable", "assigned": [[f"{stage.topic()}-0", f"{stage.topic()}-1"]]})
    stage.leave(one)
    stage.wait_for("describe", {"state": "Empty", "assigned": []})


@step("a group that is not there is not described", ADMIN)
def _(stage: Stage) -> None:
    assert code_of(lambda: stage.ask("describe")) == ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.ask("offsets") == {}


@step("the offsets of a group move with what is accepted", ADMIN)
def _(stage: Stage) -> None:
    stage.write("a", "b", "c")
    one = stage.member(mode="explicit")
    one.read("a", "b", "c", a=ACCEPT, b=ACCEPT, c=RELEASE)
    assert one.commit() == {0}
    stage.leave(one)
    stage.wait_for_lag(1)


def left_behind(stage: Stage, *values: str) -> None:
    """Have a group that has read these records, and no member."""
    stage.write(*values)
    one = stage.member("first")
    one.read(*values)
    assert one.commit() == {0}
    stage.leave(one)
    stage.wait_for_lag(0)


@step("a group is set back", ADMIN)
def _(stage: Stage) -> None:
    left_behind(stage, "a", "b", "c")
    stage.ask("alter", topic=stage.topic(), offsets={"0": 1})
    stage.wait_for("offsets", {f"{stage.topic()}-0": [1, 2]})
    stage.member().read("b", "c")


@step("the offsets of a group are set before it has a member", ADMIN)
def _(stage: Stage) -> None:
    for value in "abc":
        stage.write(value)
    stage.ask("alter", topic=stage.topic(), offsets={"0": 1})
    stage.member().read("b", "c")


@step("the offsets of a group are deleted, and it begins anew", ADMIN)
def _(stage: Stage) -> None:
    left_behind(stage, "a", "b")
    stage.ask("forget", topic=stage.topic())
    assert stage.ask("offsets") == {}
    stage.member().read("a", "b")


@step("a group is deleted", ADMIN)
def _(stage: Stage) -> None:
    left_behind(stage, "a", "b")
    stage.ask("delete")
    assert stage.ask("list") == []
    assert code_of(lambda: stage.ask("delete")) == ErrorCode.GROUP_ID_NOT_FOUND
    stage.member().read("a", "b")


@step("a group with members is neither set back nor deleted", ADMIN)
def _(stage: Stage) -> None:
    stage.write("a")
    one = stage.member()
    one.read("a")
    topic = stage.topic()
    assert code_of(lambda: stage.ask("alter", topic=topic, offsets={"0": 0})) == ErrorCode.NON_EMPTY_GROUP
    assert code_of(lambda: stage.ask("forget", topic=topic)) == ErrorCode.NON_EMPTY_GROUP
    assert code_of(lambda: stage.ask("delete")) == ErrorCode.NON_EMPTY_GROUP
