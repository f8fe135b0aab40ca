"""What DescribeConfigs says of the broker's settings: value, where it comes from, and its synonyms.

As kafka 2.0.1 AdminManager: the value is that of the setting itself, also where a synonym overrules it; the
synonyms are the names that decide about it, strongest first, once where they were set and once with their
defaults, beginning with the setting itself. Secrets, and what is not known, are listed without a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minibroker.broker.config import SETTINGS, KafkaConfig

# A setting and those that stand in for it when it is not set, in order.
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

# What a Kafka broker can be told while it runs.
DYNAMIC = frozenset(
    """
    advertised.listeners background.threads compression.type listener.security.protocol.map
    listeners log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms log.cleaner.threads
    log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
    log.index.size.max.bytes log.message.downconversion.enable
    log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate
    log.retention.bytes log.retention.hours log.retention.minutes log.retention.ms log.roll.hours
    log.roll.jitter.hours log.roll.jitter.ms log.roll.ms log.segment.bytes
    log.segment.delete.delay.ms message.max.bytes metric.reporters min.insync.replicas
    num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers
    principal.builder.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol ssl.cipher.suites
    ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.key.password
    ssl.keymanager.algorithm ssl.keystore.location ssl.keystore.password ssl.keystore.type
    ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.location ssl.truststore.password ssl.truststore.type
    unclean.leader.election.enable
    """.split()
)


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    is_default: bool


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]


def config_entries(config: KafkaConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """All settings, and whatever else was set; or those of `names` that there are."""
    known = dict.fromkeys([*SETTINGS, *config.given])
    chosen = known if names is None else [name for name in names if name in known]
    return [_entry(config, name) for name in chosen]


def synonyms_of(config: KafkaConfig, name: str) -> tuple[ConfigSynonym, ...]:
    """What decides about `name`, strongest first; also for the topic settings whose default `name` is."""
    names = SYNONYMS.get(name, (name,))
    hidden = _is_sensitive(name)
    were_set = [
        ConfigSynonym(each, None if hidden else config.text_of(each), False) for each in names if each in config.given
    ]
    defaults = [
        ConfigSynonym(each, None if hidden else default, True)
        for each in names
        if (default := _default_text(each)) is not None
    ]
    found = [*were_set, *defaults]
    while found and found[0].name != name:
        found.pop(0)
    return tuple(found)


def _entry(config: KafkaConfig, name: str) -> ConfigEntry:
    hidden = _is_sensitive(name)
    synonyms = synonyms_of(config, name)
    return ConfigEntry(
        name=name,
        value=None if hidden else config.text_of(name),
        is_default=not synonyms or synonyms[0].is_default,
        is_read_only=name not in DYNAMIC,
        is_sensitive=hidden,
        synonyms=synonyms,
    )


def _is_sensitive(name: str) -> bool:
    return name not in SETTINGS or SETTINGS[name].is_sensitive


def _default_text(name: str) -> str | None:
    row = SETTINGS.get(name)
    return None if row is None else row.write(row.default)
