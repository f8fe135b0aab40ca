"""Groups: their members, what these read, how far behind they are; and the reset of their offsets, planned first."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.any_cluster.positions import parse_position
from minibroker.console.answers import Refused, change, get, in_path, outcome_of
from minibroker.console.console import Console
from minibroker.console.event_stream import Event
from minibroker.console.fetching import first_timestamps
from minibroker.console.group_offsets import GroupLag, all_lags, fetching_by, group_ids, lags_of, with_fetches
from minibroker.console.members import member_row
from minibroker.console.metadata import Snapshot
from minibroker.console.pages import Wanted, cut, matching, wanted_page
from minibroker.console.topics import existing_topic, names_in, text_of

if TYPE_CHECKING:
    from minibroker.any_cluster.cluster import TopicPartition
    from minibroker.any_cluster.described_groups import Group
    from minibroker.any_cluster.group_admin import GroupDescription, Move
    from minibroker.console.group_offsets import Fetching
    from minibroker.fetching_groups import FetchedPartition

DESCRIBED = ("state", "members", "lag", "slope")
SORTED_GROUPS_MAX = 300  # that are described to sort by what only their description has
TIMED_MAX = 20  # partitions whose oldest unread message is looked at, for one page
TOPICS_MAX = 100  # whose lag a page shows
TOPIC_NAME_MAX = 249


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

    async def listed(self, request: Request) -> Any:
        wanted = wanted_page(request, default="group", columns=("group", *DESCRIBED))
        every, total, rows = await self._console.kafka.ask(lambda client: self._page(client, wanted))
        return {"total": total, "all": every, "from": wanted.start, "rows": rows}

    def _page(self, client: Any, wanted: Wanted) -> tuple[int, int, list[dict[str, Any]]]:
        fetching = fetching_by(client, self._console.control)
        every = sorted({*group_ids(client), *fetching})
        names = matching(every, wanted.filter)
        if wanted.sort == "group":
            shown = cut(names, wanted, lambda name: name)
            return len(every), len(names), self._described(client, shown, fetching)
        if len(names) > SORTED_GROUPS_MAX:
            raise Refused(
                409,
                f"sorting by {wanted.sort} would describe {len(names):,} groups; filter to {SORTED_GROUPS_MAX} or "
                "fewer first, or sort by group",
            )
        return (
            len(every),
            len(names),
            cut(self._described(client, names, fetching), wanted, lambda row: row[wanted.sort]),
        )

    def _described(self, client: Any, names: Sequence[str], fetching: Fetching) -> list[dict[str, Any]]:
        from minibroker.any_cluster.described_groups import Group, described
        from minibroker.fetching_groups import ONLY_FETCHES

        found = described(client, names)
        for name in names:
            if not found[name].exists and name in fetching:
                found[name] = Group(name, ONLY_FETCHES, "", "", [], type="")
        lags = lags_of(client, [name for name in names if found[name].error is None])
        lags = with_fetches(lags, {name: rows for name, rows in fetching.items() if name in lags})
        rows = [self._row(found[name], lags.get(name)) for name in names]
        seconds = behind_seconds(client, self._snapshot(), lags)
        return [row | {"seconds": seconds.get(row["group"])} for row in rows]

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

    def _snapshot(self) -> Snapshot | None:
        return self._console.metadata.last

    async def one(self, request: Request) -> Any:
        from minibroker.any_cluster.described_groups import described
        from minibroker.any_cluster.group_admin import GroupAdmin, whole_lag
        from minibroker.fetching_groups import only_fetching

        group = in_path(request, "group")

        def describe(client: Any) -> tuple[GroupDescription | None, Sequence[FetchedPartition]]:
            fetched = fetching_by(client, self._console.control).get(group, ())
            if described(client, [group])[group].exists:
                return GroupAdmin(client).describe(group), fetched
            return only_fetching(group) if fetched else None, fetched

        description, fetched = await self._console.kafka.ask(describe)
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
            "seconds": max(seconds.values(), default=0.0 if lag == 0 else None),
            "members": None
            if found.members is None
            else [member_row(member, found.protocol_type) for member in found.members],
            "partitions": [
                {**each._asdict(), "seconds": seconds.get(topic_partition(each.topic, each.partition))}
                for each in description.partitions
            ],
            "fetched": [
                {**each._asdict(), "seconds": seconds.get(topic_partition(each.topic, each.partition))}
                for each in fetched
            ],
        }

    async def _seconds(self, read: Sequence[tuple[str, int, int | None, int | None]]) -> dict[TopicPartition, float]:
        """For how long the oldest unread message of each partition has waited, the furthest behind first.

        `read` has topic, partition, offset and lag.
        """
        behind = {
            topic_partition(topic, partition): offset
            for topic, partition, offset, lag in sorted(read, key=lambda each: -(each[-1] or 0))
            if lag and offset is not None
        }
        snapshot = await self._console.metadata.snapshot()
        if any(at.topic not in snapshot.topics for at in behind):
            snapshot = await self._console.metadata.snapshot(fresh=True)
        return await self._console.kafka.ask(lambda client: seconds_of(client, snapshot, behind)) if behind else {}

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
        """The groups that are furthest behind, and the lag by topic of those that a page of topics shows."""
        return self._watch.shown(await self._watch.fresh(), topics_in(request))

    def stream(self, request: Request, last_id: int | None) -> AsyncGenerator[Event, None]:
        """The same, each time that it has been read."""
        return self._watch.events(topics_in(request))

    async def reset(self, request: Request, body: dict[str, Any]) -> Any:
        """The plan of a reset; `execute` carries it out."""
        from minibroker.any_cluster.group_admin import GroupAdmin, Scope

        group = in_path(request, "group")
        position = parse_position(text_of(body, "to"))
        scope = Scope(tuple(names_in(body, "topics")))
        executes = body.get("execute") is True

        def act(client: Any) -> list[Move]:
            admin = GroupAdmin(client)
            moves = admin.plan_reset(group, scope, position)
            return admin.reset(group, moves) if executes else moves

        moves = await (self._console.kafka.act(act) if executes else self._console.kafka.ask(act))
        return {"executed": executes, "moves": [each._asdict() for each in moves]}

    async def delete(self, request: Request, body: dict[str, Any]) -> Any:
        from minibroker.any_cluster.group_admin import GroupAdmin

        group = in_path(request, "group")
        return outcome_of(
            await self._console.kafka.act(lambda client: GroupAdmin(client).delete([group], may_be_absent=False)),
            "group",
        )


def topics_in(request: Request) -> set[str]:
    """Raises Refused."""
    names = request.query_params.getlist("topic")
    if len(names) > TOPICS_MAX or any(len(name) > TOPIC_NAME_MAX for name in names):
        raise Refused(400, f"a page names {TOPICS_MAX} topics at most; leave some out")
    return set(names)


def behind_seconds(client: Any, snapshot: Snapshot | None, lags: Mapping[str, GroupLag]) -> dict[str, float]:
    """For how long the oldest unread message has waited, of the partition in which each group is furthest behind."""
    furthest = {each.group: max(each.partitions, key=each.partitions.__getitem__) for each in lags.values() if each.lag}
    asked = list(furthest.items())[:TIMED_MAX]
    behind = {group: seconds_of(client, snapshot, {at: lags[group].committed[at]}).get(at) for group, at in asked}
    known = {group: seconds for group, seconds in behind.items() if seconds is not None}
    return known | {each.group: 0.0 for each in lags.values() if each.lag == 0}


def seconds_of(
    client: Any, snapshot: Snapshot | None, behind: Mapping[TopicPartition, int]
) -> dict[TopicPartition, float]:
    """For how long the message at each offset has waited, as far as its batch's header tells."""
    if snapshot is None or not behind:
        return {}
    asked = dict(list(behind.items())[:TIMED_MAX])
    now_ms = time.time() * 1000
    stamps = first_timestamps(client, snapshot.topics, asked)
    return {at: max(0.0, (now_ms - stamp) / 1000) for at, stamp in stamps.items() if stamp >= 0}


def topic_partition(topic: str, partition: int) -> TopicPartition:
    from minibroker.any_cluster.cluster import TopicPartition

    return TopicPartition(topic, partition)
