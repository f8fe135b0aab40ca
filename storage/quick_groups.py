"""The settings of a broker for tests, or for a laptop alone: its groups do not wait for what Kafka's wait for.

Kafka waits 3 s for more members before a classic group's first rebalance, and has members of the consumer protocol
send a heartbeat each 5 s, by which they hear of a change: every test with a group would pay for that.
"""

from __future__ import annotations

OF_ALL_RELEASES = {"group.initial.rebalance.delay.ms": "0"}
QUICK_GROUPS = {
    **OF_ALL_RELEASES,
    "group.consumer.heartbeat.interval.ms": "250",
    "group.consumer.assignment.interval.ms": "0",
}
RELEASE_WITHOUT_DELAY = "0.10"


def quick_groups(act_as: str | None) -> dict[str, str]:
    """The settings that a broker knows which acts as a release of Kafka, or None for all that there are."""
    if act_as is None:
        return QUICK_GROUPS
    return {} if act_as == RELEASE_WITHOUT_DELAY else OF_ALL_RELEASES
