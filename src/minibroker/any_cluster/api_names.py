"""The names of all of Kafka's APIs, whether or not they are asked from here."""

from __future__ import annotations

from minibroker.protocol.api import ASKED_TABLE

NAMES = {
    52: "Vote", 53: "BeginQuorumEpoch", 54: "EndQuorumEpoch", 56: "AlterPartition", 58: "Envelope",
    59: "FetchSnapshot", 62: "BrokerRegistration", 63: "BrokerHeartbeat", 64: "UnregisterBroker",
    67: "AllocateProducerIds", 70: "ControllerRegistration", 71: "GetTelemetrySubscriptions", 72: "PushTelemetry",
    73: "AssignReplicasToDirs", 76: "ShareGroupHeartbeat", 78: "ShareFetch", 79: "ShareAcknowledge",
    80: "AddRaftVoter", 81: "RemoveRaftVoter", 82: "UpdateRaftVoter", 83: "InitializeShareGroupState",
    84: "ReadShareGroupState", 85: "WriteShareGroupState", 86: "DeleteShareGroupState",
    87: "ReadShareGroupStateSummary", 88: "StreamsGroupHeartbeat", 92: "DeleteShareGroupOffsets",
    93: "StreamsGroupTopologyDescriptionUpdate", 94: "UnregisterController",
}  # fmt: skip


def api_name(key: int) -> str:
    """Kafka's name of an API; its key for one that is not known here."""
    return ASKED_TABLE[key].name if key in ASKED_TABLE else NAMES.get(key, str(key))
