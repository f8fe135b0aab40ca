"""Producer ids: blocks of 1000, each stored before its first id is used (as kafka 2.0.1 ProducerIdManager)."""

from __future__ import annotations

from minibroker.broker.cluster.sections import NEXT_PRODUCER_ID
from minibroker.broker.cluster.state import Change, ClusterState

BLOCK = 1000


class ProducerIds:
    """Ids that no earlier run has given out either."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._least = 0
        self._block = iter(range(0))

    def skip_to(self, least: int) -> None:
        """Give out no id below `least`: Apache Kafka has used them, which keeps its ids in ZooKeeper."""
        self._least = least

    def next(self) -> int:
        """Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        for producer_id in self._block:
            return producer_id
        first = self._first_free()
        while not self._state.save("a block of producer ids", Change(sections={NEXT_PRODUCER_ID: first + BLOCK})):
            first = self._first_free()
        self._block = iter(range(first, first + BLOCK))
        return next(self._block)

    def _first_free(self) -> int:
        return max(self._state.get(NEXT_PRODUCER_ID), self._least)
