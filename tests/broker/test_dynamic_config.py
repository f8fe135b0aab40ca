"""Changing a broker's settings while it runs: what Apache Kafka 2.0.1 allows, and what it says of the rest.

The messages are what it answered; tests/conformance/scripts/reconfiguring.py has those that are not here.
"""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.entries import ConfigSource, config_entries, synonyms_of
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import (
    CHANGEABLE,
    PER_BROKER,
    SETTINGS,
    InvalidDynamicConfig,
    is_read_only,
)

NOT_NOW = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)
THREADS = NOT_NOW.format("Dynamic thread count update validation failed for num.io.threads={}, value should {}")


def changed(config: KafkaConfig, changes: dict[str, str], broker: str = "0") -> KafkaConfig:
    """The configuration after a change."""
    dynamic = DynamicConfig(config)
    dynamic.apply(dynamic.changed(broker, changes))
    return config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"listener.name.x.sasl.login.refresh.buffer.seconds": "x"},
            "Invalid value x for configuration sasl.login.refresh.buffer.seconds: Not a number of type SHORT",
        ),
        ({"log.roll.ms": "0"}, "requirement failed: log.roll.ms must be equal or greater than 1"),
        (
            {"principal.builder.class": "no.such"},
            "Invalid value no.such for configuration principal.builder.class: Class no.such could not be found.",
        ),
        ({"num.io.threads": "3"}, THREADS.format(3, "be at least half the current value 8")),
        ({"num.io.threads": "17"}, THREADS.format(17, "not be greater than double the current value 8")),
        (
            {"log.cleaner.threads": "3"},
            NOT_NOW.format("Log cleaner threads cannot be increased to more than double the current value 1"),
        ),
        (
            {"advertised.listeners": "OTHER://h:1"},
            "Error creating broker listeners from 'OTHER://h:1': No security protocol defined for listener OTHER",
        ),
        (
            {"advertised.listeners": "SSL"},
            "Error creating broker listeners from 'SSL': Unable to parse SSL to a broker endpoint",
        ),
        ({"log.cleaner.threads": "0"}, "requirement failed: Log cleaner threads should be at least 1"),
        ({"listeners": "PLAINTEXT://:1"}, NOT_NOW.format("listeners cannot be changed while the broker runs")),
    ],
)
def test_a_change_that_is_not_allowed_is_refused_in_kafkas_words(changes: dict[str, Any], message: str) -> None:
    config = KafkaConfig({})

    with pytest.raises(InvalidDynamicConfig) as raised:
        DynamicConfig(config).changed("0", changes)

    assert str(raised.value) == message
    assert config.given == {}


@pytest.mark.parametrize("count", ["4", "16"])
def test_threads_may_become_half_or_double_as_many(count: str) -> None:
    DynamicConfig(KafkaConfig({})).changed("0", {"num.io.threads": count})


@pytest.mark.parametrize("name", ["advertised.listeners", "listener.name.x.ssl.keystore.location"])
def test_what_belongs_to_one_broker_is_refused_for_all(name: str) -> None:
    with pytest.raises(InvalidDynamicConfig) as raised:
        DynamicConfig(KafkaConfig({})).changed("", {name: "x"})

    assert str(raised.value) == (
        f"Cannot update these configs at default cluster level, broker id must be specified: Set({name})"
    )


def test_a_changed_setting_is_read_by_who_holds_the_configuration() -> None:
    config = KafkaConfig({"log.retention.ms": "100000"})

    changed(config, {"log.retention.ms": "5", "message.max.bytes": "77"})

    assert (config.log_retention_ms, config.message_max_bytes, config.log_config.max_message_bytes) == (5, 77, 77)
    assert changed(config, {}).log_retention_ms == 100_000


def test_a_change_wins_over_the_settings_that_stand_in_for_it() -> None:
    config = changed(KafkaConfig({"log.retention.minutes": "5"}), {"log.retention.ms": "9"}, broker="")

    assert config.log_retention_time_ms == 9
    assert [(each.name, each.source) for each in synonyms_of(config, "log.retention.ms")] == [
        ("log.retention.ms", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.minutes", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", ConfigSource.DEFAULT),
    ]


def test_what_stands_in_for_a_changed_setting_is_as_if_never_set() -> None:
    """As Apache Kafka describes it."""
    config = changed(KafkaConfig({"log.retention.hours": "5"}), {"log.retention.ms": "9"})

    assert config.text_of("log.retention.hours") == "168"
    assert changed(config, {}).text_of("log.retention.hours") == "5"


def test_parts_that_hold_copies_are_told_of_a_change() -> None:
    seen: list[int] = []
    config = KafkaConfig({})
    dynamic = DynamicConfig(config)
    dynamic.on_change.append(lambda: seen.append(config.message_max_bytes))

    dynamic.apply(dynamic.changed("0", {"message.max.bytes": "77"}))

    assert seen == [77]


def test_what_was_changed_in_an_earlier_run_is_not_held_against_the_settings_of_this_start() -> None:
    config = KafkaConfig({})

    DynamicConfig(config).restore({"0": {"num.io.threads": "64"}, "7": {"message.max.bytes": "77"}})

    assert config.text_of("num.io.threads") == "64"
    assert config.message_max_bytes == 1_000_012


def test_a_listeners_own_setting_is_described_with_the_type_of_its_base() -> None:
    config = changed(KafkaConfig({}), {"listener.name.x.ssl.keystore.location": "loc", "plugin.key": "hidden"})

    entries = {each.name: each for each in config_entries(config)}

    location = entries["listener.name.x.ssl.keystore.location"]
    assert (location.value, location.is_read_only, location.is_sensitive) == ("loc", False, False)
    assert (entries["plugin.key"].value, entries["plugin.key"].is_sensitive) == (None, True)


def test_every_setting_that_may_be_changed_is_one_of_kafkas() -> None:
    assert SETTINGS.keys() >= CHANGEABLE >= PER_BROKER
    assert not any(map(is_read_only, CHANGEABLE))
