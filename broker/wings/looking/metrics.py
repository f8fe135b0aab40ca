"""The metrics of a broker, by the names that Kafka gives them: `inside.metrics` of the control socket.

A family is what one MBean type has under its names, a row for each of its keys:

    {"type": "kafka.log:type=Log", "keys": ["topic", "partition"], "names": ["Size", "LogEndOffset"],
     "about": [["gauge", "bytes", "of all segments", ""], ...], "rows": [["orders", 0, 1420, 44], ...]}

so the MBean of a value is `kafka.log:type=Log,name=Size,topic=orders,partition=0`, as in kafka 2.0.1. Types that begin
with `minibroker:` are our own. A histogram is an object with the attributes of Kafka's. `about` has the kind, the unit
and the meaning of each name, and its name for Prometheus where Kafka's does not make it, from the catalogue.

Nearly all is read from state that exists anyway (`families.py`). `Counters` has the rest; they count for `lease_ms`
after a call, or from the start of a broker with `--metrics`. A scan of all metrics comes in pieces, each of a
millisecond at most, so that thousands of partitions stop no client.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from itertools import count
from random import Random
from typing import Any

from minibroker.broker.metric import Family, Found, Row
from minibroker.broker.wings.looking.counters import Counters
from minibroker.broker.wings.looking.families import Families, Observed
from minibroker.broker.wings.looking.tracer import Tracer
from minibroker.purgatory.timing_wheel import TimerTask

PIECE_SECONDS = 0.000_5  # and the rest of a millisecond to encode it
SCANS_MAX = 4
SCAN_SECONDS = 10.0  # until one that is not continued is forgotten
DEFAULT_LEASE_MS = 300_000
LEASE_MS_MAX = 86_400_000
RUNS = 1 << 40


class Scan:
    """The rest of one look at all metrics, which several calls bring."""

    def __init__(self, found: Iterator[Found], began: float) -> None:
        self._found = found
        self.continued_at = began

    def piece(self, now: Callable[[], float]) -> tuple[list[dict[str, Any]], bool]:
        """Return families for `PIECE_SECONDS`, and whether there are more."""
        self.continued_at = began = now()
        families: list[dict[str, Any]] = []
        family: Family | None = None
        rows: list[Row] = []
        for found in self._found:
            if found is not None:
                if found[0] is not family:
                    family, rows = found[0], []
                    families.append({**family.head(), "rows": rows})
                rows.append(found[1])
            if now() - began > PIECE_SECONDS:
                return families, True
        return families, False


class Metrics:
    """Answers `inside.metrics`. `encrypted` are the listeners with TLS, by which nothing leaves by sendfile; `tracer`
    gets each request whose answer has an error code."""

    def __init__(
        self,
        observed: Observed,
        *,
        encrypted: Container[str] = (),
        tracer: Tracer | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = observed.parts.timers.clock
        self._timer = observed.parts.timers.timer
        self._counters = Counters(observed.parts, encrypted=encrypted, tracer=tracer)
        self._families = Families(observed, self._counters, now)
        self._now = now
        self._run = Random().randrange(1, RUNS)
        self._scans: OrderedDict[int, Scan] = OrderedDict()
        self._numbers = count(1)
        self._lease = Lease(self._counters.stop)
        self._is_leased = True  # else it counts until the broker ends
        self._counted_from_ms = 0

    def count(self) -> None:
        """Count until the broker ends."""
        self._is_leased = False
        self._start()

    def metrics(self, scan: int | None = None, lease_ms: int = DEFAULT_LEASE_MS) -> dict[str, Any]:
        """Return the first piece of a new scan, or the next one of `scan`. Raises ValueError."""
        if not isinstance(lease_ms, int) or not 0 <= lease_ms <= LEASE_MS_MAX:
            raise ValueError(f"lease_ms is a number of milliseconds up to {LEASE_MS_MAX}, not {lease_ms!r}")
        if self._is_leased:
            self._renew(lease_ms)
        number, going = self._scan(scan)
        families, is_more = going.piece(self._now)
        if not is_more:
            del self._scans[number]
        return {
            "run": self._run,
            "scan": number if is_more else None,
            "is_counting": self._counters.is_counting,
            "counted_from_ms": self._counted_from_ms,
            "families": families,
        }

    def _scan(self, number: int | None) -> tuple[int, Scan]:
        if number is not None:
            going = self._scans.get(number) if isinstance(number, int) else None
            if going is None or self._now() - going.continued_at > SCAN_SECONDS:
                raise ValueError(f"scan {number!r} is no longer kept; begin a new one, without `scan`")
            return number, going
        number = next(self._numbers)
        going = self._scans[number] = Scan(self._families.found(), self._now())
        while len(self._scans) > SCANS_MAX:
            self._scans.popitem(last=False)
        return number, going

    def _start(self) -> None:
        if not self._counters.is_counting:
            self._counted_from_ms = self._clock.wall_ms()
        self._counters.start()

    def _renew(self, lease_ms: int) -> None:
        """Count for `lease_ms` from now on, 0 for not at all."""
        self._timer.cancel(self._lease)
        if lease_ms > 0:
            self._start()
            self._timer.add(self._lease, self._clock.monotonic_ms() + lease_ms)
        else:
            self._counters.stop()


class Lease(TimerTask):
    """Calls `on_end` when no call has renewed it."""

    __slots__ = ("_on_end",)

    def __init__(self, on_end: Callable[[], None]) -> None:
        super().__init__()
        self._on_end = on_end

    def on_timeout(self) -> None:
        self._on_end()
