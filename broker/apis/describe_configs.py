"""The rows of DescribeConfigs, for a topic, the broker, a group and client metrics, with the source of each value.

As kafka 2.0.1 AdminManager; types and documentation, which v3 added, come from the tables of settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minibroker.broker.config.client_metrics import CLIENT_METRICS_CONFIGS
from minibroker.broker.config.entries import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    changed_for_all_brokers,
    config_entries,
    synonyms_of,
)
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.profiles import Habit
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.endpoints import base_name
from minibroker.broker.group.group_configs import GROUP_CONFIGS, TEXT_CONFIGS, GroupConfigs
from minibroker.protocol.messages.configs import DescribeConfigsResponse
from minibroker.storage.config import TOPIC_CONFIGS, LogConfig

# Kafka's numbers of the types.
TYPE_CODES = {
    "BOOLEAN": 1, "STRING": 2, "INT": 3, "SHORT": 4, "LONG": 5, "DOUBLE": 6, "LIST": 7, "CLASS": 8, "PASSWORD": 9,
}  # fmt: skip
TYPE_UNKNOWN = 0

Body = Any


def describe_topic(
    overrides: Mapping[str, str],
    config: KafkaConfig,
    names: Sequence[str] | None,
    *,
    with_synonyms: bool,
    with_documentation: bool = False,
) -> list[Body]:
    """Describe all topic configs, or the existing ones of `names`."""
    values = LogConfig.from_props(overrides, config.log_config)
    looks_at_topics_only = Habit.LOOKS_AT_TOPICS_ONLY in config.profile.habits
    rows = []
    for name, row in TOPIC_CONFIGS.items():
        if (names is not None and name not in names) or name in config.profile.unknown_topic_configs:
            continue
        synonyms = synonyms_of(config, row.server_names[0]) if row.server_names else ()
        if name in overrides:
            synonyms = (ConfigSynonym(name, values.value_text(name), ConfigSource.TOPIC), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        rows.append(
            config_row(
                name=name,
                value=values.value_text(name),
                read_only=False,
                is_default=name not in overrides if looks_at_topics_only else source is ConfigSource.DEFAULT,
                config_source=source,
                is_sensitive=False,
                synonyms=synonyms if with_synonyms else (),
                config_type=TYPE_CODES[row.type.value],
                documentation=row.doc if with_documentation else None,
            )
        )
    return rows


def describe_group(
    group_id: str,
    configs: GroupConfigs,
    config: KafkaConfig,
    names: Sequence[str] | None,
    *,
    with_synonyms: bool,
    with_documentation: bool = False,
) -> list[Body]:
    """Describe all configs of a group, or the existing ones of `names` (as kafka 4.4 ConfigHelper)."""
    own = configs.of(group_id)
    rows = []
    for name in (*GROUP_CONFIGS, *TEXT_CONFIGS):
        if names is not None and name not in names:
            continue
        if name in TEXT_CONFIGS:
            value, setting_type, doc = configs.text(group_id, name), TEXT_CONFIGS[name].type, TEXT_CONFIGS[name].problem
            synonyms: tuple[ConfigSynonym, ...] = (
                ConfigSynonym(name, TEXT_CONFIGS[name].default, ConfigSource.DEFAULT),
            )
        else:
            setting = SETTINGS[GROUP_CONFIGS[name].setting]
            value, setting_type, doc = str(configs.value(group_id, name)), setting.kind.name, setting.doc
            synonyms = synonyms_of(config, GROUP_CONFIGS[name].setting)
        if name in own:
            synonyms = (ConfigSynonym(name, value, ConfigSource.GROUP), *synonyms)
        rows.append(
            config_row(
                name=name,
                value=value,
                read_only=False,
                is_default=synonyms[0].source is ConfigSource.DEFAULT,
                config_source=synonyms[0].source,
                is_sensitive=False,
                synonyms=synonyms if with_synonyms else (),
                config_type=TYPE_CODES[setting_type],
                documentation=doc if with_documentation else None,
            )
        )
    return rows


def describe_client_metrics(
    own: Mapping[str, str], names: Sequence[str] | None, *, with_synonyms: bool, with_documentation: bool = False
) -> list[Body]:
    """Describe all configs of client metrics, or the existing ones of `names` (as kafka 4.4 ConfigHelper)."""
    rows = []
    for name, row in CLIENT_METRICS_CONFIGS.items():
        if names is None or name in names:
            source = ConfigSource.CLIENT_METRICS if name in own else ConfigSource.DEFAULT
            value = own.get(name, row.default)
            rows.append(
                config_row(
                    name=name,
                    value=value,
                    read_only=False,
                    is_default=name not in own,
                    config_source=source,
                    is_sensitive=False,
                    synonyms=[ConfigSynonym(name, value, source)] if with_synonyms and name in own else (),
                    config_type=TYPE_CODES[row.kind],
                    documentation=row.doc if with_documentation else None,
                )
            )
    return rows


def describe_broker(
    config: KafkaConfig,
    names: Sequence[str] | None,
    *,
    with_synonyms: bool,
    with_documentation: bool = False,
    is_for_all_brokers: bool = False,
) -> list[Body]:
    """Describe all broker settings, or the existing ones of `names`; or those changed for all brokers."""
    entries: Iterable[ConfigEntry] = (
        changed_for_all_brokers(config, names) if is_for_all_brokers else config_entries(config, names)
    )
    if Habit.CHANGES_NO_BROKERS in config.profile.habits:
        entries = [entry._replace(is_read_only=True) for entry in entries]
    return [broker_row(entry, with_synonyms, with_documentation) for entry in entries]


def broker_row(entry: ConfigEntry, with_synonyms: bool, with_documentation: bool) -> Body:
    row = SETTINGS.get(entry.name) or SETTINGS.get(base_name(entry.name))
    return config_row(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_default=entry.source is ConfigSource.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=entry.synonyms if with_synonyms else (),
        config_type=TYPE_UNKNOWN if row is None else TYPE_CODES[row.kind.name],
        documentation=row.doc if with_documentation and row is not None else None,
    )


def config_row(**values: Any) -> Body:
    return DescribeConfigsResponse.row("results.configs")(**values)
