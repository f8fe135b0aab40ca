"""Transactions: which are open, since when, and in which partitions they hold back what is committed."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.transactions import ActiveProducer
from minibroker.any_cluster import transaction_admin
from minibroker.any_cluster.cluster import at_once, lacks_answer
from minibroker.client.errors import NoAnswer
from minibroker.console.answers import change, get, in_path
from minibroker.console.console import Console
from minibroker.console.kafka_clients import needing
from minibroker.console.topics import existing_topic
from minibroker.errors import CommandFailed

DESCRIBED_MAX = 100
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
NEEDS = "the cluster cannot list its transactions, which takes Kafka 3.0 or later"
NEEDS_FOR_PRODUCERS = "the cluster cannot list the producers of a topic, which takes Kafka 2.8 or later"


def routes(console: Console) -> list[BaseRoute]:
    async def listed(request: Request) -> Any:
        return await console.kafka.ask(lambda client: transactions(console, client))

    async def producers(request: Request) -> Any:
        topic = await existing_topic(console, in_path(request, "topic"))

        def ask(client: Any) -> list[ActiveProducer]:
            with needing(NEEDS_FOR_PRODUCERS):
                return transaction_admin.producers(client, topic.name, ())

        rows = await console.kafka.ask(ask)
        return {"rows": [each._asdict() for each in rows]}

    async def abort(request: Request, body: dict[str, Any]) -> Any:
        name = in_path(request, "id")
        await console.kafka.act(lambda client: transaction_admin.fence(client, name))
        return {"transactional_id": name}

    return [
        get("/api/transactions", listed),
        get("/api/topics/{topic}/producers", producers),
        change("POST", "/api/transactions/{id}/abort", abort),
    ]


def transactions(console: Console, client: Any) -> dict[str, Any]:
    """All transactional ids; open ones are described, as far as a page shows them. Raises Refused."""
    with needing(NEEDS):
        listed = transaction_admin.transactions(client, ())
    listed = sorted(listed, key=lambda row: row.state != "Ongoing")
    is_open = [each.transactional_id for each in listed[:DESCRIBED_MAX] if each.state in OPEN]
    described = at_once({name: partial(transaction_admin.describe, client, name) for name in is_open})
    rows: list[dict[str, Any]] = []
    for each in listed:
        row = each._asdict() | {"producer_epoch": None, "started": None, "timeout_ms": None, "partitions": []}
        found = described.get(each.transactional_id)
        if isinstance(found, CommandFailed):
            continue  # it has ended since
        if isinstance(found, NoAnswer):
            lacks_answer(found, "since when its transactions are open")
        elif isinstance(found, Exception):
            raise found
        elif found is not None:
            row |= {
                "state": found.state,
                "producer_epoch": found.producer_epoch,
                "started": found.started,
                "timeout_ms": found.timeout_ms,
                "partitions": [f"{at.topic}-{at.partition}" for at in found.partitions],
            }
        rows.append(row)
    return {"rows": rows}
