"""A cluster that `minibroker serve --brokers` runs, by its data directory: the sockets of its brokers and launcher."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, Literal

from minibroker.cluster_clock import ClusterClock
from minibroker.cluster_verbs import ClusterVerbs, Replica
from minibroker.control import Control
from minibroker.errors import BrokerError

LAUNCHER = "launcher.control"

Process = Literal["kill", "stop", "start", "pause", "resume"]


class ServedCluster(ClusterVerbs):
    """The verbs of a cluster in another process. Raises BrokerError where none runs."""

    def __init__(self, data_dir: str | os.PathLike[str]) -> None:
        self._directory = Path(data_dir) / "cluster"
        if not (self._directory / LAUNCHER).exists():
            raise BrokerError(
                f"no cluster runs in {data_dir}; start one with `minibroker serve --brokers 3 --data-dir {data_dir}`, "
                "or name its directory with --data-dir"
            )
        self._launcher = Control(self._directory / LAUNCHER)
        self.clock = ClusterClock(self._controls)

    def brokers(self) -> list[dict[str, Any]]:
        """All brokers, each with `broker_id`, `address`, `state` (running, paused or ended) and `pid`."""
        found: list[dict[str, Any]] = self._launcher.call("brokers")
        return found

    def change(self, process: Process, broker_id: int) -> None:
        """Kill, stop, start, pause or resume the process of a broker, and wait until it is so."""
        self._launcher.call(process, broker_id=broker_id)

    def status(self) -> dict[str, Any]:
        """The controller and the live brokers, as one of them has them."""
        found: dict[str, Any] = self._ask_any("cluster.status")
        return found

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic, none if there is no such topic."""
        return sorted(row["partition"] for row in self._ask_any("cluster.partitions", topic=topic)["partitions"])

    def all_replicas(self, topic: str) -> dict[int, dict[int, Replica]]:
        """The replicas of each partition by their brokers, none if there is no such topic."""
        from minibroker.any_cluster.cluster import all_of

        return all_of({number: partial(self.replicas, topic, number) for number in self.partitions(topic)})

    def _controls(self) -> dict[int, Control]:
        return {
            row["broker_id"]: Control(self._directory / f"{row['broker_id']}.control")
            for row in self.brokers()
            if row["state"] == "running"
        }
