"""Groups: their members, what these read, how far behind they are; and the reset of their offsets, planned first."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.group_offsets import GroupDescription, Move, Scope, whole_lag
from minibroker.admin.groups import SHARE, Group
from minibroker.admin.positions import parse_position
from minibroker.any_cluster import group_admin
from minibroker.any_cluster.cluster import both
from minibroker.any_cluster.described_groups import described, groups_listed
from minibroker.client.topic_partition import TopicPartition
from minibroker.console.answers import Refused, advice_of_a_page, change, get, in_path, outcome_of
from minibroker.console.console import Console
from minibroker.console.event_stream import StreamEvent
from minibroker.console.fetching import first_timestamps
from minibroker.console.group_offsets import (
    Fetching,
    GroupLag,
    Listed,
    all_lags,
    fetching_by,
    lags_of,
    with_fetches,
)
from minibroker.console.members import member_row
from minibroker.console.metadata import Snapshot
from minibroker.console.pages import Wanted, cut, matching, wanted_page
from minibroker.console.topics import existing_topic, names_in, text_of
from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.fetching_groups import ONLY_FETCHES, FetchedPartition, only_fetching
from minibroker.shared_records import SharedRecords, shared_records

Place = tuple[TopicPartition, int]  # and an offset

DESCRIBED = ("state", "members", "lag", "slope")
SORTED_GROUPS_MAX = 300  # that are described to sort by what only their description has
TIMED_MAX = 20  # partitions whose oldest unread message is looked at, for one page
REMEMBERED = 5_000  # places
TOPICS_MAX = 100  # whose lag a page shows
TOPIC_NAME_MAX = 249
RECORDS_MAX = 1_000  # runs of records in flight, on a page


def routes(console: Console) -> list[BaseRoute]:
    groups = Groups(console)
    return [
        get("/api/groups", groups.listed),
        get("/api/groups/{group}", groups.one),
        get("/api/topics/{topic}/groups", groups.of_topic),
        get("/api/lag", groups.worst),
        console.streams.route("/api/stream/lag", groups.stream),
        change("POST", "/api/groups/{group}/reset", groups.reset),
        change("DELETE", "/api/groups/{group}", groups.delete),
    ]


class Groups:
    """The handlers of groups."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._watch = console.lag_watch
        self._first_times = FirstTimes()

    async def listed(self, request: Request) -> Any:
        wanted = wanted_page(request, default="group", columns=("group", *DESCRIBED))
        every, total, rows = await self._console.kafka.ask(lambda client: self._page(client, wanted))
        return {"total": total, "all": every, "from": wanted.start, "rows": rows}

    def _page(self, client: Any, wanted: Wanted) -> tuple[int, int, list[dict[str, Any]]]:
        fetching, listed = both(lambda: fetching_by(client, self._console.control), lambda: groups_listed(client))
        every = sorted({*listed, *fetching})
        names = matching(every, wanted.filter)
        if wanted.sort == "group":
            shown = cut(names, wanted, lambda name: name)
            return len(every), len(names), self._described(client, shown, fetching, listed)
        if len(names) > SORTED_GROUPS_MAX:
            raise Refused(
                409,
                f"sorting by {wanted.sort} would describe {len(names):,} groups; filter to {SORTED_GROUPS_MAX} or "
                "fewer first, or sort by group",
            )
        return (
            len(every),
            len(names),
            cut(self._described(client, names, fetching, listed), wanted, lambda row: row[wanted.sort]),
        )

    def _described(self, client: Any, names: Sequence[str], fetching: Fetching, listed: Listed) -> list[dict[str, Any]]:
        found = described(client, names, listed)
        for name in names:
            if not (name in found and found[name].exists) and name in fetching:
                found[name] = Group(name, ONLY_FETCHES, "", "", [], type="")
        names = [name for name in names if name in found]
        lags = lags_of(client, [name for name in names if found[name].error is None], listed)
        lags = with_fetches(lags, {name: rows for name, rows in fetching.items() if name in lags})
        rows = [self._row(found[name], lags.get(name)) for name in names]
        furthest = {
            each.group: max(each.partitions, key=each.partitions.__getitem__) for each in lags.values() if each.lag
        }
        behind = [(at, lags[group].committed[at]) for group, at in furthest.items()]
        seconds = self._first_times.seconds(client, self._console.metadata.last, behind)
        timed = {group: seconds[place] for group, place in zip(furthest, behind, strict=True) if place in seconds}
        timed |= {each.group: 0.0 for each in lags.values() if each.lag == 0}
        return [row | ({"seconds": timed[row["group"]]} if row["group"] in timed else {}) for row in rows]

    def _row(self, group: Group, lag: GroupLag | None) -> dict[str, Any]:
        name = group.group
        if lag is not None and lag.lag is not None:
            self._console.lags.record(name, lag.lag)
        return {
            "group": name,
            "state": group.state,
            "type": group.type,
            "protocol_type": group.protocol_type,
            "members": None if group.members is None else len(group.members),
            "topics": [] if lag is None else sorted({at.topic for at in lag.committed}),
            "lag": None if lag is None else lag.lag,
            "slope": self._console.lags.slope(name),
            "points": self._console.lags.of(name),
            "failure": group.error,
        }

    async def one(self, request: Request) -> Any:
        group = in_path(request, "group")

        def describe(
            client: Any,
        ) -> tuple[GroupDescription | None, Sequence[FetchedPartition], Sequence[SharedRecords] | None]:
            fetching, found = both(
                lambda: fetching_by(client, self._console.control), lambda: group_admin.description_of(client, group)
            )
            fetched = fetching.get(group, ())
            return (
                found or (only_fetching(group) if fetched else None),
                fetched,
                in_flight(found, self._console.control),
            )

        description, fetched, records = await self._console.kafka.ask(describe)
        if description is None:
            raise Refused(404, f"group {group} does not exist; the page Groups lists those that do")
        found = description.group
        read = [(each.topic, each.partition, each.committed, each.lag) for each in description.partitions]
        read += [(each.topic, each.partition, each.fetched, each.lag) for each in fetched]
        seconds = await self._seconds(read)
        lag = whole_lag([lag for *_, lag in read])
        if lag is not None:
            self._console.lags.record(group, lag)
        return {
            "group": group,
            "state": found.state,
            "type": found.type,
            "protocol_type": found.protocol_type,
            "protocol": found.protocol,
            "epoch": found.epoch,
            "assignment_epoch": found.assignment_epoch,
            "lag": lag,
            "slope": self._console.lags.slope(group),
            "points": self._console.lags.of(group),
            "seconds": max((each for each in seconds.values() if each is not None), default=0.0 if lag == 0 else None),
            "members": None
            if found.members is None
            else [member_row(member, found.protocol_type) for member in found.members],
            "partitions": [
                each._asdict() | timed_row(seconds, each.topic, each.partition, each.committed)
                for each in description.partitions
            ],
            "fetched": [
                each._asdict() | timed_row(seconds, each.topic, each.partition, each.fetched) for each in fetched
            ],
            "records": None if records is None else [each._asdict() for each in records[:RECORDS_MAX]],
            "records_more": 0 if records is None else max(0, len(records) - RECORDS_MAX),
        }

    async def _seconds(self, read: Sequence[tuple[str, int, int | None, int | None]]) -> dict[Place, float | None]:
        """For how long the oldest unread message of each partition has waited, the furthest behind first.

        `read` has topic, partition, offset and lag.
        """
        behind = [
            (topic_partition(topic, partition), offset)
            for topic, partition, offset, lag in sorted(read, key=lambda each: -(each[-1] or 0))
            if lag and offset is not None
        ]
        snapshot = await self._console.metadata.snapshot()
        if any(at.topic not in snapshot.topics for at, _ in behind):
            snapshot = await self._console.metadata.snapshot(fresh=True)
        if not behind:
            return {}
        return await self._console.kafka.ask(lambda client: self._first_times.seconds(client, snapshot, behind))

    async def of_topic(self, request: Request) -> Any:
        """The groups that have committed offsets of a topic, or only fetch it."""
        topic = await existing_topic(self._console, in_path(request, "topic"))
        control = self._console.control
        every, lags = await self._console.kafka.ask(lambda client: all_lags(client, control))
        rows = []
        for each in lags.values():
            here = {at: lag for at, lag in each.partitions.items() if at.topic == topic.name}
            if any(at.topic == topic.name for at in each.committed):
                lag, partitions = sum(here.values()), len(here)
                row = {"group": each.group, "lag": lag, "partitions": partitions, "only_fetches": each.only_fetches}
                rows.append(row)
        return {"rows": rows, "looked_through": len(lags), "all": every}

    async def worst(self, request: Request) -> Any:
        """The groups that are furthest behind, and the lag by group of the topics on a page."""
        return self._watch.shown(await self._watch.fresh(), topics_in(request))

    def stream(self, request: Request, last_id: int | None) -> AsyncGenerator[StreamEvent, None]:
        """The same, each time that it has been read."""
        return self._watch.events(topics_in(request))

    async def reset(self, request: Request, body: dict[str, Any]) -> Any:
        """The plan of a reset; `execute` carries it out."""
        group = in_path(request, "group")
        position = parse_position(text_of(body, "to"))
        scope = Scope(tuple(names_in(body, "topics")))
        executes = body.get("execute") is True

        def act(client: Any) -> list[Move]:
            moves = group_admin.plan_reset(client, group, scope, position)
            return group_admin.reset(client, group, moves) if executes else moves

        moves = await (self._console.kafka.act(act) if executes else self._console.kafka.ask(act))
        shown = [each._replace(error=each.error and advice_of_a_page(each.error)) for each in moves]
        return {"executed": executes, "moves": [each._asdict() for each in shown]}

    async def delete(self, request: Request, body: dict[str, Any]) -> Any:
        group = in_path(request, "group")
        return outcome_of(
            await self._console.kafka.act(lambda client: group_admin.delete(client, [group], may_be_absent=False)),
            "group",
        )


