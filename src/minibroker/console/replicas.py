"""The replicas of a partition for the page Inside, each as its own broker knows it, by the brokers' control sockets.

A broker that is paused answers nothing: it is shown without figures, and not asked again before it has answered.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import trio
from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import get, in_path, number_of
from minibroker.console.console import Console
from minibroker.control import KeptControl
from minibroker.errors import BrokerError

ANSWER_SECONDS = 0.5
THREADS_MAX = 32
NO_CLUSTER = "unknown-call"  # the code of a broker without others

Json = dict[str, Any]


def routes(console: Console) -> list[BaseRoute]:
    brokers = Brokers()

    async def replicas(request: Request) -> Any:
        topic, partition = in_path(request, "topic"), number_of(in_path(request, "partition"), "partition")
        try:
            status = await console.call_often("cluster.status")
        except BrokerError as error:
            if error.code != NO_CLUSTER:
                raise
            return {"replicas": []}
        found: dict[int, Json] = {}
        async with trio.open_nursery() as nursery:
            for row in status["brokers"]:
                if row["control"] is not None:
                    nursery.start_soon(brokers.ask, row["broker_id"], row["control"], topic, partition, found)
        return {"replicas": replica_rows(status, found)}

    return [get("/api/inside/replicas/{topic}/{partition}", replicas)]


class Brokers:
    """The control sockets of a cluster's brokers."""

    def __init__(self) -> None:
        self._controls: dict[str, KeptControl] = {}
        self._asked: set[str] = set()  # those that have not answered yet
        self._limiter = trio.CapacityLimiter(THREADS_MAX)

    async def ask(self, broker_id: int, path: str, topic: str, partition: int, found: dict[int, Json]) -> None:
        """Put the broker's view of a partition into `found`, if it answers soon."""
        if path in self._asked:
            return
        control = self._controls.setdefault(path, KeptControl(path))
        self._asked.add(path)
        with trio.move_on_after(ANSWER_SECONDS):
            answer = await trio.to_thread.run_sync(
                partial(self._call, control, path, topic, partition), limiter=self._limiter, abandon_on_cancel=True
            )
            for row in answer:
                found[broker_id] = row

    def _call(self, control: KeptControl, path: str, topic: str, partition: int) -> list[Json]:
        try:
            rows: list[Json] = control.call("cluster.partitions", topic=topic, partition=partition)["partitions"]
        except BrokerError:  # it has ended, or is about to
            return []
        finally:
            self._asked.discard(path)
        return rows


def replica_rows(status: Json, found: dict[int, Json]) -> list[Json]:
    """A row for each replica of the partition, the leader first; of a broker that does not answer only its name.

    `waits_for`: the in-sync replicas that a leader has not yet heard to have all its records; acks=all waits for them.
    `behind`: the records of the leader's that a follower lacks.
    """
    if not found:
        return []
    newest = max(found.values(), key=lambda row: int(row["leader_epoch"]))
    leader = newest["leader"]
    leading = found.get(leader, {}).get("replica") or {}
    alive = {row["broker_id"]: row for row in status["brokers"]}
    rows = []
    for broker_id in sorted(newest["replicas"], key=lambda each: (each != leader, each)):
        replica = found.get(broker_id, {}).get("replica")
        row = {
            "broker_id": broker_id,
            "rack": alive.get(broker_id, {}).get("rack"),
            "is_alive": broker_id in alive,
            "is_controller": broker_id == status["controller_id"],
            "is_in_sync": broker_id in newest["in_sync_replicas"],
            "replica": replica,
        }
        if replica is not None and replica["role"] == "leader":
            ends = replica["followers"]
            row["waits_for"] = [
                each
                for each in sorted(replica["in_sync_replicas"])
                if each != broker_id and ends.get(str(each), -1) < replica["log_end_offset"]
            ]
        elif replica is not None and leading:
            row["behind"] = max(0, leading["log_end_offset"] - replica["log_end_offset"])
        rows.append(row)
    return rows
