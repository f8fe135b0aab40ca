"""The rules between settings, beyond the bounds of each: kafka 2.0.1 KafkaConfig.validateValues.

Only those for one broker with PLAINTEXT listeners. The messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from minibroker.broker.config.settings.endpoints import PROTOCOLS, protocols_by_listener
from minibroker.broker.config.settings.table import KafkaSettings

COMPRESSION_TYPES = ("uncompressed", "snappy", "lz4", "gzip", "zstd", "producer")
LAST_CODEC_NUMBER = 3
RECORDING_LEVELS = ("INFO", "DEBUG")  # in any case

# A condition, the message if it does not hold, and the settings to name in it.
Rule = tuple[Callable[[KafkaSettings], bool], str, tuple[str, ...]]
BrokenRule = tuple[str, tuple[str, ...]]  # the message, and the settings to name in it


VERSIONS = ("log.message.format.version", "inter.broker.protocol.version")  # the settings that are a version of Kafka
FIRST_VERSIONS = ("0.8.0", "0.10.0", "0.11.0")  # of Kafka with each record format, by magic


def magic_of(version: str) -> int:
    """The record format of a version of Kafka (`0.10.2-IV0`, `2.0`)."""
    if version.startswith(("0.8.", "0.9.")):
        return 0
    return 1 if version.startswith("0.10.") else 2


def has_period(name: str, *, least: int = 1) -> Rule:
    """The rule that the interval of a task is long enough."""
    attribute = name.replace(".", "_")
    return lambda it: getattr(it, attribute) >= least, f"{name} must be at least {least}", (name,)


def is_at_least(greater: str, lesser: str) -> Callable[[KafkaSettings], bool]:
    """The condition that one setting is not below another."""
    return lambda it: bool(getattr(it, greater.replace(".", "_")) >= getattr(it, lesser.replace(".", "_")))


RULES: list[Rule] = [
    *(
        (
            is_at_least(f"group.consumer.max.{each}", f"group.consumer.min.{each}"),
            f"group.consumer.max.{each} must be greater than or equal to group.consumer.min.{each}",
            (f"group.consumer.min.{each}", f"group.consumer.max.{each}"),
        )
        for each in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    ),
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
        lambda it: magic_of(it.inter_broker_protocol_version) >= magic_of(it.log_message_format_version),
        "log.message.format.version {it.log_message_format_version} can only be used when"
        " inter.broker.protocol.version is set to version {first_version} or higher",
        ("log.message.format.version", "inter.broker.protocol.version"),
    ),
    (
        lambda it: it.queued_max_request_bytes <= 0 or it.queued_max_request_bytes >= it.socket_request_max_bytes,
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ("queued.max.request.bytes", "socket.request.max.bytes"),
    ),
    (
        lambda it: it.max_connections_per_ip > 0 or bool(it.max_connections_per_ip_overrides),
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
        ("max.connections.per.ip",),
    ),
    (
        lambda it: it.log_cleaner_threads > 0,
        "Log cleaner threads should be at least 1",  # kafka 2.0.1 divides by it, and fails
        ("log.cleaner.threads",),
    ),
    (
        lambda it: it.log_cleaner_dedupe_buffer_size // max(it.log_cleaner_threads, 1) > 1024 * 1024,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
    ),
    (
        lambda it: it.metrics_recording_level.upper() in RECORDING_LEVELS,
        "metrics.recording.level {it.metrics_recording_level} is not valid. Valid options are "
        + ",".join(RECORDING_LEVELS),
        ("metrics.recording.level",),
    ),
    # Without a period kafka 2.0.1 cannot start these tasks, and fails with "IllegalArgumentException: null".
    has_period("log.flush.scheduler.interval.ms"),
    has_period("log.flush.offset.checkpoint.interval.ms"),
    has_period("log.flush.start.offset.checkpoint.interval.ms"),
    has_period("replica.lag.time.max.ms", least=2),  # of the task that looks for lagging followers: half of it
]


def broken_rules(it: KafkaSettings) -> list[BrokenRule]:
    """The rules that do not hold, in Kafka's order."""
    first_version = FIRST_VERSIONS[magic_of(it.log_message_format_version)]
    return [
        (message.format(it=it, first_version=first_version), names) for holds, message, names in RULES if not holds(it)
    ]


def broken_listener_rule(
    it: KafkaSettings, given: Container[str], listeners: Sequence[str], advertised: Sequence[str]
) -> BrokenRule | None:
    """The first broken rule between the listeners: brokers use one of the advertised ones, which are among all.

    `listeners` and `advertised` are their names, `given` has the names of the settings that are set.
    """
    name, protocol = it.inter_broker_listener_name, it.security_inter_broker_protocol.upper()
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    if name is not None and by_protocol in given:
        return f"Only one of {by_name} and {by_protocol} should be set.", (by_name, by_protocol)
    if name is None and protocol not in PROTOCOLS:
        invalid = it.security_inter_broker_protocol
        return f"Invalid security protocol `{invalid}` defined in {by_protocol}", (by_protocol,)
    between = protocol if name is None else name.upper()
    if name is not None and between not in protocols_by_listener(it.listener_security_protocol_map):
        names = (by_name, "listener.security.protocol.map")
        return f"Listener with name {between} defined in {by_name} not found in listener.security.protocol.map.", names
    if between not in advertised:
        return (
            f"{by_name} must be a listener name defined in advertised.listeners. The valid options based on currently"
            f" configured listeners are {','.join(advertised)}",
            (by_name, by_protocol, "advertised.listeners", "listeners"),
        )
    if not set(advertised) <= set(listeners):
        return (
            "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found"
            f" {','.join(advertised)}. The valid options based on the current configuration are {','.join(listeners)}",
            ("advertised.listeners", "listeners"),
        )
    if protocols_by_listener(it.listener_security_protocol_map)[between].startswith("SASL_"):
        mechanism = it.sasl_mechanism_inter_broker_protocol
        if mechanism not in it.sasl_enabled_mechanisms:
            return (
                "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for"
                " inter-broker communication",
                ("sasl.mechanism.inter.broker.protocol", "sasl.enabled.mechanisms"),
            )
    return None


def listener_of_brokers(given: Mapping[str, str]) -> str:
    """The name of the listener that these settings give to brokers; that of PLAINTEXT unless they name one."""
    name = (
        given.get("inter.broker.listener.name", "").strip() or given.get("security.inter.broker.protocol", "").strip()
    )
    return name.upper() or "PLAINTEXT"
