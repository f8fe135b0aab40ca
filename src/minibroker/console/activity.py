"""The requests of clients: of a minibroker, by API, and the last ones that failed.

Nothing runs while no page looks. The broker counts, and keeps requests that fail, for a few seconds after each look,
which all pages share. What other brokers do not answer over Kafka's protocol is None.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from typing import Any

import trio
from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.figures import Growth
from minibroker.console.inside_watch import InsideWatch, Row
from minibroker.metrics.facts import values_of

LOOK_SECONDS = 2.0
LEASE_MS = 10_000
ERRORS_KEPT = 20
APIS_SHOWN = 8
POINTS_KEPT = 300  # ten minutes
PIECES_MAX = 100  # of a scan of the broker's metrics
REQUESTS = "kafka.network:type=RequestMetrics"
TOPIC_SUMS = "kafka.server:type=BrokerTopicMetrics"
CONSUMER, FOLLOWER = "FetchConsumer", "FetchFollower"  # a Fetch is counted once more under one of these

Json = dict[str, Any]


def routes(console: Console, watch: InsideWatch) -> list[BaseRoute]:
    activity = Activity(console, watch)

    async def shown(request: Request) -> Any:
        return await activity.look()

    return [get("/api/activity", shown)]


class Activity:
    """One for each console."""

    def __init__(self, console: Console, watch: InsideWatch) -> None:
        self._console = console
        self._watch = watch
        self._lock = trio.Lock()
        self._due = -math.inf
        self._shown: Json = {"requests": None, "errors": None}
        self._run: int | None = None
        self._growth = Growth()
        self._points: deque[tuple[int, float]] = deque(maxlen=POINTS_KEPT)
        self._errors: deque[Json] = deque(maxlen=ERRORS_KEPT)
        # Requests by API that failed since the first look. Those of the console are neither listed nor counted.
        self._failed: Counter[str] = Counter()
        self._client_id = console.kafka.cluster.properties["client.id"]
        self._next: int | None = None  # the number of the first exchange that is new, once a look has come

    async def look(self) -> Json:
        """The activity until now. Raises BrokerError."""
        if self._console.control is None:
            return self._shown
        async with self._lock:
            if trio.current_time() >= self._due:
                await self._ask()
                self._due = trio.current_time() + LOOK_SECONDS
            return self._shown

    async def _ask(self) -> None:
        families = await self._families()
        await self._watch.look(LEASE_MS)
        ended = self._watch.ended_since(self._next)
        if ended.head["run"] != self._run:  # the broker is another process: its numbers begin anew
            self._run = ended.head["run"]
            self._growth = Growth()
            self._errors.clear()
            self._failed.clear()
        failed = [each for each in ended.rows if each.error and each.client != self._client_id]
        self._errors.extend(error_row(each, ended.head) for each in failed)
        self._failed.update(each.api for each in failed)
        self._next = ended.next
        self._shown = {"requests": self._requests(families), "errors": list(reversed(self._errors))}

    async def _families(self) -> list[Json]:
        """The families of the broker's metrics up to those of requests."""
        found: list[Json] = []
        scan: int | None = None
        for _ in range(PIECES_MAX):
            arguments = {} if scan is None else {"scan": scan}
            piece = await self._console.call("inside.metrics", lease_ms=LEASE_MS, **arguments)
            found += piece["families"]
            scan = piece["scan"]
            types = [each["type"] for each in found]
            if scan is None or (REQUESTS in types and types[-1] != REQUESTS):
                break
        return found

    def _requests(self, families: list[Json]) -> Json:
        now = time.monotonic()
        requests = counted(families)
        by_api = [
            {
                "api": api,
                "requests": requests[api],
                "rate": self._growth.rate(f"requests {api}", requests[api], now),
                "errors": self._failed[api],
            }
            for api in sorted(requests, key=lambda api: -requests[api])
        ]
        rate = self._growth.rate("requests", sum(requests.values()), now)
        if rate is not None:
            self._points.append((round(time.time() * 1000), round(rate, 1)))
        sums = totals(families)
        return {
            "rate": rate,
            "bytes_in": self._growth.rate("bytes in", sums.get("BytesInPerSec", 0), now),
            "bytes_out": self._growth.rate("bytes out", sums.get("BytesOutPerSec", 0), now),
            "points": list(self._points),
            "apis": by_api[:APIS_SHOWN],
            "more": len(by_api[APIS_SHOWN:]),
        }


def counted(families: list[Json]) -> Counter[str]:
    """Requests by API."""
    requests = Counter[str]()
    for (api, *_), values in values_of(families, REQUESTS):
        if "RequestsPerSec" in values and api not in (CONSUMER, FOLLOWER):
            requests[api] += values["RequestsPerSec"]
    return requests


def totals(families: list[Json]) -> Json:
    """The counters of all topics together, by Kafka's names."""
    return next((values for keys, values in values_of(families, TOPIC_SUMS) if not keys), {})


def error_row(row: Row, head: Json) -> Json:
    """A failed request as a page shows it; `broker_ms` is the broker's time when it arrived."""
    arrived_us = row.arrived
    turned_since_ms = sum(ms for at_us, ms in head["turns"] if at_us > arrived_us)
    return {
        "seq": row.seq,
        "connection": row.connection,
        "client_id": row.client,
        "api": row.api,
        "version": row.version,
        "error": row.error,
        "broker_ms": head["broker_ms"] - (head["now_us"] - arrived_us) // 1000 - turned_since_ms,
        "topics": row.topics[:3],
    }
