"""Changes the settings of a running broker: for this broker alone, or for all brokers of the cluster.

A change is checked as in kafka 2.0.1 DynamicBrokerConfig, by itself and together with all other settings. Then the
controller stores it. Then the one `KafkaConfig` that every part reads takes it over, and `on_change` notifies the parts
that hold copies. A change for one broker wins over one for all, and both win over the settings at the start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.config.settings.changeable import THREADS, InvalidDynamicConfig, check_changes, is_password

logger = logging.getLogger(__name__)

ALL_BROKERS = ""
THREAD_COUNT = "Dynamic thread count update validation failed for"

Changes = Mapping[str, str]


class Change(NamedTuple):
    """A valid change, and all settings after it."""

    changes: Changes
    config: KafkaConfig

    def check_storable(self) -> None:
        """Raises InvalidDynamicConfig for passwords: this broker has no `password.encoder.secret` to encrypt them."""
        if any(map(is_password, self.changes)):
            raise InvalidDynamicConfig("Password encoder secret not configured")


class DynamicConfig:
    """Changes a KafkaConfig in place, then calls each of `on_change`. Each of `checks` returns the problems of one."""

    def __init__(self, config: KafkaConfig) -> None:
        self._config = config
        self.on_change: list[Callable[[], None]] = []
        self.checks: list[Callable[[KafkaConfig], Sequence[str]]] = []

    def take(self, by_broker: Mapping[str, Changes]) -> None:
        """Take changes that another broker has checked and stored; log and ignore the ones that are invalid here."""
        for broker in (ALL_BROKERS, str(self._config.broker_id)):
            changes = by_broker.get(broker, {})
            if changes != self._changes_of(broker):
                try:
                    self.apply(self.changed(broker, changes))
                except InvalidDynamicConfig as error:
                    logger.error("the changed settings %s are ignored: %s", sorted(changes), error)

    def restore(self, by_broker: Mapping[str, Changes]) -> None:
        """Apply the changes of an earlier run; log and ignore the ones that are no longer valid."""
        for broker in (ALL_BROKERS, str(self._config.broker_id)):
            for name, text in by_broker.get(broker, {}).items():
                try:
                    self._config.take_over(self._with(broker, {**self._changes_of(broker), name: text}))
                except InvalidDynamicConfig as error:
                    logger.error("the changed setting %s=%s is ignored: %s", name, text, error)
        self._notify()

    def changed(self, broker: str, changes: Changes) -> Change:
        """Check changes that replace those of `broker`, or of all brokers (the empty name), and change nothing yet.

        Raises InvalidDynamicConfig.
        """
        config = self._with(broker, changes)
        problem = self._problem_at_runtime(config) or next(
            (each for check in self.checks for each in check(config)), None
        )
        if problem is not None:
            raise InvalidDynamicConfig(
                f"Invalid value org.apache.kafka.common.config.ConfigException: {problem} for configuration "
                "Invalid dynamic configuration"
            )
        return Change(changes, config)

    def apply(self, change: Change) -> None:
        self._config.take_over(change.config)
        self._notify()

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
            message = error.plain or str(error) if error.rule is None else f"requirement failed: {error.rule}"
            raise InvalidDynamicConfig(message) from error

    def _changes_of(self, broker: str) -> Changes:
        return self._config.of_cluster if broker == ALL_BROKERS else self._config.of_broker

    def _notify(self) -> None:
        for callback in self.on_change:
            callback()

    def _problem_at_runtime(self, new: KafkaConfig) -> str | None:
        """Why a running broker cannot change to these settings; None if it can.

        As kafka 2.0.1 DynamicThreadPool, LogCleaner and DynamicMetricsReporters; this broker cannot change its sockets.
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
        return self._problem_with_cleaner(new) if new.log_cleaner_enable else None

    def _problem_with_cleaner(self, new: KafkaConfig) -> str | None:
        before, after = self._config.log_cleaner_threads, new.log_cleaner_threads
        if not before // 2 <= after <= before * 2:
            how = "reduced to less than half" if after < before else "increased to more than double"
            return f"Log cleaner threads cannot be {how} the current value {before}"
        return None
