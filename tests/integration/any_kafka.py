"""Kafka of several releases, and minibroker: each with an authorizer, the groups of its time, an open transaction.

The tests of commands and of pages name what is made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Producer

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from benchmarks.later_kafka import LaterKafka
from tests.integration.brokers import Minibroker
from tests.integration.members import wait_until
from tests.integration.newer_members import NewerMember, share_member, streams_member
from tests.jvm import QUICK_JVM
from tests.minibroker.command_sessions import run

MINIBROKER = "minibroker"
LIKE = ("4.0", "2.0")
CONSUMER_PROTOCOL = "4.0"  # with librdkafka, which does not take the preview of 3.9
NEWER_GROUPS = "4.1"
ZOOKEEPER_AUTHORIZER = {"authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer"}
KRAFT_AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SETTINGS = {"super.users": "User:ANONYMOUS", "offsets.topic.num.partitions": "3", "num.partitions": "2"}
LATER_SETTINGS = SETTINGS | KRAFT_AUTHORIZER | {
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "group.streams.initial.rebalance.delay.ms": "0",
    # Their members send no heartbeat while the commands run, which may take minutes.
    **{
        f"group.{kind}.{most}session.timeout.ms": "600000"
        for kind in ("share", "streams")
        for most in ("", "max.")
    },
}  # fmt: skip


# Of a Spark query that has read the half of one partition.
CHECKPOINT = {
    "metadata": ['{"id":"q"}'],
    "offsets/0": ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}', '{"orders":{"0":2,"1":4}}'],
    "commits/0": ["v1", '{"nextBatchWatermarkMs":0}'],
}

# What only a minibroker with a control socket has; and the streams, which repeat what the pages ask.
UNTRIED = re.compile("/healthz|/api/(inside|clients/|faults|stream)")


class AnyKafka(NamedTuple):
    """`release` is the one whose groups it has, `version` what the console calls it."""

    release: str
    version: str
    bootstrap: str
    folder: Path

    def has(self, since: str) -> bool:
        return numbers(self.release) >= numbers(since)

    def filled(self, line: str) -> str:
        named = {"BROKER": "0", "LINES": f"{self.folder}/lines", "CHECKPOINT": f"{self.folder}/query"}
        return re.sub("|".join(named), lambda found: named[found[0]], line)


def numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


@contextmanager
def any_kafka(name: str, folder: Path) -> Iterator[AnyKafka]:
    """A release, or MINIBROKER, with what is in it. Raises KafkaUnavailable."""
    with started(name, folder / "broker") as broker, ExitStack() as clients:
        release, version = LIKE if name == MINIBROKER else (name, name.rpartition(".")[0])
        found = AnyKafka(release, version, broker.bootstrap, folder)
        for end in populated(found):
            clients.callback(end)
        yield found


@contextmanager
def started(name: str, folder: Path) -> Iterator[Any]:
    """Broker 0, which is alone. Raises KafkaUnavailable."""
    of_zookeeper = SETTINGS | ZOOKEEPER_AUTHORIZER
    broker: Any
    if name == MINIBROKER:
        broker = Minibroker(folder, settings=of_zookeeper | {"broker.id": "0"})
    elif name == "2.0.1":
        broker = ApacheKafka(kafka_jars(), folder, settings=of_zookeeper, heap="512m")
    else:
        broker = LaterKafka(folder, LATER_SETTINGS, release=name, java_options=QUICK_JVM)
    try:
        yield broker.wait_until_ready() if isinstance(broker, Minibroker) else broker.start()
    finally:
        broker.kill()


def populated(kafka: AnyKafka) -> Iterator[Callable[[], object]]:
    """Make what the tables name; yield what ends the clients that stay."""
    (kafka.folder / "lines").write_text("a:one\nb:two\nc:three\n")
    for path, lines in CHECKPOINT.items():
        file = kafka.folder / "query" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(lines))
    address = {"bootstrap.servers": kafka.bootstrap}
    assert run(["topics", "create", "orders", "-p", "2", "-b", kafka.bootstrap], b"")[0] == 0
    producer = Producer(address)
    for number in range(8):
        producer.produce("orders", str(number), partition=number % 2)
    producer.flush(30)
    groups = {"classic": "classic", "left-classic": "classic"}
    groups |= {"newer": "consumer", "left-newer": "consumer"} if kafka.has(CONSUMER_PROTOCOL) else {}
    for group, protocol in groups.items():
        own = {"group.id": group, "client.id": "reader", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer(address | own | {"enable.auto.commit": False})
        consumer.subscribe(["orders"])
        read: list[Any] = []

        def has_read(consumer: Consumer = consumer, read: list[Any] = read) -> bool:
            read.extend(consumer.consume(8, 0.2))
            return len(read) == 8

        wait_until(has_read, f"{group} reads")
        consumer.commit(asynchronous=False)
        if group.startswith("left"):
            consumer.close()
        else:
            yield consumer.close
    transactional = Producer(address | {"transactional.id": "paying"})
    transactional.init_transactions(30)
    transactional.begin_transaction()
    assert run(["topics", "create", "payments", "-p", "1", "-b", kafka.bootstrap], b"")[0] == 0
    transactional.produce("payments", "open")
    transactional.flush(30)
    yield lambda: transactional.purge()
    if kafka.has(NEWER_GROUPS):
        share_member(kafka.bootstrap, "left-sharing", "orders").leave()
        members = {
            "sharing": share_member(kafka.bootstrap, "sharing", "orders"),
            "streaming": streams_member(kafka.bootstrap, "streaming", "orders"),
        }
        for group, member in members.items():

            def has_partitions(member: NewerMember = member, group: str = group) -> bool:
                member.beat()
                return "orders 0-1" in run(["groups", "describe", group, "-b", kafka.bootstrap], b"")[1]

            wait_until(has_partitions, f"{group} has its partitions")


def names_of(command: Any, name: str = "") -> Iterator[str]:
    """The commands that take -b."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from names_of(inner, f"{name} {word}".strip())
    if any("-b" in option.opts for option in command.params):
        yield name


def untried(addresses: Mapping[str, Any], lines: Sequence[str]) -> list[str]:
    """The console's addresses to read that none of these lines is one of."""
    read = [path for path, methods in addresses.items() if "get" in methods and not UNTRIED.match(path)]
    patterns = {path: re.sub(r"{\w+}", "[^/]+", path) for path in read}
    paths = [line.partition("?")[0] for line in lines]
    return [path for path in read if not any(re.fullmatch(patterns[path], each) for each in paths)]
