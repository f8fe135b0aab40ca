"""The committed offsets and the lag of the groups that a page shows, asked for as it shows them.

With the control socket of a minibroker, also of those that only fetch: then the last fetch is in place of a commit.

The last ten minutes of each group's lag are remembered from these answers, and from those that `lag_watch` asks for
while no page is open.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from minibroker.admin.group_offsets import lag_of
from minibroker.admin.groups import SHARE, type_of
from minibroker.any_cluster.cluster import both, lacks_answer
from minibroker.any_cluster.described_groups import groups_listed
from minibroker.any_cluster.group_admin import committed_of
from minibroker.client.errors import NoAnswer
from minibroker.client.topic_partition import TopicPartition
from minibroker.console.figures import Growth, offsets_of
from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.fetching_groups import FetchedPartition, fetching_groups
from minibroker.protocol.message_values import LATEST_TIMESTAMP

Fetching = Mapping[str, Sequence[FetchedPartition]]
Listed = Mapping[str, Any]  # the rows of ListGroups by group

HISTORY_SECONDS = 600
POINT_SECONDS = 2.0
GROUPS_REMEMBERED = 500
LOOKED_THROUGH_MAX = 300  # groups, for a topic or for the overview
PARTITIONS_MAX = 2_000  # whose ends are asked for one page


class GroupLag(NamedTuple):
    """`partitions` has the lag of each partition with a commit, or a fetch; `lag` is None where no end is known.

    So it is of a share group without a start.
    """

    group: str
    lag: int | None
    partitions: dict[TopicPartition, int]
    committed: dict[TopicPartition, int]
    is_partial: bool  # it has more partitions than were asked
    only_fetches: bool = False


class Point(NamedTuple):
    at_ms: int
    lag: int


class LagHistory:
    """The lag of groups over the last ten minutes."""

    def __init__(self) -> None:
        self._points: OrderedDict[str, deque[Point]] = OrderedDict()
        self._growth = Growth()

    def record(self, group: str, lag: int, now_ms: int | None = None) -> None:
        now_ms = round(time.time() * 1000) if now_ms is None else now_ms
        points = self._points.setdefault(group, deque())
        self._points.move_to_end(group)
        if len(self._points) > GROUPS_REMEMBERED:
            self._points.popitem(last=False)
        if not points or now_ms - points[-1].at_ms >= POINT_SECONDS * 1000:
            points.append(Point(now_ms, lag))
        while points and points[0].at_ms < now_ms - HISTORY_SECONDS * 1000:
            points.popleft()

    def of(self, group: str) -> list[Point]:
        return list(self._points.get(group, ()))

    def slope(self, group: str) -> float | None:
        """Records a second by which the lag has grown in the last half minute; negative if it shrinks."""
        points = self.of(group)
        if len(points) < 2:
            return None
        recent = [each for each in points if each.at_ms >= points[-1].at_ms - 30_000]
        span_ms = recent[-1].at_ms - recent[0].at_ms
        return None if span_ms <= 0 else (recent[-1].lag - recent[0].lag) * 1000 / span_ms


def lags_of(client: Any, groups: Sequence[str], listed: Listed) -> dict[str, GroupLag]:
    """The lag of each of these groups whose coordinator answers; of the first PARTITIONS_MAX partitions of them all."""
    committed: dict[str, dict[TopicPartition, int]] = {}
    try:
        committed = committed_of(client, groups)
    except NoAnswer as error:
        lacks_answer(error, "what it coordinates")
    groups = [each for each in groups if each in committed]
    asked = list(dict.fromkeys(at for offsets in committed.values() for at in offsets))[:PARTITIONS_MAX]
    ends = offsets_of(client, asked, LATEST_TIMESTAMP)
    found = {group: group_lag(group, committed[group], ends, set(asked)) for group in groups}
    # Before it has a start, a share group will begin anywhere; a consumer that has committed nothing lags by nothing.
    return found | {
        group: each._replace(lag=None)
        for group, each in found.items()
        if not each.committed and group in listed and type_of(listed[group]) == SHARE
    }


def group_lag(
    group: str,
    committed: dict[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    asked: set[TopicPartition],
) -> GroupLag:
    partitions = {at: lag_of(offset, ends[at]) or 0 for at, offset in committed.items() if at in ends}
    lag = sum(partitions.values()) if partitions or not committed else None
    return GroupLag(group, lag, partitions, committed, is_partial=not committed.keys() <= asked)


def with_fetches(lags: Mapping[str, GroupLag], fetching: Fetching) -> dict[str, GroupLag]:
    """Add what groups fetch without a commit."""
    added = dict(lags)
    for group, rows in fetching.items():
        known = lags.get(group, GroupLag(group, 0, {}, {}, False))
        partitions = known.partitions | {TopicPartition(each.topic, each.partition): each.lag for each in rows}
        at = known.committed | {TopicPartition(each.topic, each.partition): each.fetched for each in rows}
        added[group] = GroupLag(group, sum(partitions.values()), partitions, at, known.is_partial, not known.committed)
    return added


def fetching_by(client: Any, control: Control | None) -> Fetching:
    """Ask for what groups only fetch; without a minibroker's control socket, or if that does not answer, nothing."""
    if control is None:
        return {}
    try:
        return fetching_groups(client, control)
    except BrokerError:  # an earlier minibroker, or one that has just ended: what Kafka's protocol has is still shown
        return {}


def all_lags(client: Any, control: Control | None = None) -> tuple[int, dict[str, GroupLag]]:
    """Return the number of all groups, and the lag of the first ones."""
    fetching, existing = both(lambda: fetching_by(client, control), lambda: groups_listed(client))
    every = sorted({*existing, *fetching})
    looked_through = set(every[:LOOKED_THROUGH_MAX])
    lags = lags_of(client, [each for each in existing if each in looked_through], existing)
    return len(every), with_fetches(lags, {group: rows for group, rows in fetching.items() if group in looked_through})


def by_topic(lags: Mapping[str, GroupLag], topics: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """The groups of each of these topics with their lag there, the furthest behind first."""
    found: dict[str, dict[str, int]] = {}
    for each in lags.values():
        for at, lag in each.partitions.items():
            if at.topic in topics:
                here = found.setdefault(at.topic, {})
                here[each.group] = here.get(each.group, 0) + lag
    return {
        topic: [{"group": group, "lag": lag} for group, lag in sorted(here.items(), key=lambda pair: -pair[1])]
        for topic, here in found.items()
    }
