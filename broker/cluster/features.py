"""The features of a cluster (KIP-584): the levels that this broker supports, and the ones in force.

As Apache Kafka 4.4.0. Of transaction.version, 2 lets clients use transactions v2 (KIP-890), 1 is without a difference
here, and at 0 their requests are refused. Beside Apache Kafka 2.0.1, which has no features, there are none.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from minibroker.broker.cluster.sections import FEATURES, FeatureLevels
from minibroker.broker.cluster.state import Change, ClusterState, store
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.transaction_records import EPOCHS_PER_TRANSACTION

logger = logging.getLogger(__name__)

GROUP_VERSION, TRANSACTION_VERSION = "group.version", "transaction.version"
SUPPORTED = {GROUP_VERSION: (1, 1), TRANSACTION_VERSION: (0, EPOCHS_PER_TRANSACTION)}

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Update(NamedTuple):
    """A level that a feature is to have."""

    feature: str
    level: int
    upgrade_type: int


class Features:
    """Reads and changes the levels in the state of the cluster, of the features `supported`."""

    def __init__(self, state: ClusterState, supported: Iterable[str]) -> None:
        self.supported = {name: SUPPORTED[name] for name in supported}
        self._state = state

    def add(self, name: str, first: int, last: int) -> None:
        """Support a feature of a wing too, unless this broker has none."""
        if self.supported:
            self.supported[name] = first, last

    @property
    def changed(self) -> FeatureLevels:
        """The levels that were changed; another object after each change."""
        return self._state.get(FEATURES)

    @property
    def levels(self) -> dict[str, int]:
        """The levels of the features that are on: the last one that is supported, unless it was changed."""
        levels = {name: last for name, (_, last) in self.supported.items()} | dict(self.changed.levels)
        return {name: level for name, level in levels.items() if level and name in self.supported}

    @property
    def allows_transactions_v2(self) -> bool:
        return TRANSACTION_VERSION in self.levels

    def update(self, updates: Iterable[Update], *, validates_only: bool) -> None:
        """Change the levels, all or none. Raises KafkaError: INVALID_UPDATE_VERSION, KAFKA_STORAGE_ERROR."""
        levels = self.levels
        for update in updates:
            problem = self._problem_with(update, levels.get(update.feature, 0))
            if problem is not None:
                raise KafkaError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    "The update failed for all features since the following feature had an error: Invalid update "
                    f"version {update.level} for feature {update.feature}. {problem}",
                )
            levels[update.feature] = update.level
        if validates_only or levels == self.levels:
            return
        changed = {name: levels.get(name, 0) for name in self.supported}
        store(
            self._state,
            "the features",
            lambda: Change(sections={FEATURES: FeatureLevels(self.changed.epoch + 1, changed)}),
        )
        logger.info("features are %s now", changed)

    def _problem_with(self, update: Update, current: int) -> str | None:
        name, level, upgrade_type = update
        if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        if name not in self.supported:
            if level == 0:
                return f"Feature {name} not found."
            return "Local controller 0 does not support this feature."
        first, last = self.supported[name]
        if not first <= level <= last:
            return f"Local controller 0 only supports versions {first}-{last}"
        if level < current and upgrade_type == UPGRADE:
            return (
                "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
                "downgrade."
            )
        if level > current and upgrade_type != UPGRADE:
            return "Can't downgrade to a newer version."
        return None
