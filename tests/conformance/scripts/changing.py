"""An administrator's changes of existing topics, and questions about log directories.

Apache Kafka tells its own parts of a change through ZooKeeper, after it has answered: `settle` goes between a change
and a question whose answer depends on it.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import (
    batch,
    create,
    create_all,
    delete_records,
    fetch,
    list_offsets,
    metadata_of,
    produce,
    settings,
)
from tests.conformance.steps import Script, Step, call

TOPIC, BROKER = 2, 4
Row = tuple[Any, ...]


def settle(name: str) -> Script:
    """Things that take Apache Kafka a few visits to ZooKeeper."""
    return [create(f"@settle-{name}-{number}") for number in range(3)]


def add(version: int, *topics: Row, timeout_ms: int = 20_000, validate_only: bool = False) -> Step:
    return call("CreatePartitions", version, topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


def alter(version: int, *resources: Row, validate_only: bool = False) -> Step:
    return call("AlterConfigs", version, resources=list(resources), validate_only=validate_only)


def describe(*resources: Row, version: int = 2, include_synonyms: bool = True) -> Step:
    return call("DescribeConfigs", version, resources=list(resources), include_synonyms=include_synonyms)


def assigned(*brokers: list[int]) -> list[Row]:
    return [(each,) for each in brokers]


def added_partitions() -> Script:
    script: Script = []
    for version in range(2):
        name, other = f"@{version}t", f"@{version}u"
        wishes: list[list[Row]] = [
            [(name, 3, None)],
            [(name, 3, None), (other, 4, None)],
            [(name, 2, None)],
            [(name, 0, None), (other, -1, None)],
            [("@nope", 3, None)],
            [("bad/name", 3, None)],
            [(name, 9, None), (name, 8, None), (other, 5, None)],
            [],
        ]
        script += [create_all((name, 2, {}), (other, 1, {})), *(add(version, *wish) for wish in wishes)]
        script += [add(version, (name, 9, brokers), validate_only=True) for brokers in (None, assigned([0]))]
        script += [add(version, (name, 4, assigned([0]))), add(version, (name, 6, assigned([0])))]
        script += [add(version, (name, 5, assigned([1]))), add(version, (name, 6, assigned([1], [2, 0])))]
        script += [add(version, (name, 5, brokers)) for brokers in (assigned([0, 0]), assigned([]), assigned())]
        script += [add(version, (name, 4, assigned())), add(version, (name, 5, None), timeout_ms=0)]
        script += [*settle(f"{version}"), metadata_of(name, other)]
        script += [produce(name, batch(), partition) for partition in range(6)]
        script.append(list_offsets(*((name, partition, -1) for partition in range(6))))
    return script


def replicas_that_are_not_there() -> Script:
    """Created all the same, and seen where one of them is alive."""

    def make(name: str, *replicas: list[int], timeout_ms: int = 300) -> Step:
        counts = (-1, -1) if replicas else (1, 1)
        return call("CreateTopics", 3, topics=[(name, *counts, list(enumerate(replicas)), [])], timeout_ms=timeout_ms)

    script: Script = [make("@some", [0, 5], [5, 0], [5, 6]), make("@none", [5]), make("@late")]
    script += [make("@slow", timeout_ms=0), make("@slower", timeout_ms=-1), *settle("replicas")]
    script += [metadata_of("@some", "@none", "@slow", "@slower"), metadata_of("@none", may_create=True), make("@none")]
    for topic, partition in (("@none", 0), ("@some", 0), ("@some", 1), ("@some", 2)):
        script += [fetch((topic, partition, 0)), produce(topic, batch(), partition)]
        script += [list_offsets((topic, partition, -1)), delete_records((topic, partition, -1))]
    script += [describe((TOPIC, "@none", ["retention.ms"]), (TOPIC, "@some", ["retention.ms"]))]
    script += [alter(1, (TOPIC, "@none", [("retention.ms", "5")])), add(1, ("@some", 4, None))]
    script += [add(1, ("@some", 4, assigned([0]))), add(1, ("@some", 5, assigned([0, 0], [0])))]
    script += [add(1, ("@none", 2, None), timeout_ms=300), *settle("more-replicas"), metadata_of("@some", "@none")]
    script += [describe((TOPIC, "@none", ["retention.ms"]))]
    return [*script, call("DeleteTopics", 2, topic_names=["@late"], timeout_ms=0)]


def names_that_zookeeper_refuses() -> Script:
    """Apache Kafka looks for a topic in ZooKeeper before it grows; what has no path there fails as a whole."""

    def grow(*names: str) -> list[Step]:
        return [add(1, *((name, 2, None) for name in names), validate_only=is_checked) for is_checked in (False, True)]

    refused = (
        ".",
        "..",
        "",
        "\0",
        "a\0b",
        "a//b",
        "a/../b",
        "/",
        "a/",
        "a/./b",
        "\x01",
        "\x7f",
        "\ue000",
        "\U0001f600",
    )
    taken = ("a/b", "...", "a b", "ä", "\xa0", "\uf900", "@nope", "x" * 300)
    script: Script = [create("@a")]
    for name in (*refused, *taken):
        script += grow(name)
    return [*script, *grow("@nope", "."), *grow(".", ".", "@nope")]


def wrong_topics() -> Script:
    """Which of several faults is told."""
    names = [("no.such", "1")]
    values = [("retention.ms", "x")]
    rows: list[Row] = [
        ("bad/name", 0, 1, [], names),
        ("bad/name", 0, 1, [], []),
        ("bad/name", 1, 5, [], []),
        ("bad/name", 1, 1, [], names),
        ("@a", 1, 1, [], names),
        ("@a", 0, 1, [], []),
        ("@a", 1, 1, [(0, [0])], names),
        ("@a", -1, -1, [(0, [0, 0])], []),
        ("@b", -1, -1, [(0, [0, 0])], names),
        ("@b", -1, -1, [(0, [0, 0])], values),
        ("@b", 0, 0, [], []),
        ("@b", -1, -1, [(0, [0]), (1, [0, 0])], []),
        ("@b", 1, 1, [], [*values, *names]),
        ("bad/name", -1, -1, [(0, [0, 0])], []),
    ]
    return [create("@a"), *(call("CreateTopics", 3, topics=[row], timeout_ms=300, validate_only=True) for row in rows)]


TOPIC_KEYS = ["retention.ms", "retention.bytes", "segment.bytes", "max.message.bytes", "min.insync.replicas"]


def changed_topics() -> Script:
    script: Script = [create("@a", 2, retention_bytes=77), create("@b")]
    wishes = """
        retention.ms=5000000 segment.ms=70000; retention.ms=x; no.such=1; retention.ms=x no.such=1; cleanup.policy=burn;
        cleanup.policy=compact,burn; cleanup.policy=compact,delete; min.insync.replicas=0;
        min.cleanable.dirty.ratio=1.5; preallocate=maybe; leader.replication.throttled.replicas=x;
        follower.replication.throttled.replicas=0:1,2; leader.replication.throttled.replicas=*; retention.ms=5000000
        retention.ms=6000000; message.timestamp.type=LogAppendTime;
    """.split(";")

    def retain(name: str, retention_ms: str) -> Row:
        return (TOPIC, name, [("retention.ms", retention_ms)])

    for version in range(2):
        for wish in wishes:
            script += [alter(version, (TOPIC, "@a", settings(wish)), validate_only=is_dry) for is_dry in (True, False)]
            script.append(describe((TOPIC, "@a", TOPIC_KEYS)))
        script += [alter(version, retain(name, "5")) for name in ("@nope", "", "bad/name")]
        script += [alter(version), *(alter(version, (kind, "@a", [])) for kind in (0, 1, 3, 7, 99, -1))]
        script += [alter(version, retain("@a", "9"), (99, "@b", []))]
        script += [alter(version, retain("@a", "90000"), (TOPIC, "@b", [("no.such", "1")]), retain("@a", "80000"))]
        script += [describe((TOPIC, "@a", TOPIC_KEYS), (TOPIC, "@b", TOPIC_KEYS))]
        script += [describe((TOPIC, "@a", TOPIC_KEYS), (99, "@b", None))]
    return script


def changed_topics_at_work() -> Script:
    def change(name: str, *configs: tuple[str, str]) -> Script:
        return [alter(1, (TOPIC, "@a", list(configs))), *settle(name)]

    kept = ("retention.ms", "-1")
    script: Script = [create("@a"), produce("@a", batch(3, 300))]
    script += change("smaller", ("max.message.bytes", "200"), ("segment.bytes", "400"))
    script += [produce("@a", batch(3, 300)), produce("@a", batch(1, 20))]
    script += change("append-time", ("message.timestamp.type", "LogAppendTime"), kept)
    script += [produce("@a", batch(3, 300)), fetch(("@a", 0, 0))]
    script += change("compact", ("cleanup.policy", "compact"), kept)
    script += [produce("@a", batch(rows=((1_500_000_000_000, None, 5),)))]
    script += change("min-isr", ("min.insync.replicas", "2"), kept)
    script += [produce("@a", batch(), acks=-1), produce("@a", batch(), acks=1), *change("none")]
    return [*script, produce("@a", batch(), acks=-1)]


def log_directories() -> Script:
    script: Script = [create("@a", 2), create("@b"), produce("@a", batch(9, 100)), produce("@a", batch(), 1)]
    asked: list[Any] = [None, [], [("@a", [0])], [("@a", [1, 0, 7]), ("@nope", [0])]]
    asked += [[("@a", []), ("@b", [0])], [("@a", [0]), ("@a", [0, 1])]]
    for version in range(2):
        script += [call("DescribeLogDirs", version, topics=topics) for topics in asked]
        moves: list[list[Any]] = [
            [],
            [("/nowhere", [("@a", [0])])],
            [("/nowhere", [("@nope", [0]), ("@a", [9])])],
            [("relative", [("@a", [0])]), ("/nowhere", [("@a", [0, 1])])],
            [("/nowhere", [])],
        ]
        script += [call("AlterReplicaLogDirs", version, dirs=dirs) for dirs in moves]
    return script
