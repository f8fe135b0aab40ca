"""UpdateFeatures v0-v2: changes the levels of features, as Apache Kafka 4.4.0.

Version notes: v0 may lower no level · v1 may be asked to check only · v2 has one error for all features, as the others
have it too.
"""

from __future__ import annotations

from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.features import UPGRADE, Features, Update
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.metadata import UpdateFeaturesResponse

Body = Any


class FeatureApis:
    """The handler of UpdateFeatures."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def routes(self) -> Routes:
        return {ApiKey.UPDATE_FEATURES: self.update_features}

    def update_features(self, request: Request, client: Client) -> Body:
        body = request.body
        can_lower = request.api_version >= 1
        updates = [
            Update(row.feature, row.max_version_level, row.upgrade_type if can_lower else UPGRADE)
            for row in body.feature_updates
        ]
        self._features.update(updates, validates_only=body.validate_only)
        rows = [(row.feature, ErrorCode.NONE, "NONE") for row in body.feature_updates]
        return UpdateFeaturesResponse(results=rows)