def in_flight(found: GroupDescription | None, control: Control | None) -> Sequence[SharedRecords] | None:
    """The records of a share group in flight; None of another group, and where no broker tells."""
    if found is None or found.group.type != SHARE or control is None:
        return None
    try:
        return shared_records(control, found.group.group)
    except BrokerError:  # as in `fetching_by`
        return None


def topics_in(request: Request) -> set[str]:
    """Raises Refused."""
    names = request.query_params.getlist("topic")
    if len(names) > TOPICS_MAX or any(len(name) > TOPIC_NAME_MAX for name in names):
        raise Refused(400, f"a page names {TOPICS_MAX} topics at most; leave some out")
    return set(names)


class FirstTimes:
    """The time of the message at each place where a group reads on, asked for once; of a few for each page."""

    def __init__(self) -> None:
        self._known: OrderedDict[Place, int | None] = OrderedDict()
        self._lock = Lock()

    def seconds(self, client: Any, snapshot: Snapshot | None, places: Sequence[Place]) -> dict[Place, float | None]:
        """For how long each has waited, as far as its batch's header tells, else None; without those not yet asked."""
        with self._lock:
            unasked = [each for each in places if each not in self._known]
            untold = [each for each in places if each in self._known and self._known[each] is None]
        asked = (unasked + untold)[:TIMED_MAX]
        stamps = {} if snapshot is None else first_timestamps(client, snapshot.topics, asked)
        now_ms = time.time() * 1000
        with self._lock:
            for place in asked:
                stamp = stamps.get(place, -1)
                self._known[place] = stamp if stamp >= 0 else None
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            found = {place: self._known[place] for place in places if place in self._known}
        return {at: None if stamp is None else max(0.0, (now_ms - stamp) / 1000) for at, stamp in found.items()}


def timed_row(
    seconds: Mapping[Place, float | None], topic: str, partition: int, offset: int | None
) -> dict[str, float | None]:
    """The column `seconds` of a partition, which a row lacks until it was asked for."""
    place = topic_partition(topic, partition), offset
    return {"seconds": seconds[place]} if place in seconds else {}  # type: ignore[index]


def topic_partition(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, partition)
