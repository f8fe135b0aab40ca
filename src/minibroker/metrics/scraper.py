"""Asks a cluster for its metrics: a minibroker by calls of its control socket, any other Kafka by its protocol."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

from minibroker.metrics.end_history import EndHistory
from minibroker.metrics.exposition import Collected, collected
from minibroker.metrics.facts import ClusterFacts, Family, facts_of
from minibroker.metrics.mbeans import Call, families_of

if TYPE_CHECKING:
    from minibroker.any_cluster.bootstrap import Cluster


class Scraper:
    """One scrape at a time; threads may share it.

    `call` is that of a minibroker's control socket; with None, `cluster` is asked, and only for what every Kafka knows.
    """

    def __init__(self, cluster: Cluster | None = None, call: Call | None = None) -> None:
        self._cluster = cluster
        self._call = call
        self._history = EndHistory()
        self._lock = threading.Lock()

    def scrape(self) -> Collected:
        """Raises CommandFailed, BrokerError, OSError or EOFError without an answer."""
        with self._lock:
            families, facts = self._asked()
            now = time.monotonic()
            for key, partition in facts.partitions.items():
                if partition.current_offset is not None:
                    self._history.note(key, partition.current_offset, now)
            self._history.keep(facts.partitions.keys())
            return collected(families, facts, partial(self._history.lag_seconds, now=now))

    def _asked(self) -> tuple[list[Family], ClusterFacts]:
        if self._call is not None:
            families = families_of(self._call)
            return families, facts_of(families)
        assert self._cluster is not None
        from minibroker.metrics.kafka_facts import facts_of_cluster

        return [], facts_of_cluster(self._cluster)
