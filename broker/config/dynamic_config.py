"""The settings of this broker that are changed while it runs: for it alone, and for every broker of the cluster.

A change is checked as kafka 2.0.1 DynamicBrokerConfig does, by itself and together with all other settings, and then
taken over by the one `KafkaConfig` that every part reads; parts that hold copies are told. Who writes it down is the
controller, in between. A change for one broker wins over one for all, and both over what the broker was started with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from minibroker.broker.config.dynamic_settings import THREADS, InvalidDynamicConfig, check_changes, is_password
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig

logger = logging.getLogger(__name__)

ALL_BROKERS = ""
THREAD_COUNT = "Dynamic thread count update validation failed for"

Changes = Mapping[str, str]


class Change(NamedTuple):
    """A change that was found right: what was changed, and all settings as they are then."""

    changes: Changes
    config: KafkaConfig

    def check_storable(self) -> None:
        """Raises InvalidDynamicConfig for secrets: there is no `password.encoder.secret` here to keep them with."""
        if any(map(is_password, self.changes)):
            raise InvalidDynamicConfig("Password encoder secret not configured")


class DynamicConfig:
    """Changes a KafkaConfig in place. Each of `on_change` is called when it has changed."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self.on_change: list[Callable[[], None]] = []

    def restore(self, by_broker: Mapping[str, Changes]) -> None:
        """Take over what was changed in an earlier run; what is no longer right is left out, and logged."""
        for broker in (ALL_BROKERS, str(self._config.broker_id)):
            for name, text in by_broker.get(broker, {}).items():
                try:
                    self._config.take_over(self._with(broker, {**self._changes_of(broker), name: text}))
                except InvalidDynamicConfig as error:
                    logger.error("the changed setting %s=%s is ignored: %s", name, text, error)
        self._tell()

    def changed(self, broker: str, changes: Changes) -> Change:
        """What the settings would be if `broker`, or all (the empty name), had these changes and no others.

        Raises InvalidDynamicConfig; nothing has changed in any case.
        """
        config = self._with(broker, changes)
        problem = self._why_not_now(config)
        if problem is not None:
            raise InvalidDynamicConfig(
                f"Invalid value org.apache.kafka.common.config.ConfigException: {problem} for configuration "
                "Invalid dynamic configuration"
            )
        return Change(changes, config)

    def apply(self, change: Change) -> None:
        self._config.take_over(change.config)
        self._tell()

    def _with(self, broker: str, changes: Changes) -> KafkaConfig:
        """Raises InvalidDynamicConfig."""
        check_changes(changes, is_per_broker=broker != ALL_BROKERS)
        old = self._config
        try:
            return KafkaConfig(
                old.static,
                old.sources,
                profile=old.profile,
                of_cluster=changes if broker == ALL_BROKERS else old.of_cluster,
                of_broker=old.of_broker if broker == ALL_BROKERS else changes,
            )
        except ConfigError as error:
            message = str(error) if error.rule is None else f"requirement failed: {error.rule}"
            raise InvalidDynamicConfig(message) from error

    def _changes_of(self, broker: str) -> Changes:
        return self._config.of_cluster if broker == ALL_BROKERS else self._config.of_broker

    def _tell(self) -> None:
        for told in self.on_change:
            told()

    def _why_not_now(self, new: KafkaConfig) -> str | None:
        """What keeps a running broker from these settings, or None.

        As kafka 2.0.1 DynamicThreadPool, LogCleaner and DynamicMetricsReporters; sockets stay as they are here.
        """
        if new.endpoints != self._config.endpoints:
            return "listeners cannot be changed while the broker runs"
        if new.text_of("metric.reporters"):
            return (
                "Validation of dynamic config update of Set(metric.reporters) failed with class "
                "class kafka.server.DynamicMetricsReporters"
            )
        for name in sorted(THREADS):
            before, after = int(self._config.text_of(name) or 0), int(new.text_of(name) or 0)
            if not before // 2 <= after <= before * 2:
                how = "be at least half" if after < before else "not be greater than double"
                return f"{THREAD_COUNT} {name}={after}, value should {how} the current value {before}"
        return self._why_not_cleaned(new) if new.log_cleaner_enable else None

    def _why_not_cleaned(self, new: KafkaConfig) -> str | None:
        before, after = self._config.log_cleaner_threads, new.log_cleaner_threads
        if after < 1:
            return "Log cleaner threads should be at least 1"
        if not before // 2 <= after <= before * 2:
            how = "reduced to less than half" if after < before else "increased to more than double"
            return f"Log cleaner threads cannot be {how} the current value {before}"
        return None
