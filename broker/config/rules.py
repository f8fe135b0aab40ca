"""The rules between settings, beyond the bounds of each: kafka 2.0.1 KafkaConfig.validateValues.

Only those for one broker with PLAINTEXT listeners. The messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable

from minibroker.broker.config.kafka_settings import KafkaSettings

COMPRESSION_TYPES = ("uncompressed", "snappy", "lz4", "gzip", "zstd", "producer")
LAST_CODEC_NUMBER = 3

# A condition, the message if it does not hold, and the settings to name in it.
Rule = tuple[Callable[[KafkaSettings], bool], str, tuple[str, ...]]
RULES: list[Rule] = [
    (
        lambda it: (
            it.broker_id >= -1 and (not it.broker_id_generation_enable or it.broker_id <= it.reserved_broker_max_id)
        ),
        "broker.id must be equal or greater than -1 and not greater than reserved.broker.max.id",
        ("broker.id", "reserved.broker.max.id"),
    ),
    (
        lambda it: it.broker_id_generation_enable or it.broker_id >= 0,
        "broker.id must be equal or greater than 0",
        ("broker.id", "broker.id.generation.enable"),
    ),
    (
        lambda it: it.log_roll_time_ms >= 1,
        "log.roll.ms must be equal or greater than 1",
        ("log.roll.ms", "log.roll.hours"),
    ),
    (
        lambda it: it.log_roll_jitter_time_ms >= 0,
        "log.roll.jitter.ms must be equal or greater than 0",
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    (
        lambda it: it.log_retention_time_ms != 0,
        "log.retention.ms must be unlimited (-1) or, equal or greater than 1",
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    (
        lambda it: it.compression_type in COMPRESSION_TYPES,
        "compression.type : {it.compression_type} is not valid. Valid options are " + ",".join(COMPRESSION_TYPES),
        ("compression.type",),
    ),
    (
        lambda it: it.replica_fetch_wait_max_ms <= it.replica_socket_timeout_ms,
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary"
        " socket timeouts",
        ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ),
    (
        lambda it: it.replica_fetch_wait_max_ms <= it.replica_lag_time_max_ms,
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent"
        " frequent changes in ISR",
        ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ),
    (
        lambda it: -1 <= it.offsets_commit_required_acks <= it.offsets_topic_replication_factor,
        "offsets.commit.required.acks must be greater or equal -1 and less or equal to"
        " offsets.topic.replication.factor",
        ("offsets.commit.required.acks", "offsets.topic.replication.factor"),
    ),
    (
        lambda it: 0 <= it.offsets_topic_compression_codec <= LAST_CODEC_NUMBER,
        "{it.offsets_topic_compression_codec} is an unknown compression codec",
        ("offsets.topic.compression.codec",),
    ),
    (
        lambda it: it.max_connections_per_ip > 0 or bool(it.max_connections_per_ip_overrides),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        ("max.connections.per.ip",),
    ),
    (
        lambda it: it.log_cleaner_dedupe_buffer_size // max(it.log_cleaner_threads, 1) > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
    ),
]
