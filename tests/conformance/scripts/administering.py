"""Questions of an administrator, and of a client that finds its way."""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import Row, batch, create, create_all, fetch, metadata_of, produce
from tests.conformance.steps import Script, Step, call
from tests.requests import by_name

LONG = "x" * 241  # with the prefix, the longest that is allowed


def make(version: int, *topics: tuple[Any, ...], **options: Any) -> Step:
    return call("CreateTopics", version, topics=list(topics), timeout_ms=20_000, **options)


def versions_of_apis() -> Script:
    script: Script = [call("ApiVersions", version) for version in range(3)]
    script += [call("ApiVersions", version, raw=b"") for version in (6, 99, -1, 32767)]
    script += [call("ApiVersions", 0, raw=b"trailing"), call("ApiVersions", 0, client_id=None)]
    for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics", "DescribeConfigs"):
        script += [call(api, 99, raw=b"\0" * 40), call(api, -1, raw=b"\0" * 40), call(api, 1, raw=b"")]
        script += [call(api, 2, raw=b"\x7f" * 40)]
    return script


def created_topics() -> Script:
    """Topics are made; none of -1 partitions or replicas, which minibroker takes as Kafka 2.4 (KIP-464)."""

    def topic(name: str, partitions: int = 1, factor: int = 1, *brokers: list[int]) -> Row:
        return (f"{tag}{name}", partitions, factor, list(enumerate(brokers)), [])

    script: Script = []
    for version in range(4):
        tag = f"@{version}"
        script += [make(version, topic("plain", 2)), make(version, topic("plain", 2))]
        script += [make(version, topic("assigned", -1, -1, [0], [0])), make(version, topic("both", 1, 1, [0]))]
        script += [make(version, topic("twice", -1, -1, [0, 0])), make(version, topic("uneven", -1, -1, [0], [0, 1]))]
        script += [make(version, topic("p0", 0), topic("p2", -2))]
        script += [make(version, topic("r0", 1, 0), topic("r2", 1, 2))]
        script += [make(version, *((name, 1, 1, [], []) for name in ("", ".", "..")))]
        script += [make(version, *map(topic, ("a/b", "a b", "ä"))), make(version, topic("x.y"))]
        script += [make(version, topic("x_y")), make(version, *map(topic, ("same", "same", "other")))]
        script += [make(version, topic(LONG[:-1])), make(version, topic(LONG)), make(version)]
        if version:
            script += [make(version, topic("only", 2), topic("plain"), validate_only=True)]
            script += [make(version, (f"{tag}only", 2, 1, [], [("no.such", "1")]), validate_only=True)]
        script.append(metadata_of(f"{tag}only", f"{tag}plain", f"{tag}assigned", version=5))
    return script


def configs_of_topics() -> Script:
    configs: dict[str, tuple[str | None, ...]] = {
        "cleanup.policy": ("compact", "delete", "compact,delete", "", "both", "Compact", " delete "),
        "compression.type": ("gzip", "ZSTD", "GZIP", "none", "uncompressed", "producer"),
        "retention.ms": ("-1", "0", "-2", "x", "9223372036854775808", "1.5", "+5", " 7 "),
        "segment.bytes": ("14", "13", "1048576", "2147483648", ""),
        "min.insync.replicas": ("0", "1", "2"),
        "max.message.bytes": ("0", "-1", "10"),
        "message.format.version": ("0.8.2", "0.10.0-IV0", "1.0", "2.0-IV1", "0.11.0.2"),
        "message.timestamp.type": ("LogAppendTime", "CreateTime", "createtime"),
        "message.timestamp.difference.max.ms": ("0", "-1"),
        "min.cleanable.dirty.ratio": ("0", "1", "1.1", "-0.1", "x", "0.25"),
        "preallocate": ("true", "TRUE", "yes", "1"),
        "message.downconversion.enable": ("false", "no"),
        "leader.replication.throttled.replicas": ("*", "0:0,1:1", ""),
        "segment.ms": ("0", "1"),
        "flush.messages": ("0", "1", "-1"),
        "no.such.config": ("1",),
        "": ("1",),
    }
    script: Script = []
    made: list[str] = []
    for config, values in configs.items():
        for value in values:
            name = f"@c{len(made)}"
            made.append(name)
            script.append(make(3, (name, 1, 1, [], [(config, value)])))
    script.append(make(3, ("@many", 1, 1, [], [("retention.ms", "5"), ("retention.ms", "6"), ("segment.ms", "7")])))
    names = [*made, "@many"]
    for number, name in enumerate(names):
        script.append(call("DescribeConfigs", number % 3, resources=[(2, name, None if number % 5 == 0 else KEYS)]))
    script.append(call("DescribeConfigs", 2, resources=[(2, name, KEYS) for name in names], include_synonyms=True))
    return script


KEYS = """
    cleanup.policy compression.type retention.ms segment.bytes min.insync.replicas max.message.bytes
    message.format.version message.timestamp.type message.timestamp.difference.max.ms min.cleanable.dirty.ratio
    preallocate message.downconversion.enable leader.replication.throttled.replicas segment.ms flush.messages
""".split()


def described_configs() -> Script:
    script: Script = [create("@a", 1, retention_ms=1000, compression_type="lz4", segment_bytes=2000)]
    broker_keys = """
        message.max.bytes num.partitions log.retention.ms log.retention.hours no.such compression.type
    """.split()
    resources: list[tuple[Any, ...]] = [
        *((2, "@a", keys) for keys in (None, [], ["retention.ms", "no.such", "retention.ms"])),
        *((2, name, None) for name in ("@nope", "", "bad/name")),
        *((4, "0", keys) for keys in (broker_keys, [])),
        *((4, name, None) for name in ("", "1", "x")),
        *((kind, "@a", None) for kind in (0, 1, 3, 99)),
    ]
    for version in range(3):
        for synonyms in (False, True) if version else (False,):
            options: dict[str, Any] = {"include_synonyms": synonyms} if version else {}
            script += [call("DescribeConfigs", version, resources=[resource], **options) for resource in resources]
        script.append(call("DescribeConfigs", version, resources=[(2, "@a", KEYS), (2, "@nope", None), (2, "@a", [])]))
        script.append(call("DescribeConfigs", version, resources=[]))
    return script


def deleted_topics() -> Script:
    def delete(*names: str) -> Step:
        return call("DeleteTopics", version, topic_names=list(names), timeout_ms=20_000)

    script: Script = []
    for version in range(3):
        names = [f"@{version}{each}" for each in "abc"]
        script += [create_all(*((name, 1, {}) for name in names)), delete("@nope", names[0]), delete(names[0])]
        script += [fetch((names[0], 0, 0)), produce(names[0], batch())]
        script += [delete(names[1], names[1], ""), delete(), metadata_of(*names, version=4)]
    return script


def metadata() -> Script:
    script: Script = [create("@a", 3), create("@b", 1)]
    for version in range(7):
        options: dict[str, Any] = {"allow_auto_topic_creation": False} if version >= 4 else {}
        asked: list[list[Any] | None] = [by_name("@a", "@b", "@a"), by_name("@b"), []]
        asked += [by_name(name) for name in ("", "bad/name", f"@{LONG}x")]
        asked += [None] * (version >= 1) + [by_name("@nope", "@a")] * (version >= 4)
        script += [call("Metadata", version, topics=topics, **options) for topics in asked]
    script += [call("Metadata", version, topics=by_name(f"@auto{version}")) for version in range(7)]
    script += [call("Metadata", 4, topics=by_name("@a.b")), create("@c_d"), call("Metadata", 4, topics=by_name("@c.d"))]
    return script
