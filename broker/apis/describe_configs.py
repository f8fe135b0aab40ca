"""What DescribeConfigs lists, of a topic and of the broker, and where each value comes from.

As kafka 2.0.1 AdminManager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.broker.config import KafkaConfig
from minibroker.broker.config_entries import ConfigSynonym, config_entries, synonyms_of
from minibroker.protocol.messages.topics import DescribeConfigsResponse
from minibroker.storage.config import TOPIC_CONFIGS, LogConfig

SOURCE_TOPIC = 1
SOURCE_STATIC_BROKER = 4
SOURCE_DEFAULT = 5

Body = Any


def describe_topic(
    overrides: Mapping[str, str], config: KafkaConfig, names: Sequence[str] | None, *, with_synonyms: bool
) -> list[Body]:
    """Every topic config, or those of `names` that exist."""
    values = LogConfig.from_props(overrides, config.log_config)
    rows = []
    for name, row in TOPIC_CONFIGS.items():
        if names is not None and name not in names:
            continue
        synonyms = [synonym_row(synonym) for synonym in broker_synonyms(config, row.server_names)]
        if name in overrides:
            synonyms.insert(0, (name, values.value_text(name), SOURCE_TOPIC))
        source = synonyms[0][2] if synonyms else SOURCE_DEFAULT
        rows.append(
            config_row(
                name=name,
                value=values.value_text(name),
                read_only=False,
                is_default=source == SOURCE_DEFAULT,
                config_source=source,
                is_sensitive=False,
                synonyms=synonyms if with_synonyms else (),
            )
        )
    return rows


def describe_broker(config: KafkaConfig, names: Sequence[str] | None, *, with_synonyms: bool) -> list[Body]:
    """Every broker setting, or those of `names` that exist."""
    return [
        config_row(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            is_default=entry.is_default,
            config_source=SOURCE_DEFAULT if entry.is_default else SOURCE_STATIC_BROKER,
            is_sensitive=entry.is_sensitive,
            synonyms=[synonym_row(synonym) for synonym in entry.synonyms] if with_synonyms else (),
        )
        for entry in config_entries(config, names)
    ]


def broker_synonyms(config: KafkaConfig, server_names: Sequence[str]) -> Sequence[ConfigSynonym]:
    return synonyms_of(config, server_names[0]) if server_names else ()


def synonym_row(synonym: ConfigSynonym) -> tuple[str, str | None, int]:
    return (synonym.name, synonym.value, SOURCE_DEFAULT if synonym.is_default else SOURCE_STATIC_BROKER)


def config_row(**values: Any) -> Body:
    return DescribeConfigsResponse.row("results.configs")(**values)
