"""The settings of brokers that are a cluster on one machine, of `serve --brokers` and of `Cluster` alike."""

from __future__ import annotations

MOST_REPLICAS = 3
# A follower that asks a new leader before that has heard of it asks again after this time; Kafka's second would pass
# before acks=all is answered.
FETCH_BACKOFF_MS = 100
# The releases to act as that do not have the settings of that prefix.
RELEASES_WITHOUT = {"transaction": ("0.10",), "share": ("0.10", "0.11", "1.1", "2.0", "2.8", "3.9", "4.0")}


def replicas_of(brokers: int) -> int:
    """The replicas of a topic, unless it names a number."""
    return min(MOST_REPLICAS, brokers)


def settings_of_cluster(brokers: int, act_as: str | None) -> dict[str, str]:
    """The settings of each of so many brokers, unless it is given others; `act_as` as for `quick_groups`."""
    replicas = replicas_of(brokers)
    settings = {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(min(2, replicas)),
        "replica.fetch.backoff.ms": str(FETCH_BACKOFF_MS),
    }
    return {
        name: value
        for name, value in settings.items()
        if act_as not in RELEASES_WITHOUT.get(name.partition(".")[0], ())
    }
