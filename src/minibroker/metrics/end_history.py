"""The ends of partitions by time: how many seconds a group lags, since the end was where the group is now.

A history has the ends that the scrapes found. Between two of them the end is taken to have moved evenly; before the
first, at the speed since then; without one, it is taken to have been there at the first scrape.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection

from minibroker.metrics.facts import PartitionKey

POINTS_MAX = 60


class EndHistory:
    """The ends of partitions by time, in seconds; `POINTS_MAX` of each."""

    def __init__(self) -> None:
        self._ends: dict[PartitionKey, deque[tuple[int, float]]] = {}

    def note(self, key: PartitionKey, end: int, now: float) -> None:
        """Note an end; of equal ones the last counts, since only then did it begin to move."""
        points = self._ends.setdefault(key, deque(maxlen=POINTS_MAX))
        if points and points[-1][0] > end:
            points.clear()  # another topic of that name
        if len(points) > 1 and points[-1][0] == end == points[-2][0]:
            points.pop()
        points.append((end, now))

    def keep(self, keys: Collection[PartitionKey]) -> None:
        """Forget the others."""
        self._ends = {key: points for key, points in self._ends.items() if key in keys}

    def lag_seconds(self, key: PartitionKey, committed: int, now: float) -> float | None:
        """Return the age of the committed offset; 0 at the end, None if that is not known yet."""
        points = self._ends.get(key)
        if not points:
            return None
        if committed >= points[-1][0]:
            return 0.0
        return max(0.0, now - time_of(points, committed))


def time_of(points: Collection[tuple[int, float]], offset: int) -> float:
    """When the end was at `offset`, which lies below the last one."""
    known = list(points)
    after = bisect_right(known, offset, key=lambda point: point[0])
    if after == 0:
        (first_end, first), (last_end, last) = known[0], known[-1]
        if last_end == first_end:
            return first  # or before
        return first - (first_end - offset) * (last - first) / (last_end - first_end)
    (end, then), (next_end, next_time) = known[after - 1], known[after]
    return then + (offset - end) * (next_time - then) / (next_end - end)
