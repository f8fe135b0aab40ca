"""Changing a broker's settings while it runs: what Apache Kafka 2.0.1 allows, and what it says of the rest.

The messages are what it answered; tests/golden/conversations/kafka-2.0.1/reconfiguring.txt has those that are not here.
"""

from __future__ import annotations

from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.entries import ConfigSource, config_entries, synonyms_of
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import CHANGEABLE, PER_BROKER, SETTINGS, is_read_only


def changed(config: KafkaConfig, changes: dict[str, str], broker: str = "0") -> KafkaConfig:
    """The configuration after a change."""
    dynamic = DynamicConfig(config)
    dynamic.apply(dynamic.changed(broker, changes))
    return config


def test_a_changed_setting_is_read_by_all_that_hold_the_configuration() -> None:
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


def test_settings_that_a_changed_one_replaces_are_as_if_never_set() -> None:
    """As Apache Kafka describes it."""
    config = changed(KafkaConfig({"log.retention.hours": "5"}), {"log.retention.ms": "9"})

    assert config.text_of("log.retention.hours") == "168"
    assert changed(config, {}).text_of("log.retention.hours") == "5"


def test_parts_that_hold_copies_are_called_after_a_change() -> None:
    seen: list[int] = []
    config = KafkaConfig({})
    dynamic = DynamicConfig(config)
    dynamic.on_change.append(lambda: seen.append(config.message_max_bytes))

    dynamic.apply(dynamic.changed("0", {"message.max.bytes": "77"}))

    assert seen == [77]


def test_changes_of_an_earlier_run_are_not_checked_against_the_settings_of_this_start() -> None:
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
