"""Looking: what happens in a broker, by the control socket, and its metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.network.server import Server
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.wing import Wing

if TYPE_CHECKING:
    from minibroker.broker.wings.looking.tracer import Tracer


class LookingWing(Wing):
    """Traces requests for the control socket; finds metrics for it, and for the process of `--metrics`."""

    def __init__(self, parts: BrokerParts) -> None:
        self._parts = parts
        self._encrypted = frozenset(each.name for each in parts.config.endpoints if each.is_encrypted)
        self._tracer: Tracer | None = None
        self._calls: dict[str, Callable[..., object]] = {}
        self._tasks: list[Callable[[], Awaitable[object]]] = []
        from minibroker.broker.wings.looking.fetch_positions import FetchPositions

        self._positions = FetchPositions(parts)
        if parts.options.control is not None:
            self._trace()

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.control is not None or options.metrics is not None

    def _trace(self) -> None:
        from minibroker.broker.wings.looking.calls import InsideCalls
        from minibroker.broker.wings.looking.tracer import Tracer
        from minibroker.broker.wings.testing.control.turnable_clock import ClockTurner, TurnableClock

        parts, clock = self._parts, self._parts.timers.clock
        assert isinstance(clock, TurnableClock)
        turner = ClockTurner(clock)
        self._tracer = Tracer(parts, self._encrypted)
        inside = InsideCalls(
            self._tracer,
            parts,
            self._positions,
            clock,
            parts.connections,
            turned_ms=lambda: int(clock.turned_seconds * 1000),
            recorder=parts.options.recorder,
        )
        self._calls |= {"clock.advance": inside.noting_turns(turner.advance), "clock.now": turner.now}
        self._calls |= inside.by_name

    def look_at(self, server: Server, compaction: Compaction, address: str) -> None:
        from minibroker.broker.wings.looking.families import Observed
        from minibroker.broker.wings.looking.metrics import Metrics
        from minibroker.broker.wings.testing.control.control_server import Calls

        parts, options = self._parts, self._parts.options
        observed = Observed(parts, self._positions, server, parts.connections, compaction, address)
        metrics = Metrics(observed, encrypted=self._encrypted, tracer=self._tracer)
        if options.metrics is not None or options.counts:
            metrics.count()
        self._calls["inside.metrics"] = metrics.metrics
        if options.metrics is not None:
            calls = Calls()
            calls.register("inside.metrics", metrics.metrics)
            self._tasks.append(partial(options.metrics.run, calls))

    def calls(self) -> Mapping[str, Callable[..., object]]:
        return self._calls

    def tasks(self) -> Sequence[Callable[[], Awaitable[object]]]:
        return self._tasks
