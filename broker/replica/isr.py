"""A change of in-sync replicas, as a request: the state of the cluster takes it or finds it stale (as KIP-497).

The leader asks with the epoch and the version of the partition's state that it knows. What it asked for holds once the
state has taken it; until then, the larger of both sets counts for the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from minibroker.broker.pending import Pending
from minibroker.protocol.primitives import TopicPartition


class IsrChange(NamedTuple):
    """The in-sync replicas that a leader asks for."""

    in_sync_replicas: tuple[int, ...]
    leader_epoch: int
    state_version: int  # that the leader knows


IsrChanges = Mapping[TopicPartition, IsrChange]
# The version of the state that holds each change; None for a stale one.
IsrOutcomes = Mapping[TopicPartition, int | None]
# Saves all changes in one write. Raises KafkaError, and saves none.
SaveIsr = Callable[[IsrChanges], IsrOutcomes | Pending[IsrOutcomes]]


def saved(changes: IsrChanges) -> IsrOutcomes:
    """The outcome where no state is kept: each change holds."""
    return {topic_partition: change.state_version + 1 for topic_partition, change in changes.items()}
