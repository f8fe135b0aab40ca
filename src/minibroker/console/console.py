"""One console, as its routes share it: its options, connections to the cluster, a broker's control socket."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import trio

from minibroker.console.answers import Refused
from minibroker.console.event_stream import Streams
from minibroker.console.figures import Growth
from minibroker.console.group_offsets import LagHistory
from minibroker.console.kafka_clients import KafkaClients
from minibroker.console.lag_watch import LagWatch
from minibroker.console.metadata import Metadata
from minibroker.console.options import ConsoleOptions
from minibroker.control import Control, KeptControl, Place
from minibroker.errors import BadValue, CommandFailed

CONTROL_THREADS_MAX = 4
NO_CONTROL = "this needs minibroker with --control; start the console with --control SOCKET too"


class Console:
    """`control` is None without a control socket. Of several it is that of one broker, until that broker ends."""

    def __init__(self, options: ConsoleOptions, kafka: KafkaClients) -> None:
        self.options = options
        self.kafka = kafka
        self.metadata = Metadata(kafka)
        self.growth = Growth()
        self.lags = LagHistory()
        self.streams = Streams()
        place = Place(*options.controls) if options.controls else None
        self.control = None if place is None else Control(place)
        self.lag_watch = LagWatch(kafka, self.control, self.lags)
        self._kept_control = None if place is None else KeptControl(place)
        self._control_limiter = trio.CapacityLimiter(CONTROL_THREADS_MAX)

    async def attend(self) -> None:
        """Connect, so that the first page need not wait for it; then keep the lag of groups."""
        with suppress(CommandFailed, BadValue):  # the page asks again, and shows the reason
            await self.metadata.snapshot()
        await self.lag_watch.keep()

    async def call(self, name: str, **arguments: object) -> Any:
        """Call the broker's control socket. Raises Refused without one, BrokerError if the broker refuses."""
        return await self._call(self.control, name, arguments)

    async def call_often(self, name: str, **arguments: object) -> Any:
        """As `call`, one at a time and much cheaper for the broker, for a call that can be made twice."""
        return await self._call(self._kept_control, name, arguments)

    async def _call(self, control: Control | None, name: str, arguments: Mapping[str, object]) -> Any:
        if control is None:
            raise Refused(409, NO_CONTROL)
        return await trio.to_thread.run_sync(
            lambda: control.call(name, **arguments), limiter=self._control_limiter, abandon_on_cancel=True
        )
