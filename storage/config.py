"""The settings of a topic: one table row for each, with its type, its bounds and the source of its default.

A `LogConfig` is the broker's defaults with a topic's overrides; it is immutable. Texts are parsed, and refused with the
same messages, as Kafka's ConfigDef does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.java_numbers import double_text, parse_double, parse_whole
from minibroker.protocol.record import INT64_MAX

Value = int | float | bool | str | tuple[str, ...]
Check = Callable[[Value], None]  # raises ValueError: a message, and before it the invalid part if that is not all

_DAY_MS = 24 * 60 * 60 * 1000
_SMALLEST_RECORD_BYTES = 14  # of message format 0

_FORMAT_VERSION = re.compile(  # up to 2.0; a bug-fix number may follow
    r"(0\.8\.[012]|0\.9\.0|0\.10\.0(-IV[01])?|0\.10\.1(-IV[012])?|0\.10\.2(-IV0)?|0\.11\.0(-IV[012])?"
    r"|1\.[01](-IV0)?|2\.0(-IV[01])?)(\..*)?"
)


class ConfigType(Enum):
    """The types of settings, with Kafka's names."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"


class TopicConfig(NamedTuple):
    """One setting; the default is `LogConfig`'s."""

    name: str
    attribute: str
    type: ConfigType
    check: Check | None
    server_names: tuple[str, ...]  # the broker settings that give the default, the first one set wins
    doc: str


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one log, Kafka 2.0's defaults."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    max_message_bytes: int = 1_000_012
    index_interval_bytes: int = 4096
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    cleanup_policy: tuple[str, ...] = ("delete",)
    unclean_leader_election_enable: bool = False
    min_insync_replicas: int = 1
    compression_type: str = "producer"
    preallocate: bool = False
    message_format_version: str = "2.0-IV1"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_difference_max_ms: int = INT64_MAX
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    message_downconversion_enable: bool = True
    errors_deadletterqueue_group_enable: bool = False
    as_later: bool = False  # no config: as kafka 3.9, which ignores the format version, and counts no missing replica

    @classmethod
    def from_props(cls, overrides: Mapping[str, str], defaults: LogConfig) -> LogConfig:
        """Return the defaults with the overrides. Raises KafkaError(INVALID_CONFIG); checks names before values."""
        check_names(overrides)
        # In Kafka's order, of which the first wrong value is answered; the format last, which Kafka does not check.
        names = sorted((name for name in TOPIC_CONFIGS if name in overrides), key="message.format.version".__eq__)
        values = {TOPIC_CONFIGS[name].attribute: parse_value(name, overrides[name]) for name in names}
        least_ms, most_ms = values.get("min_compaction_lag_ms", 0), values.get("max_compaction_lag_ms", INT64_MAX)
        if least_ms > most_ms:  # type: ignore[operator]
            raise _invalid(
                f"conflict topic config setting min.compaction.lag.ms ({least_ms}) > max.compaction.lag.ms ({most_ms})"
            )
        return replace(defaults, **values)  # type: ignore[arg-type]

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """The age at which a segment is closed, as the active segment cannot be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    def least_in_sync(self, replica_count: int) -> int:
        """How many replicas must be in sync for an acks=all produce."""
        return min(self.min_insync_replicas, replica_count) if self.as_later else self.min_insync_replicas

    @property
    def magic(self) -> int:
        """The record format of `message_format_version`."""
        if self.as_later:
            return 2
        if self.message_format_version.startswith(("0.8.", "0.9.")):
            return 0
        return 1 if self.message_format_version.startswith("0.10.") else 2

    def value_text(self, name: str) -> str:
        """Return the setting as DescribeConfigs shows it. Raises KafkaError(INVALID_CONFIG) for an unknown name."""
        value: Value = getattr(self, _row(name).attribute)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return double_text(value)
        return ",".join(value) if isinstance(value, tuple) else str(value)


def check_names(names: Iterable[str]) -> None:
    """Raise KafkaError(INVALID_CONFIG) for a name that is not a topic's setting."""
    for name in names:
        _row(name)


