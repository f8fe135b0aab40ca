"""How far behind groups are, read once for all pages that show it, and more seldom while none does.

The page that is first to want a newer reading reads, and all of them share it. The readings while no page is open are
for the last ten minutes that a page shows when it is opened.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Collection
from contextlib import suppress
from typing import Any, NamedTuple

import trio

from minibroker.console.answers import advice_of_a_page, looked
from minibroker.console.event_stream import StreamEvent
from minibroker.console.group_offsets import GroupLag, LagHistory, all_lags, by_topic
from minibroker.console.kafka_clients import KafkaClients
from minibroker.control import Control
from minibroker.errors import BadValue, CommandFailed

READ_SECONDS = 3.0
UNSEEN_SECONDS = 10.0  # between two readings while no page is open
# A reading of many groups takes long: while no page is open the cluster rests for this many times as long.
UNSEEN_REST_FACTOR = 20
RETRY_SECONDS = 1.0
WORST = 5

Json = dict[str, Any]


class Lags(NamedTuple):
    """The lags of the first groups of `groups`, and a line of each thing that is not there; or why there is nothing."""

    number: int
    groups: int
    lags: dict[str, GroupLag]
    trouble: str | None = None
    lacks: tuple[str, ...] = ()


class LagWatch:
    """One for each console."""

    def __init__(self, kafka: KafkaClients, control: Control | None, history: LagHistory) -> None:
        self._kafka = kafka
        self._control = control
        self._history = history
        self._lock = trio.Lock()
        self._latest = Lags(0, 0, {})
        self._begun = self._due = self._failed_at = -math.inf

    async def keep(self) -> None:
        """Read now and again until cancelled, whether or not a page is open; each reading is recorded."""
        while True:
            begun = trio.current_time()
            with suppress(CommandFailed, BadValue):  # a page that is opened shows the reason
                await self.no_older_than(UNSEEN_SECONDS)
            took = trio.current_time() - begun
            await trio.sleep(max(UNSEEN_SECONDS, took * UNSEEN_REST_FACTOR))

    async def events(self, topics: Collection[str]) -> AsyncGenerator[StreamEvent, None]:
        """Yield each reading: the groups that are furthest behind, and the lag by group of these topics."""
        seen = 0
        while True:
            reading = await self._after(seen)
            seen = reading.number
            if reading.trouble is not None:
                yield StreamEvent({"error": reading.trouble})
            else:
                yield StreamEvent(self.shown(reading, topics))

    async def fresh(self) -> Lags:
        """A reading that is not older than the call; calls that wait share it. Raises CommandFailed."""
        return await self.no_older_than(0)

    async def no_older_than(self, seconds: float) -> Lags:
        """A reading that began at most so long before the call, or fails meanwhile. Raises CommandFailed."""
        called = trio.current_time()
        async with self._lock:
            if self._begun < called - seconds and self._failed_at <= called:
                await self._read()
            if self._latest.trouble is not None:
                raise CommandFailed(self._latest.trouble)
            return self._latest

    def shown(self, reading: Lags, topics: Collection[str]) -> Json:
        behind = sorted((each for each in reading.lags.values() if each.lag), key=lambda each: -(each.lag or 0))
        even = [each for each in reading.lags.values() if each.lag == 0]
        shown = {
            "groups": reading.groups,
            "looked_through": len(reading.lags),
            "lag": sum(each.lag or 0 for each in behind),
            "worst": [
                {
                    "group": each.group,
                    "lag": each.lag,
                    "slope": self._history.slope(each.group),
                    "points": self._history.of(each.group),
                }
                for each in (behind + even)[:WORST]
            ],
            "topics": by_topic(reading.lags, topics),
        }
        return shown | {"lacks": reading.lacks} if reading.lacks else shown

    async def _after(self, seen: int) -> Lags:
        """A reading after the one of that number, as soon as it is due; at once if a young one is there."""
        if self._is_news(seen):
            return self._latest
        async with self._lock:
            if not self._is_news(seen):
                await trio.sleep_until(self._due)
                await self._read()
            return self._latest

    def _is_news(self, seen: int) -> bool:
        return self._latest.number > seen and trio.current_time() < self._due

    async def _read(self) -> None:
        self._begun = trio.current_time()
        number = self._latest.number + 1
        try:
            (groups, lags), lacking = await looked(
                lambda: self._kafka.ask(lambda client: all_lags(client, self._control))
            )
        except CommandFailed as error:
            self._latest = Lags(number, 0, {}, advice_of_a_page(str(error)))
            self._failed_at = trio.current_time()
            self._due = self._failed_at + RETRY_SECONDS
            return
        for each in lags.values():
            if each.lag is not None:
                self._history.record(each.group, each.lag)
        self._latest = Lags(number, groups, lags, lacks=tuple(lacking))
        # A reading that a slow broker held up is young for those who have waited for it.
        self._due = max(self._begun + READ_SECONDS, trio.current_time() + RETRY_SECONDS)
