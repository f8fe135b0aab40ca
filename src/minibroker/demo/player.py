"""Replays the flights in a thread, at their own pace, while the Spark job reads them.

The rule: after the first day it waits until `is_read` is set, for Spark takes a while to begin. The end of the stream
goes out only when `may_end` is set. A failure is kept for `raise_failure`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import chain
from types import TracebackType

from minibroker.demo import flights, replay
from minibroker.demo.replay import ReplayStopped, paced

DAYS_PER_SECOND = 25
SECONDS_OF_DAY = 86_400
JOIN_SECONDS = 2.0


class Player:
    """The replay of the first days of the year; `say` prints a line. Used in a `with`, at whose end it is stopped."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        days: int,
        say: Callable[[str], None],
        *,
        days_per_second: float = DAYS_PER_SECOND,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._say = say
        self._days = days
        self._days_per_second = days_per_second
        table = flights.load(days)
        self.flights = len(table)
        messages = flights.messages(table)
        first = next(messages)  # takes as long as all others
        self._messages = chain([first], messages)
        self._second_day_ms = first.timestamp_ms + 1000 * SECONDS_OF_DAY
        self.sent = 0
        self.is_read = threading.Event()
        self.may_end = threading.Event()
        self.on_failure: Callable[[], None] = lambda: None
        self._stop = threading.Event()
        self._failure: Exception | None = None
        # A daemon, because a flush to a broker that has gone takes a minute.
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for event in (self._stop, self.is_read, self.may_end):
            event.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    def begin(self) -> None:
        """Start the replay."""
        self._say(f"Replay of {self._days} days of flights, {self._days_per_second:g} days a second")
        self._thread.start()

    def raise_failure(self) -> None:
        """Raise what the replay has failed with, if it has."""
        if self._failure is not None:
            raise self._failure

    def _play(self) -> None:
        try:
            replay.replay(self._bootstrap, self._topic, self._records())
        except ReplayStopped:
            pass
        except Exception as error:
            self._failure = error
            self.on_failure()

    def _records(self) -> Iterator[flights.FlightRecord]:
        speed = self._days_per_second * SECONDS_OF_DAY
        for message in self._messages:
            self.sent += 1
            yield message
            if message.timestamp_ms >= self._second_day_ms:
                break
        self.is_read.wait()
        for message in paced(self._messages, event_seconds_per_second=speed, stop=self._stop):
            self.sent += 1
            yield message
        self.may_end.wait()
        if self._stop.is_set():
            raise ReplayStopped
        self._say(
            f"Replayed all {self.flights:,} flights, and ended the stream in each partition: a day is written only "
            "when no flight of it can come any more"
        )
