"""The cluster at a glance."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.metadata import Snapshot


def routes(console: Console) -> list[BaseRoute]:
    async def cluster(request: Request) -> Any:
        return cluster_row(await console.metadata.snapshot()) | {
            "bootstrap": str(console.options.cluster),
            "control": console.control is not None,
            "changes": console.options.allow_changes,
        }

    return [get("/api/cluster", cluster)]


def cluster_row(snapshot: Snapshot) -> dict[str, Any]:
    partitions = [each for topic in snapshot.topics.values() for each in topic.partitions]
    return {
        "cluster_id": snapshot.cluster_id,
        "version": snapshot.version,
        "controller": snapshot.controller,
        "brokers": [each._asdict() for each in snapshot.brokers],
        "topics": sum(not topic.is_internal for topic in snapshot.topics.values()),
        "internal_topics": sum(topic.is_internal for topic in snapshot.topics.values()),
        "partitions": len(partitions),
        "offline": sum(each.leader is None for each in partitions),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
    }
