"""Topic settings: Kafka's names, defaults, bounds and messages."""

from __future__ import annotations

import re

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.java_numbers import double_text, parse_double
from minibroker.storage.config import TOPIC_CONFIGS, LogConfig, parse_value

DEFAULTS = LogConfig()

# As Apache Kafka 2.0.1 describes a topic without overrides.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "max.message.bytes": "1000012",
    "message.downconversion.enable": "true",
    "message.format.version": "2.0-IV1",
    "message.timestamp.difference.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
# As later Kafka does.
LATER_DEFAULTS = {"max.compaction.lag.ms": "9223372036854775807", "errors.deadletterqueue.group.enable": "false"}


def test_names_and_defaults_are_kafkas() -> None:
    assert {name: DEFAULTS.value_text(name) for name in TOPIC_CONFIGS} == KAFKA_DEFAULTS | LATER_DEFAULTS


def test_every_value_reads_back_from_its_text() -> None:
    texts = {name: DEFAULTS.value_text(name) for name in TOPIC_CONFIGS}

    assert LogConfig.from_props(texts, LogConfig(segment_bytes=99, preallocate=True)) == DEFAULTS


def test_overrides_lie_on_the_brokers_defaults() -> None:
    broker = LogConfig(retention_ms=5, segment_bytes=77)

    lags = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "6"}
    config = LogConfig.from_props({"retention.ms": "-1", "cleanup.policy": "compact, delete", **lags}, broker)

    assert (config.retention_ms, config.segment_bytes, config.max_compaction_lag_ms) == (-1, 77, 6)
    assert config.cleanup_policy == ("compact", "delete")
    assert config.is_compacted
    assert config.is_deleted
    assert broker.retention_ms == 5


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("segment.bytes", "13", "Value must be at least 14"),
        ("segment.ms", "0", "Value must be at least 1"),
        ("retention.ms", "x", "Not a number of type LONG"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("flush.ms", "1_000", "Not a number of type LONG"),
        ("flush.ms", "\U0001d7d1", "Not a number of type LONG"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "-0.1", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1_0", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "0x1", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "Infinity", "Value must be no more than 1"),
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("compression.type", "brotli", "String must be one of: uncompressed, snappy, lz4, gzip, zstd, producer"),
        ("message.timestamp.type", "Now", "String must be one of: CreateTime, LogAppendTime"),
        ("message.format.version", "2.1", "Version `2.1` is not a valid version"),
    ],
)  # fmt: skip
def test_a_refused_value_is_refused_in_kafkas_words(name: str, text: str, wrong: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        LogConfig.from_props({name: text}, DEFAULTS)

    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert refusal.value.message == f"Invalid value {text} for configuration {name}: {wrong}"


@pytest.mark.parametrize(("text", "value"), [("٣", 3), ("+5", 5), ("007", 7), (" 6 ", 6)])
def test_a_whole_number_is_read_as_java_does(text: str, value: int) -> None:
    assert LogConfig.from_props({"flush.ms": text}, DEFAULTS).flush_ms == value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("NaN", "NaN"),
        ("-NaN", "NaN"),
        ("0.5", "0.5"),
        (".5f", "0.5"),
        ("1.", "1.0"),
        ("1D", "1.0"),
        ("-0.0", "-0.0"),
        ("1e-3", "0.001"),
        ("1e-4", "1.0E-4"),
        ("0.000123", "1.23E-4"),
        ("0x.8p0", "0.5"),
        ("0x1p-20", "9.5367431640625E-7"),
    ],
)
def test_a_double_is_read_and_shown_as_java_does(text: str, shown: str) -> None:
    config = LogConfig.from_props({"min.cleanable.dirty.ratio": text}, DEFAULTS)

    assert config.value_text("min.cleanable.dirty.ratio") == shown


def test_doubles_beyond_those_of_topics_are_shown_as_java_does() -> None:
    values = [1e999, -1e999, 1.7976931348623157e308, 9999999.5, 1e7, -2.5e22, parse_double("0x1p1024")]

    shown = ["Infinity", "-Infinity", "1.7976931348623157E308", "9999999.5", "1.0E7", "-2.5E22", "Infinity"]
    assert [double_text(value) for value in values] == shown


@pytest.mark.parametrize(
    ("props", "message"),
    [
        (
            {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (6) > max.compaction.lag.ms (5)",
        ),
        ({"nonsense": "1"}, "Unknown topic config name: nonsense"),
    ],
)
def test_refused_settings_are_refused_in_kafkas_words(props: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        LogConfig.from_props(props, DEFAULTS)

    assert (refusal.value.code, refusal.value.message) == (ErrorCode.INVALID_CONFIG, message)


@pytest.mark.parametrize("text", ["*", "0:1", "0:1,1:2", "", " 0:1 , 1:2 "])
def test_throttled_replicas_are_pairs_or_a_star(text: str) -> None:
    parse_value("leader.replication.throttled.replicas", text)


@pytest.mark.parametrize("text", ["0", "0:a", "0:1:2", "1:2,*"])
def test_other_throttled_replicas_are_refused(text: str) -> None:
    with pytest.raises(KafkaError, match="must be the literal"):
        parse_value("leader.replication.throttled.replicas", text)


@pytest.mark.parametrize(
    ("version", "magic"),
    [("0.8.2", 0), ("0.9.0.1", 0), ("0.10.0", 1), ("0.10.2-IV0", 1), ("0.11.0", 2), ("1.1", 2), ("2.0.1", 2)],
)
def test_a_format_version_stands_for_a_record_format(version: str, magic: int) -> None:
    assert LogConfig.from_props({"message.format.version": version}, DEFAULTS).magic == magic


def test_every_setting_but_those_of_one_topic_has_a_broker_default() -> None:
    without = {name for name, row in TOPIC_CONFIGS.items() if not row.server_names}

    throttled = {f"{role}.replication.throttled.replicas" for role in ("leader", "follower")}
    assert without == {*throttled, "errors.deadletterqueue.group.enable"}
    assert TOPIC_CONFIGS["retention.ms"].server_names[0] == "log.retention.ms"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("-1e10", "-1.0E10"), ("0x1p3", "8.0"), ("1.50", "1.5"), ("-1e-5", "-1.0E-5"), ("12345678", "1.2345678E7")],
)
def test_a_number_out_of_bounds_is_shown_as_java_writes_it(text: str, shown: str) -> None:
    with pytest.raises(KafkaError, match=f"Invalid value {re.escape(shown)} for configuration min.cleanable"):
        LogConfig.from_props({"min.cleanable.dirty.ratio": text}, LogConfig())


def test_of_several_wrong_values_the_first_in_kafkas_order_is_reported() -> None:
    wrong = {"message.format.version": "x", "compression.type": "x", "cleanup.policy": "x", "segment.ms": "+0"}

    for expected in ("segment.ms", "cleanup.policy", "compression.type", "message.format.version"):
        with pytest.raises(KafkaError, match=f"for configuration {expected}:"):
            LogConfig.from_props(wrong, LogConfig())
        del wrong[expected]
