"""The broker's settings in DescribeConfigs: the value, its source and its synonyms.

As kafka 2.0.1 AdminManager: the value is that of the setting itself, also where a synonym overrides it; the synonyms
are the names that decide the value, strongest first: changed for this broker, changed for all brokers, set at the
start, and their defaults, beginning with the setting itself. Passwords and unknown settings are listed without a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import SETTINGS, SYNONYMS, is_read_only
from minibroker.broker.config.settings.endpoints import base_name
from minibroker.broker.config.settings.table import SETTINGS_OF_AUTHORIZER


class ConfigSource(IntEnum):
    """The source of a value, in Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]


def config_entries(config: KafkaConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """All settings, also unknown ones that were set; or the existing ones of `names`."""
    settings = (name for name in SETTINGS if name not in SETTINGS_OF_AUTHORIZER)  # these are unknown to Kafka's brokers
    known = dict.fromkeys(filter(config.profile.has_setting, [*settings, *config.given]))
    chosen = known if names is None else [name for name in names if name in known]
    return [_entry(name, _value_of(config, name), synonyms_of(config, name)) for name in chosen]


def changed_for_all_brokers(config: KafkaConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The settings that were changed for all brokers of the cluster, or those of `names`."""
    changed = config.of_cluster
    chosen = changed if names is None else [name for name in names if name in changed]
    return [
        _entry(
            name,
            changed[name],
            tuple(each for each in synonyms_of(config, name) if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER),
        )
        for name in chosen
    ]


def synonyms_of(config: KafkaConfig, name: str) -> tuple[ConfigSynonym, ...]:
    """The settings that decide the value of `name`, strongest first; also of the topic configs that default to it."""
    names = SYNONYMS.get(name, (name,)) if base_name(name) == name else (name, base_name(name))
    hidden = _is_sensitive(name)
    found = [
        ConfigSynonym(each, None if hidden else texts[each], source)
        for source, texts in (
            (ConfigSource.DYNAMIC_BROKER, config.of_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, config.of_cluster),
            (ConfigSource.STATIC_BROKER, config.static),
        )
        for each in names
        if each in texts
    ]
    found += [
        ConfigSynonym(each, None if hidden else default, ConfigSource.DEFAULT)
        for each in names
        if (default := _default_text(config, each)) is not None
    ]
    while found and found[0].name != name:
        found.pop(0)
    return tuple(found)


def _entry(name: str, value: str | None, synonyms: tuple[ConfigSynonym, ...]) -> ConfigEntry:
    hidden = _is_sensitive(name)
    return ConfigEntry(
        name=name,
        value=None if hidden else value,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        is_read_only=is_read_only(name),
        is_sensitive=hidden,
        synonyms=synonyms,
    )


def _value_of(config: KafkaConfig, name: str) -> str | None:
    return config.text_of(name) if name in SETTINGS else config.given[name]


def _is_sensitive(name: str) -> bool:
    row = SETTINGS.get(name) or SETTINGS.get(base_name(name))
    return row is None or row.is_sensitive or name in SETTINGS_OF_AUTHORIZER


def _default_text(config: KafkaConfig, name: str) -> str | None:
    row = SETTINGS.get(name)
    return None if row is None else row.write(config.default_of(row))
