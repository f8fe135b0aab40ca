"""Which replica a consumer should read: the one in its own rack (KIP-392).

As kafka 2.4 ReplicaManager.findPreferredReadReplica, with RackAwareReplicaSelector.
"""

from __future__ import annotations

from collections.abc import Mapping

from minibroker.broker.replica.leading import Leading


class RackAwareSelector:
    """Selects for the consumers of a rack; `racks` are those of the live brokers that they reach, by id."""

    __slots__ = ("_rack", "_racks")

    def __init__(self, rack: str, racks: Mapping[int, str | None]) -> None:
        self._rack = rack
        self._racks = racks

    def select(self, partition: Leading, fetch_offset: int) -> int | None:
        """Return the follower in the rack that has the offset and the longest log; None for the leader."""
        if self._racks.get(partition.broker_id) == self._rack:
            return None
        best: tuple[int, int, int] | None = None
        for replica in partition.remote_replicas.values():
            end_offset, broker_id = replica.log_end_offset.message_offset, replica.broker_id
            if self._racks.get(broker_id) == self._rack and replica.log_start_offset <= fetch_offset <= end_offset:
                rank = (end_offset, replica.last_caught_up_ms, broker_id)
                best = rank if best is None else max(best, rank)
        return None if best is None else best[2]
