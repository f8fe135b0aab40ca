"""The features of a cluster (KIP-584): the levels that brokers support, and the ones in force.

They came with Kafka 2.7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minibroker.admin.outcomes import DENIED
from minibroker.client.client import Client
from minibroker.client.errors import DENIALS, error_name
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey

FIRST_WITH_FEATURES = 3  # of ApiVersions
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


class Feature(NamedTuple):
    """The levels that the asked broker supports; the one in force is 0 for a feature that is off."""

    feature: str
    first: int
    last: int
    level: int
    epoch: int  # of the levels in force: it rises with each change


def features(client: Client) -> list[Feature]:
    """The features of the cluster, by name. Raises CommandFailed for a broker without any."""
    answer = client.ask(ApiKey.API_VERSIONS)
    if client.version_of(ApiKey.API_VERSIONS) < FIRST_WITH_FEATURES or not answer.supported_features:
        raise CommandFailed("this cluster has no features: they came with Kafka 2.7, and in a KRaft cluster with 3.3")
    levels = {row.name: row.max_version_level for row in answer.finalized_features}
    return [
        Feature(name, first, last, levels.get(name, 0), answer.finalized_features_epoch)
        for name, first, last in sorted(answer.supported_features)
    ]


def update(client: Client, levels: Mapping[str, int], upgrade_type: int, *, only_checks: bool) -> None:
    """Have features these levels, all or none. Raises CommandFailed."""
    rows = [(name, level, upgrade_type != UPGRADE, upgrade_type) for name, level in levels.items()]
    answer = client.at_controller(ApiKey.UPDATE_FEATURES, feature_updates=rows, validate_only=only_checks)
    for each in (answer, *answer.results):
        if each.error_code:
            raise CommandFailed(refusal(each))


def refusal(answer: Any) -> str:
    """A broker's refusal in one line, with the next step."""
    reason = (answer.error_message or error_name(answer.error_code)).rstrip(".")
    step = "`minibroker features describe` shows the levels that it supports"
    return f"{reason}; {DENIED if answer.error_code in DENIALS else step}"
