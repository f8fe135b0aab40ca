"""The cluster at a glance."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.metadata import Release, Snapshot, offline, under_replicated
from minibroker.errors import BrokerError


def routes(console: Console) -> list[BaseRoute]:
    release = Release(console.kafka)

    async def cluster(request: Request) -> Any:
        snapshot = await console.metadata.snapshot()
        return cluster_row(snapshot) | {
            "version": await release.of(snapshot),
            "bootstrap": str(console.options.cluster),
            "control": console.control is not None,
            "control_broker": await control_broker(console, snapshot),
            "replicas": console.control is not None and len(snapshot.brokers) + len(snapshot.gone) > 1,
            "changes": console.options.allow_changes,
        }

    return [get("/api/cluster", cluster)]


async def control_broker(console: Console, snapshot: Snapshot) -> int | None:
    """The broker of the control socket, where there are several."""
    if console.control is None or len(snapshot.brokers) + len(snapshot.gone) < 2:
        return None
    try:
        found: int = (await console.call_often("cluster.status"))["broker_id"]
    except BrokerError:  # it has just ended, or is no broker of a cluster
        return None
    return found


def cluster_row(snapshot: Snapshot) -> dict[str, Any]:
    """`topics` and `partitions` are those of clients; what is wrong counts in internal topics too, and by itself.

    `gone` are brokers that have replicas and do not run.
    """
    topics = snapshot.topics.values()
    partitions = [each for topic in topics for each in topic.partitions]
    internal = [topic for topic in topics if topic.is_internal]
    of_internal = [each for topic in internal for each in topic.partitions]
    return {
        "cluster_id": snapshot.cluster_id,
        "controller": snapshot.controller,
        "brokers": [each._asdict() for each in snapshot.brokers],
        "gone": snapshot.gone,
        "topics": len(topics) - len(internal),
        "internal_topics": len(internal),
        "partitions": len(partitions) - len(of_internal),
        "internal_partitions": len(of_internal),
        "offline": offline(partitions),
        "internal_offline": offline(of_internal),
        "under_replicated": under_replicated(partitions),
        "internal_under_replicated": under_replicated(of_internal),
    }
