"""The settings that may change while the broker runs, the checks of a change by itself, and synonyms of settings.

As kafka 2.0.1 DynamicBrokerConfig: some may change for one broker only, key and trust stores only for one of its
listeners (`listener.name.<name>.ssl.keystore.location`). Unknown names are accepted and stored, for plugins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.broker.config.settings.endpoints import base_name
from minibroker.broker.config.settings.table import KafkaSettings
from minibroker.broker.config.settings.types import LONG, LONG_MAX, InvalidValueError, Setting, at_least, setting
from minibroker.broker.config.settings.unused import UNUSED_SETTINGS

# A setting and its synonyms, which give its value if it is not set, in order.
SYNONYMS = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.roll.hours": ("log.roll.hours",),
    "log.roll.jitter.hours": ("log.roll.jitter.hours",),
    "log.retention.minutes": ("log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.hours",),
}

PER_LISTENER = frozenset(
    """
    ssl.key.password ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    ssl.keystore.key ssl.keystore.certificate.chain ssl.truststore.certificates
    """.split()
)
PER_BROKER = PER_LISTENER | frozenset(
    """
    advertised.listeners listener.security.protocol.map listeners principal.builder.class
    sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol ssl.cipher.suites
    ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.keymanager.algorithm ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm
    """.split()
)
THREADS = frozenset(
    """
    background.threads num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.fetchers
    """.split()
)
CHANGEABLE = (
    PER_BROKER
    | THREADS
    | frozenset(
        """
    compression.type log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size
    log.cleaner.delete.retention.ms log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio
    log.cleaner.min.compaction.lag.ms log.cleaner.threads log.cleanup.policy
    log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
    log.index.size.max.bytes log.message.downconversion.enable
    log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate
    log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes
    log.segment.delete.delay.ms message.max.bytes metric.reporters min.insync.replicas
    unclean.leader.election.enable
    """.split()
    )
)
# Described as changeable, because the setting that they are synonyms of is; changing them is refused.
STAND_INS = frozenset("log.retention.hours log.retention.minutes log.roll.hours log.roll.jitter.hours".split())


class ReplicationRates:
    """Settings that only a change can set."""

    leader_replication_throttled_rate = setting(LONG, LONG_MAX, at_least(0), "bytes/s to throttled followers")
    follower_replication_throttled_rate = setting(LONG, LONG_MAX, at_least(0), "bytes/s of throttled followers")
    replica_alter_log_dirs_io_max_bytes_per_second = setting(LONG, LONG_MAX, at_least(0), "bytes/s between disks")


# All of Kafka's, by name.
SETTINGS: dict[str, Setting[Any]] = {
    row.name: row for row in vars(KafkaSettings).values() if isinstance(row, Setting)
} | {name: row for name, (row, _) in UNUSED_SETTINGS.items()}
CHANGE_ONLY: dict[str, Setting[Any]] = {
    row.name: row for row in vars(ReplicationRates).values() if isinstance(row, Setting)
}


class InvalidDynamicConfig(ValueError):
    """An invalid change of settings; the message is Kafka's."""


def is_read_only(name: str) -> bool:
    return base_name(name) not in CHANGEABLE | STAND_INS


def is_password(name: str) -> bool:
    return any(name.endswith(each) for each in CHANGEABLE if SETTINGS[each].is_sensitive)


def overridden(given: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Apply changes to the given settings; a change also wins over the given synonyms of its setting."""
    result = dict(given)
    for name, value in changes.items():
        for synonym in SYNONYMS.get(name, (name,)):
            result.pop(synonym, None)
        result[name] = value
    return result


def check_changes(changes: Mapping[str, str], *, is_per_broker: bool) -> None:
    """Raises InvalidDynamicConfig (as kafka 2.0.1 DynamicBrokerConfig.validateConfigs)."""
    _refuse(
        "Cannot update these configs dynamically", (each for each in changes if each in SETTINGS.keys() - CHANGEABLE)
    )
    _refuse(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        (each for each in changes if each in PER_LISTENER),
    )
    for name, text in changes.items():
        _check_value(base_name(name), text)
    if not is_per_broker:
        _refuse(
            "Cannot update these configs at default cluster level, broker id must be specified",
            (each for each in changes if each in PER_BROKER or base_name(each) != each),
        )


def _refuse(why: str, names: Iterable[str]) -> None:
    refused = ", ".join(names)
    if refused:
        raise InvalidDynamicConfig(f"{why}: Set({refused})")


def _check_value(name: str, text: str) -> None:
    row = SETTINGS.get(name) if name in CHANGEABLE else CHANGE_ONLY.get(name)
    if row is None:
        return
    if row.kind.name == "CLASS":
        raise InvalidDynamicConfig(f"Invalid value {text} for configuration {name}: Class {text} could not be found.")
    try:
        row.read(text)
    except InvalidValueError as error:
        shown = text.strip() if error.shown is None else error.shown
        raise InvalidDynamicConfig(f"Invalid value {shown} for configuration {name}: {error}") from error
