"""Conversations in groups of the consumer protocol, as Apache Kafka 4.4.0 answered them.

`python -m tests.conformance.consumer_groups --kafka 127.0.0.1:PORT` compares a live one with a minibroker of this tree,
`--record` keeps its answers. It is started with the settings that `--settings` prints, and begins without groups.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from minibroker.protocol.text import counted
from tests.conformance.answers import Plain
from tests.conformance.conversation import SocketPeer
from tests.conformance.generated_consumer_groups import generated_consumer_groups
from tests.conformance.pair import first_difference, wait_for_coordinator
from tests.conformance.recording import abridged
from tests.conformance.recordings import keep, read
from tests.conformance.scripts import consumer_groups as scripts
from tests.conformance.scripts import conversations_of
from tests.conformance.steps import Script, script_text
from tests.integration.brokers import Minibroker

RECORDED = "kafka-4.4.0-consumer-groups.json.gz"
SEEDS = range(1, 521)  # of which so many are kept that Apache Kafka answers alike each time
GENERATED = 500
RUNS = 2
SETTINGS: dict[str, str | int] = {
    "group.consumer.session.timeout.ms": scripts.SESSION_MS,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.assignment.interval.ms": 0,
    "group.consumer.max.size": 6,
    "group.min.session.timeout.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "auto.create.topics.enable": "false",
}
# Those that have no effect here: an assignment is made at once.
KAFKA_SETTINGS: dict[str, str | int] = {
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.assignor.offload.enable": "false",
}
PREPARING = ("CreateTopics", "CreatePartitions", "DeleteTopics", "Fetch", "ListOffsets")
SCRIPTED = conversations_of(scripts)


def script_of(name: str) -> Script:
    """A scripted conversation by its name, or a generated one by its seed."""
    return generated_consumer_groups(int(name)) if name.isdecimal() else SCRIPTED[name]()


def prefix_of(name: str, run: int = 0) -> str:
    """The prefix of a conversation's topics and groups, as long for each, and with each run."""
    return f"g{run}{int(name):05d}-" if name.isdecimal() else f"s{run}{list(SCRIPTED).index(name):05d}-"


def recorded() -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = read(RECORDED)
    return found


def of_groups(script: Script, answers: list[Plain]) -> list[Plain]:
    """The answers of a conversation, without those to what prepares it."""
    for step, answer in zip(script, answers, strict=True):
        if step.api == "JoinGroup" and isinstance(answer, dict) and answer["error_code"]:
            answer["generation_id"] = 0  # as in 2.0.1; later it was -1 (docs/differences.md)
    return ["done" if step.api in PREPARING else abridged(each) for step, each in zip(script, answers, strict=True)]


def hold(peer: SocketPeer, asked: Iterable[str], run: int = 0) -> dict[str, list[Plain]]:
    held = {}
    for name in asked:
        script = script_of(name)
        held[name] = of_groups(script, peer.hold(script, prefix_of(name, run)))
    return held


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.consumer_groups", description=__doc__)
    parser.add_argument("--kafka", help="host:port of an Apache Kafka 4.4.0")
    parser.add_argument("--settings", action="store_true", help="print its settings")
    parser.add_argument("--record", action="store_true", help="keep its answers")
    parser.add_argument(
        "--only", action="append", help="a scripted conversation by its name, a generated one by its seed"
    )
    options = parser.parse_args()
    if options.settings:
        print(*(f"{name}={value}" for name, value in (SETTINGS | KAFKA_SETTINGS).items()), sep="\n")
        return 0
    asked = options.only or [*SCRIPTED, *map(str, SEEDS)]
    host, port = options.kafka.split(":")
    kafka = SocketPeer(host, int(port))
    wait_for_coordinator(kafka)
    theirs = agreed([hold(kafka, asked, run) for run in range(RUNS)])
    kafka.close()
    if options.record:
        keep(RECORDED, (recorded() if options.only else {}) | theirs)
        print(f"{counted(sum(map(len, theirs.values())), 'answer')} of {counted(len(theirs), 'conversation')}")
        return 0
    return compare(theirs)


def agreed(runs: list[dict[str, list[Plain]]]) -> dict[str, list[Plain]]:
    """The conversations that were answered alike in all runs. Raises RuntimeError for a scripted one that was not."""
    first, *others = runs
    alike = {name: answers for name, answers in first.items() if all(run[name] == answers for run in others)}
    unlike = [name for name in first if name not in alike and not name.isdecimal()]
    if unlike:
        raise RuntimeError(f"Apache Kafka has answered differently each time: {', '.join(unlike)}")
    seeds = [name for name in alike if name.isdecimal()][:GENERATED]
    return {name: answers for name, answers in alike.items() if not name.isdecimal() or name in seeds}


def compare(theirs: dict[str, list[Plain]]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        broker = Minibroker(Path(directory), "--set", "broker.id=1", settings=SETTINGS)
        try:
            broker.wait_until_ready()
            ours = SocketPeer(broker.host, broker.port)
            wait_for_coordinator(ours)
            for name, answers in theirs.items():
                found = first_difference(script_of(name), answers, hold(ours, [name])[name])
                if found is not None:
                    failed += 1
                    print(f"-- {name} is answered differently\n{found}\n{script_text(script_of(name))}", flush=True)
            ours.close()
        finally:
            broker.kill()
    print(f"{counted(len(theirs), 'conversation')}, {counted(failed, 'difference')}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
