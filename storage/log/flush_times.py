"""The durations of the flushes of all logs, as kafka 2.0.1 LogFlushStats has them. Several threads flush."""

from __future__ import annotations

from collections import deque
from threading import Lock

SAMPLES = 1028  # as the reservoir of Kafka's histograms


class FlushTimes:
    """The number of flushes, their sum, and the seconds of the newest ones."""

    def __init__(self) -> None:
        self.count = 0
        self.total_seconds = 0.0
        self.newest_seconds: deque[float] = deque(maxlen=SAMPLES)
        self._lock = Lock()

    def add(self, seconds: float) -> None:
        with self._lock:
            self.count += 1
            self.total_seconds += seconds
            self.newest_seconds.append(seconds)
