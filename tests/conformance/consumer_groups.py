"""Conversations in groups of the consumer protocol, as Apache Kafka 4.4.0 answered them.

`python -m tests.conformance --release 4.4.0` starts one and compares it with a minibroker of this tree;
`python -m tests.books kafka-4.4.0 kafka-4.4.0/BOOK --record` keeps what it answers to a book.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import NamedTuple

from benchmarks.later_kafka import LaterKafka
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import SocketPeer
from minibroker.conformance.steps import Script, script_text
from tests.conformance.comparing import Difference, first_difference, wait_for_coordinator
from tests.conformance.generated_consumer_groups import generated_consumer_groups
from tests.conformance.recording import abridged
from tests.conformance.recordings import Comparison, read
from tests.conformance.scripts import OF_KAFKA_4_4
from tests.integration.brokers import Minibroker

RELEASE = "4.4.0"
RECORDED = "kafka-4.4.0-consumer-groups.json.gz"
SEEDS = range(1, 521)  # of which so many are kept that Apache Kafka answers alike each time
GENERATED = 500
RUNS = 2
MEETING_SECONDS = 300.0
SETTINGS: dict[str, str | int] = {
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": 6,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "transaction.state.log.num.partitions": 1,
}
# Those that have no effect here: an assignment is made at once.
KAFKA_SETTINGS: dict[str, str | int] = {
    "group.consumer.assignor.offload.enable": "false",
}
# An assignment by a changed regular expression is there one heartbeat later in Kafka (docs/differences.md).
LATER_IN_KAFKA = {"a regular expression beside names": 11}
PREPARING = (
    "CreateAcls",
    "CreateTopics",
    "CreatePartitions",
    "DeleteTopics",
    "Fetch",
    "FindCoordinator",
    "ListOffsets",
)


def script_of(name: str) -> Script:
    """A scripted conversation by its name, or a generated one by its seed."""
    return generated_consumer_groups(int(name)) if name.isdecimal() else OF_KAFKA_4_4[name]()


def prefix_of(name: str, run: int = 0) -> str:
    """The prefix of a conversation's topics and groups, as long for each, and with each run."""
    return f"g{run}{int(name):05d}-" if name.isdecimal() else f"s{run}{list(OF_KAFKA_4_4).index(name):05d}-"


def recorded() -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = read(RECORDED)
    return found


def of_groups(script: Script, answers: list[Plain]) -> list[Plain]:
    """The answers of a conversation, without those to what prepares it."""
    for step, answer in zip(script, answers, strict=True):
        if step.api == "JoinGroup" and isinstance(answer, dict) and answer["error_code"]:
            answer["generation_id"] = 0  # as in 2.0.1; later it was -1 (docs/differences.md)
    return ["done" if step.api in PREPARING else abridged(each) for step, each in zip(script, answers, strict=True)]


class Subject(NamedTuple):
    """A broker to hold conversations with."""

    host: str
    port: int
    restart: Callable[[], None]  # once it is killed


def has_restart(script: Script) -> bool:
    return any(step.kind == "restart" for step in script)


def hold(subject: Subject, asked: Iterable[str], run: int = 0) -> dict[str, list[Plain]]:
    """The answers of conversations: one after the other, then those together in which the broker is restarted."""
    scripts = {name: script_of(name) for name in asked}
    restarted = [name for name, script in scripts.items() if has_restart(script)]
    peer = SocketPeer(subject.host, subject.port)
    wait_for_coordinator(peer)
    held = {name: peer.hold(scripts[name], prefix_of(name, run)) for name in scripts if name not in restarted}
    peer.close()
    if restarted:
        meeting = Barrier(len(restarted), subject.restart, MEETING_SECONDS)

        def hold_with_others(name: str) -> list[Plain]:
            one = SocketPeer(subject.host, subject.port, meeting.wait)
            try:
                return one.hold(scripts[name], prefix_of(name, run))
            finally:
                one.close()

        with ThreadPoolExecutor(len(restarted)) as threads:
            held |= dict(zip(restarted, threads.map(hold_with_others, restarted), strict=True))
    return {name: of_groups(script, held[name]) for name, script in scripts.items()}


def compared(names: list[str]) -> Comparison:
    """Hold these with a live Apache Kafka and with a minibroker of this tree. Raises KafkaUnavailable."""
    theirs = answers_of_apache_kafka(names)
    return Comparison(recorded() | theirs, len(theirs), compare(theirs))


def compared_generated(seeds: range) -> Comparison:
    return compared([*map(str, seeds or SEEDS)])


def answers_of_apache_kafka(asked: Iterable[str]) -> dict[str, list[Plain]]:
    """The answers of an Apache Kafka that begins without groups. Raises KafkaUnavailable."""
    settings = {name: str(value) for name, value in (SETTINGS | KAFKA_SETTINGS).items()}
    with tempfile.TemporaryDirectory() as directory, LaterKafka(Path(directory), settings, release=RELEASE) as kafka:

        def restart() -> None:
            kafka.kill()
            kafka.restart()

        subject, names = Subject(kafka.host, kafka.port, restart), list(asked)
        with_restart = [name for name in names if has_restart(script_of(name))]
        others = [name for name in names if name not in with_restart]
        restarted = [hold(subject, with_restart, run) for run in range(RUNS)]  # first: it starts sooner on few logs
        return agreed([held | hold(subject, others, run) for run, held in enumerate(restarted)])


def agreed(runs: list[dict[str, list[Plain]]]) -> dict[str, list[Plain]]:
    """The conversations that were answered alike in all runs. Raises RuntimeError for a scripted one that was not."""
    first, *others = runs
    alike = {name: answers for name, answers in first.items() if all(run[name] == answers for run in others)}
    unlike = {name: found for run in others for name in first if (found := between(name, first, run)) is not None}
    if unlike:
        shown = "\n".join(f"-- {name}\n{found}" for name, found in unlike.items())
        raise RuntimeError(f"Apache Kafka has answered differently each time:\n{shown}")
    seeds = [name for name in alike if name.isdecimal()][:GENERATED]
    return {name: answers for name, answers in alike.items() if not name.isdecimal() or name in seeds}


def between(name: str, first: dict[str, list[Plain]], other: dict[str, list[Plain]]) -> Difference | None:
    """The difference of a scripted conversation between two runs."""
    return None if name.isdecimal() else first_difference(script_of(name), first[name], other[name])


def started(directory: Path, port: int = 0) -> Minibroker:
    listen = f"127.0.0.1:{port}"
    return Minibroker(directory, "--listen", listen, "--set", "broker.id=1", settings=SETTINGS).wait_until_ready()


def compare(theirs: dict[str, list[Plain]]) -> list[str]:
    """The conversations that a minibroker of this tree answers otherwise, as texts."""
    with tempfile.TemporaryDirectory() as directory:
        broker = started(Path(directory))

        def restart() -> None:
            nonlocal broker
            broker.kill()
            broker = started(Path(directory), broker.port)

        try:
            ours = hold(Subject(broker.host, broker.port, restart), theirs)
        finally:
            broker.kill()
    found = {name: first_difference(script_of(name), answers, ours[name]) for name, answers in theirs.items()}
    return [
        f"-- {name} is answered differently\n{each}\n{script_text(script_of(name))}"
        for name, each in found.items()
        if each is not None
    ]