def parse_value(name: str, text: str) -> Value:
    """Return the typed value of a setting. Raises KafkaError(INVALID_CONFIG) with Kafka's message."""
    row, shown = _row(name), text.strip()
    try:
        value = _PARSERS[row.type](shown)
        if isinstance(value, float):
            shown = double_text(value)
        elif row.type in (_INT, _LONG):
            shown = str(value)
        if row.check is not None:
            row.check(value)
    except ValueError as error:
        shown, problem = error.args if len(error.args) > 1 else (shown, error)
        raise _invalid(f"Invalid value {shown} for configuration {name}: {problem}") from error
    return value


def _row(name: str) -> TopicConfig:
    row = TOPIC_CONFIGS.get(name)
    if row is None:
        raise _invalid(f"Unknown topic config name: {name}")
    return row


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return text.lower() == "true"


def _parse_whole(text: str, kind: ConfigType, bits: int) -> int:
    try:
        return parse_whole(text, bits)
    except ValueError:
        raise ValueError(f"Not a number of type {kind.value}") from None


def _parse_double(text: str) -> float:
    try:
        return parse_double(text)
    except ValueError:
        raise ValueError("Not a number of type DOUBLE") from None


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"\s*,\s*", text)) if text else ()


_PARSERS: dict[ConfigType, Callable[[str], Value]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: lambda text: _parse_whole(text, ConfigType.INT, 32),
    ConfigType.LONG: lambda text: _parse_whole(text, ConfigType.LONG, 64),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
}


def _at_least(lowest: int) -> Check:
    def check(value: Value) -> None:
        if isinstance(value, int) and value < lowest:
            raise ValueError(str(value), f"Value must be at least {lowest}")

    return check


def _ratio(value: Value) -> None:
    assert isinstance(value, float)
    if value < 0:  # NaN is neither less nor more
        raise ValueError(double_text(value), "Value must be at least 0")
    if value > 1:
        raise ValueError(double_text(value), "Value must be no more than 1")


def _one_of(*allowed: str) -> Check:
    def check(value: Value) -> None:
        words = value if isinstance(value, tuple) else (value,)
        for word in words:
            if word not in allowed:
                raise ValueError(word, "String must be one of: " + ", ".join(allowed))

    return check


def _format_version(value: Value) -> None:
    if _FORMAT_VERSION.fullmatch(str(value)) is None:
        raise ValueError(f"Version `{value}` is not a valid version")


def _throttled_replicas(name: str) -> Check:
    def check(value: Value) -> None:
        assert isinstance(value, tuple)
        if value[:1] != ("*",) and any(re.fullmatch(r"(\d+:\d+)?", word, re.ASCII) is None for word in value):
            raise ValueError(
                f"[{', '.join(value)}]",
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId],[brokerId]:[partitionId],[brokerId]:...",
            )

    return check


def _config(name: str, kind: ConfigType, check: Check | None, server_names: str, doc: str) -> tuple[str, TopicConfig]:
    attribute = name.replace(".", "_")
    return name, TopicConfig(name, attribute, kind, check, tuple(server_names.split()), doc)


_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST

