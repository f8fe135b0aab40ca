"""The rate of a value over a window of samples, and the time for which a client that exceeds a limit must wait.

A window is a number of samples of equal length; the newest is being filled. A sample that began as long ago as all
samples together last is emptied. The rate is the sum of the samples per second since the oldest began; a window without
enough full samples counts as if it had one fewer than its number. So one large request does not look like a high rate
when a client begins. As kafka 2.0.1 Rate, SampledStat and ClientQuotaManager.throttleTime, in doubles as they are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MS_PER_SECOND = 1000
THROTTLE_MS_MAX = 2**31 - 1  # of throttle_time_ms, an int32


class SampleWindow(NamedTuple):
    """The number of samples in a window, and the length of each."""

    samples: int
    sample_ms: int

    @property
    def length_ms(self) -> int:
        return self.samples * self.sample_ms


class SampledRate:
    """The samples of one window. A sample has its start and its sum; they are kept in a ring."""

    __slots__ = ("_current", "_starts_ms", "_sums", "last_recorded_ms")

    def __init__(self, now_ms: int) -> None:
        self._starts_ms = [now_ms]
        self._sums = [0.0]
        self._current = 0
        self.last_recorded_ms = now_ms

    def record(self, window: SampleWindow, value: float, now_ms: int) -> None:
        """Add to the newest sample; begin another if that one is full. A negative value takes back an earlier one."""
        self.last_recorded_ms = now_ms
        if now_ms - self._starts_ms[self._current] >= window.sample_ms:
            self._current = (self._current + 1) % window.samples
            if self._current == len(self._sums):
                self._starts_ms.append(now_ms)
                self._sums.append(0.0)
            else:
                self._reset(self._current, now_ms)
        self._sums[self._current] += value

    def throttle_ms(self, window: SampleWindow, limit: float, now_ms: int) -> int:
        """Return how long the client must wait for its rate to fall to `limit` per second; 0 if it is not above."""
        length_ms = self._length_ms(window, now_ms)
        if length_ms <= 0:  # of one sample, which has just begun: Kafka divides by it, and does not throttle
            return 0
        rate = sum(self._sums) / (length_ms / MS_PER_SECOND)
        if rate <= limit:
            return 0
        return min(rounded((rate - limit) / limit * length_ms), THROTTLE_MS_MAX)

    def per_second(self, window: SampleWindow, now_ms: int) -> float:
        """The rate now, as kafka 2.0.1 Rate.measure."""
        length_ms = self._length_ms(window, now_ms)
        return sum(self._sums) / (length_ms / MS_PER_SECOND) if length_ms > 0 else 0.0

    def simple_per_second(self, window: SampleWindow, now_ms: int) -> float:
        """The rate since the oldest sample began, or over one sample if that is longer, as kafka 2.0.1 SimpleRate."""
        elapsed_ms = self._elapsed_ms(window, now_ms)
        return sum(self._sums) / (max(elapsed_ms, window.sample_ms) / MS_PER_SECOND)

    def total(self, window: SampleWindow, now_ms: int) -> float:
        """The sum over the samples of the window."""
        self._length_ms(window, now_ms)
        return sum(self._sums)

    def _length_ms(self, window: SampleWindow, now_ms: int) -> int:
        """The time since the oldest sample began, and that of the full samples that are missing."""
        elapsed_ms = self._elapsed_ms(window, now_ms)
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        return elapsed_ms + max(0, missing) * window.sample_ms

    def _elapsed_ms(self, window: SampleWindow, now_ms: int) -> int:
        """The time since the oldest sample began, after samples that are too old were emptied."""
        for index, start_ms in enumerate(self._starts_ms):
            if now_ms - start_ms >= window.length_ms:
                self._reset(index, now_ms)
        return now_ms - min(self._starts_ms)

    def _reset(self, index: int, now_ms: int) -> None:
        self._starts_ms[index] = now_ms
        self._sums[index] = 0.0


def rounded(value: float) -> int:
    """Round as java.lang.Math.round: halves up."""
    below = math.floor(value)
    return below + (value - below >= 0.5)
