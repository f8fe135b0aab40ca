"""An in-memory broker with a tracer, and the calls of its control socket."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.network.connection import Connection
from minibroker.broker.wings.looking.calls import InsideCalls
from minibroker.broker.wings.looking.tracer import Tracer
from minibroker.story import with_story
from tests.broker.conftest import InMemoryBroker
from tests.broker.peers import Connect, Peer


def in_json(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call as over the control socket."""
    return lambda *args, **options: json.loads(json.dumps(call(*args, **options)))


class Traced:
    """`tracer` looks at `broker`; `calls` are those of `inside.*`. `skipped_ns` moves the tracer's clock on."""

    def __init__(self, broker: InMemoryBroker) -> None:
        self.broker = broker
        self.clients = [broker.client]
        self.connections: set[Connection] = set()
        self.skipped_ns = 0
        self.machine_ns = time.perf_counter_ns
        self.tracer = Tracer(broker.parts, now_ns=lambda: self.machine_ns() + self.skipped_ns, draw=lambda mean: mean)
        calls = InsideCalls(self.tracer, broker.parts, broker.positions, broker.clock, self.connections)
        self.calls: Any = SimpleNamespace(
            **{name.removeprefix("inside."): in_json(call) for name, call in calls.by_name.items()}
        )

    def stop_clock(self) -> None:
        """From now on the tracer's clock moves by `skipped_ns` only, however busy the machine is."""
        now_ns = self.machine_ns()
        self.machine_ns = lambda: now_ns

    def keep_each(self, number: int) -> None:
        """From now on each `number`-th plain request is kept."""
        self.tracer.kept_every = number
        self.tracer._next = self.tracer._count + number

    def connect(self, client_id: str | None = None, address: str = "127.0.0.1:50001") -> Client:
        """From now on another client asks."""
        self.broker.client = Client(address, "127.0.0.1", 9092, len(self.clients) + 1)
        self.broker.client.client_id = client_id
        self.clients.append(self.broker.client)
        return self.broker.client

    def peer(self, connect: Connect) -> Peer:
        """From now on another client asks, by a connection."""
        peer = connect(self.broker.way.serve, client=self.connect(), probes=self.broker.parts.probes)
        self.connections.add(peer.connection)
        return peer

    def pull(self, **arguments: Any) -> dict[str, Any]:
        """Call `inside.pull`; return exchanges as dicts, with names in place of numbers of its tables."""
        pulled: dict[str, Any] = self.calls.pull(**arguments)
        for kind in ("exchanges", "waiting"):
            rows = [dict(zip(pulled["fields"], row, strict=True)) for row in pulled[kind]]
            for row in rows:
                row["client"] = pulled["clients"][row["client"]]
                row["topics"] = [pulled["topics"][each] for each in row["topics"]]
            pulled[kind] = rows
        return pulled

    def exchanges(self, api: int | None = None) -> list[dict[str, Any]]:
        """The exchanges that have ended, of one API if it is given."""
        return [each for each in self.pull(budget=1000)["exchanges"] if api in (None, each["api"])]

    def explained(self, seq: int = -1) -> dict[str, Any]:
        """The exchange of that number, by default the last that has ended, explained in full."""
        return with_story(self.calls.exchange(self.exchanges()[-1]["seq"] if seq < 0 else seq))

    def titles(self, seq: int = -1) -> list[str]:
        """The titles of its steps."""
        return [step["title"] for step in self.explained(seq)["steps"]]