# fmt: off
TOPIC_CONFIGS: dict[str, TopicConfig] = dict([
    _config("segment.bytes", _INT, _at_least(_SMALLEST_RECORD_BYTES), "log.segment.bytes",
            "A segment file that would grow beyond this is closed and the next one begun."),
    _config("segment.ms", _LONG, _at_least(1), "log.roll.ms log.roll.hours",
            "A segment is closed at this age even if not full, so that it can be deleted or compacted."),
    _config("segment.jitter.ms", _LONG, _at_least(0), "log.roll.jitter.ms log.roll.jitter.hours",
            "Up to this much is taken off segment.ms at random, so that logs do not all roll at once."),
    _config("segment.index.bytes", _INT, _at_least(0), "log.index.size.max.bytes",
            "Largest size of an offset or time index; a full index closes the segment."),
    _config("flush.messages", _LONG, _at_least(0), "log.flush.interval.messages",
            "Forces the log to disk after this many messages."),
    _config("flush.ms", _LONG, _at_least(0), "log.flush.interval.ms log.flush.scheduler.interval.ms",
            "Forces the log to disk when the oldest message not yet there is this old."),
    _config("retention.bytes", _LONG, None, "log.retention.bytes",
            "Size of a partition beyond which its oldest segments are deleted; -1 for no limit."),
    _config("retention.ms", _LONG, None, "log.retention.ms log.retention.minutes log.retention.hours",
            "Age at which a segment is deleted; -1 for never."),
    _config("max.message.bytes", _INT, _at_least(0), "message.max.bytes",
            "Largest record batch accepted (largest message, with message formats 0 and 1)."),
    _config("index.interval.bytes", _INT, _at_least(0), "log.index.interval.bytes",
            "Bytes of records between two entries of the offset index."),
    _config("delete.retention.ms", _LONG, _at_least(0), "log.cleaner.delete.retention.ms",
            "How long compaction keeps delete markers, for consumers that read from the start."),
    _config("min.compaction.lag.ms", _LONG, _at_least(0), "log.cleaner.min.compaction.lag.ms",
            "How long a message stays out of reach of compaction."),
    _config("max.compaction.lag.ms", _LONG, _at_least(1), "log.cleaner.max.compaction.lag.ms",
            "How long a message may stay uncompacted, whatever the dirty ratio; Kafka has it from 2.3 on."),
    _config("file.delete.delay.ms", _LONG, _at_least(0), "log.segment.delete.delay.ms",
            "How long a file stays on disk after it has left the log."),
    _config("min.cleanable.dirty.ratio", _DOUBLE, _ratio, "log.cleaner.min.cleanable.ratio",
            "Part of a log that must be uncompacted before the cleaner looks at it."),
    _config("cleanup.policy", _LIST, _one_of("compact", "delete"), "log.cleanup.policy",
            "What becomes of old segments: deleted by age and size, compacted by key, or both."),
    _config("unclean.leader.election.enable", _BOOLEAN, None, "unclean.leader.election.enable",
            "Whether a replica that is not in sync may become leader as a last resort, losing data."),
    _config("min.insync.replicas", _INT, _at_least(1), "min.insync.replicas",
            "Replicas that must be in sync for a write with acks=all to be accepted."),
    _config("compression.type", _STRING, _one_of("uncompressed", "snappy", "lz4", "gzip", "zstd", "producer"),
            "compression.type", "Codec of the stored batches; 'producer' keeps the one they came with."),
    _config("preallocate", _BOOLEAN, None, "log.preallocate",
            "Whether a new segment takes its full size on disk at once."),
    _config("message.format.version", _STRING, _format_version, "log.message.format.version",
            "Kafka version whose message format the log is written in."),
    _config("message.timestamp.type", _STRING, _one_of("CreateTime", "LogAppendTime"),
            "log.message.timestamp.type", "Whether a record keeps the producer's time or gets the broker's."),
    _config("message.timestamp.difference.max.ms", _LONG, _at_least(0),
            "log.message.timestamp.difference.max.ms",
            "Largest distance of a producer's timestamp from the broker's clock; not for LogAppendTime."),
    _config("leader.replication.throttled.replicas", _LIST,
            _throttled_replicas("leader.replication.throttled.replicas"), "",
            "Replicas throttled where they are leader: partition:broker,... or * for all."),
    _config("follower.replication.throttled.replicas", _LIST,
            _throttled_replicas("follower.replication.throttled.replicas"), "",
            "Replicas throttled where they follow: partition:broker,... or * for all."),
    _config("message.downconversion.enable", _BOOLEAN, None, "log.message.downconversion.enable",
            "Whether older consumers get batches converted to their format, or an error."),
    _config("errors.deadletterqueue.group.enable", _BOOLEAN, None, "",
            "Whether share groups may write the records that they give up into the topic; Kafka has it from 4.4 on."),
])
# fmt: on
