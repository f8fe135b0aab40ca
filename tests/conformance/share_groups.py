"""Generated conversations in share groups, as Apache Kafka 4.4.0 answered them.

`python -m tests.books kafka-4.4.0 kafka-4.4.0/share-groups` holds them with a live one and a minibroker of this tree;
`--record` keeps what it answers.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.later_kafka import LaterKafka
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import NO_ANSWER, SocketPeer
from minibroker.conformance.steps import Script
from tests.conformance.comparing import Difference, first_difference, wait_for_coordinator
from tests.conformance.consumer_groups import RELEASE
from tests.conformance.generated_share_groups import BEATS_TO_BEGIN, generated_share_group
from tests.conformance.recording import abridged
from tests.conformance.recordings import Comparison, read
from tests.integration.brokers import Minibroker

RECORDED = "kafka-4.4.0-share-groups.json.gz"
SEEDS = range(1, 361)  # of which so many are kept that Apache Kafka answers alike each time
GENERATED = 300
RUNS = 2
AT_A_TIME = 4
SETTINGS: dict[str, str | int] = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": 100,
}
# Those that have no effect here: an assignment is made at once.
KAFKA_SETTINGS: dict[str, str | int] = {
    "group.share.assignor.offload.enable": "false",
    "group.share.assignment.interval.ms": 0,
    "group.share.min.assignment.interval.ms": 0,
}
PREPARING = ("CreateTopics", "Fetch", "ListOffsets", "Produce")
EPOCHS = ("member_epoch", "group_epoch", "assignment_epoch")
STARTS = ("start_offset", "lag")
EPOCH_IN_WORDS = re.compile(r"(?<=coordinator \()\d+(?=\))")


def recorded() -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = read(RECORDED)
    return found


def prefix_of(seed: str, run: int = 0) -> str:
    return f"h{run}{int(seed):05d}-"


def of_shares(script: Script, answers: list[Plain]) -> list[Plain]:
    """The answers without what docs/differences.md has: when a member has its first partitions, and thus its epochs;
    where the starts of partitions are, and their lag. A failure of Apache Kafka's own ends the conversation."""
    asked = [step for step in script if step.kind != "drop"]
    beats = [number for number, step in enumerate(asked) if step.api == "ShareGroupHeartbeat"]
    begun = beats[BEATS_TO_BEGIN]
    base = answers[begun]["member_epoch"]
    shown: list[Plain] = []
    for number, (step, answer) in enumerate(zip(asked, answers, strict=True)):
        if number <= begun or step.api in PREPARING:
            shown.append("done")
            continue
        if answer == NO_ANSWER or "'error_code': -1" in str(answer):
            shown += [NO_ANSWER] * (len(answers) - number)
            break
        shown.append(abridged(relative(answer, base)))
        if step.api == "ShareGroupHeartbeat" and answer["assignment"] is not None:
            shown[-1]["assignment"] = "given"
    return shown


def relative(value: Plain, base: int, name: str = "") -> Plain:
    """The answer with epochs as what they are more than `base`."""
    if isinstance(value, dict):
        return {each: relative(item, base, each) for each, item in value.items()}
    if isinstance(value, list):
        rows = [relative(each, base) for each in value]
        return sorted(rows, key=str) if name in ("groups", "members", "partitions") else rows
    if name in EPOCHS and value > 0:
        return value - base
    if name in STARTS:
        return name
    if name == "error_message" and value is not None:
        return EPOCH_IN_WORDS.sub(lambda found: str(int(found[0]) - base), value)
    return value


def hold(host: str, port: int, seeds: Iterable[str], run: int = 0) -> dict[str, list[Plain]]:
    """Hold the conversations, several at a time: each has topics and a group of its own."""
    first = SocketPeer(host, port)
    wait_for_coordinator(first)
    first.close()

    def held(seed: str) -> list[Plain]:
        peer, script = SocketPeer(host, port, answer_seconds=10.0), generated_share_group(int(seed))
        try:
            return of_shares(script, peer.hold(script, prefix_of(seed, run)))
        finally:
            peer.close()

    names = list(seeds)
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        return dict(zip(names, threads.map(held, names), strict=True))


def answers_of_apache_kafka(seeds: range) -> dict[str, list[Plain]]:
    """Return the answers that are alike in each run, to the first of these seeds. Raises KafkaUnavailable."""
    settings = {name: str(value) for name, value in (SETTINGS | KAFKA_SETTINGS).items()}
    with tempfile.TemporaryDirectory() as directory, LaterKafka(Path(directory), settings, release=RELEASE) as kafka:
        hold(kafka.host, kafka.port, ["0"])  # which makes the topic of states
        first, *others = (hold(kafka.host, kafka.port, map(str, seeds), run) for run in range(RUNS))
    alike = {seed: answers for seed, answers in first.items() if all(run[seed] == answers for run in others)}
    return dict(list(alike.items())[:GENERATED])


def compared(seeds: range) -> Comparison:
    """Hold these with a live Apache Kafka and with a minibroker of this tree. Raises KafkaUnavailable."""
    theirs = answers_of_apache_kafka(seeds or SEEDS)
    with tempfile.TemporaryDirectory() as directory:
        broker = Minibroker(Path(directory), "--listen", "127.0.0.1:0", settings=SETTINGS).wait_until_ready()
        try:
            ours = hold(broker.host, broker.port, theirs)
        finally:
            broker.kill()
    found = {seed: difference(seed, answers, ours[seed]) for seed, answers in theirs.items()}
    return Comparison(theirs, len(theirs), [f"seed {seed}: {each}" for seed, each in found.items() if each])


def difference(seed: str, theirs: list[Plain], ours: list[Plain]) -> Difference | None:
    """The first difference, before a failure of Apache Kafka's own."""
    count = theirs.index(NO_ANSWER) if NO_ANSWER in theirs else len(theirs)
    return first_difference(generated_share_group(int(seed)), theirs[:count], ours[:count], strict=False)
