"""DescribeConfigs of a broker, held against the answer of Apache Kafka 2.0.1 to the same properties."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.config.entries import ConfigSource, config_entries, synonyms_of
from minibroker.broker.config.kafka_config import KafkaConfig

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-broker-config.json.gz"


@pytest.fixture(scope="module")
def kafka() -> Any:
    return json.loads(gzip.decompress(GOLDEN.read_bytes()))


def test_broker_settings_are_described_as_kafka_describes_them(kafka: Any) -> None:
    entries = config_entries(KafkaConfig(kafka["given"]))

    ours = {
        entry.name: [
            entry.value,
            entry.is_read_only,
            entry.source,
            entry.is_sensitive,
            [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms],
        ]
        for entry in entries
    }
    del ours["log.cleaner.max.compaction.lag.ms"]  # later Kafka's
    assert ours == kafka["described"]


def test_only_named_settings_are_described_and_unknown_names_left_out() -> None:
    entries = config_entries(KafkaConfig({}), ["num.partitions", "no.such", "broker.id"])

    assert [entry.name for entry in entries] == ["num.partitions", "broker.id"]


def test_synonyms_of_a_topic_setting_start_with_what_decides() -> None:
    config = KafkaConfig({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "5"})

    assert [
        (synonym.name, synonym.value, synonym.source) for synonym in synonyms_of(config, "log.flush.interval.ms")
    ] == [
        ("log.flush.interval.ms", "5", ConfigSource.STATIC_BROKER),
        ("log.flush.scheduler.interval.ms", "7", ConfigSource.STATIC_BROKER),
        ("log.flush.scheduler.interval.ms", "9223372036854775807", ConfigSource.DEFAULT),
    ]


def test_secrets_are_neither_described_nor_reported() -> None:
    config = KafkaConfig({"ssl.key.password": "hunter2", "some.key": "hunter2"})

    assert "hunter2" not in repr(config_entries(config)) + repr(config.warnings)
