"""The list of topics, one topic with its partitions and settings, and what changes them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import trio
from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.configs import Subject, meaning_of
from minibroker.admin.outcomes import Outcome
from minibroker.admin.positions import parse_position
from minibroker.admin.topics import Deletion, internal_refusal, refusal
from minibroker.any_cluster import config_admin, topic_admin
from minibroker.any_cluster.shortfalls import lacks, noting
from minibroker.client.errors import DENIALS
from minibroker.console.answers import NUMBER_MAX, TEXT_MAX, Refused, change, get, in_path, in_query, outcome_of
from minibroker.console.console import Console
from minibroker.console.figures import figures_of, led_partitions
from minibroker.console.metadata import PartitionRow, Snapshot, TopicRow, offline, under_replicated
from minibroker.console.pages import Wanted, cut, matching, wanted_page
from minibroker.errors import BrokerError, CommandFailed

OF_METADATA = ("name", "partitions", "replication")
OF_FIGURES = ("messages", "bytes", "rate")
SORTED_PARTITIONS_MAX = 50_000  # whose ends are asked to sort by a figure
REST_FACTOR = 20
PARTITIONS_MAX = 100_000
SETTINGS_MAX = 100


def routes(console: Console) -> list[BaseRoute]:
    topics = Topics(console)
    return [
        get("/api/topics", topics.listed),
        get("/api/topics/{topic}", topics.one),
        get("/api/topics/{topic}/settings", topics.settings),
        change("POST", "/api/topics", topics.create),
        change("POST", "/api/topics/{topic}/partitions", topics.grow),
        change("POST", "/api/topics/{topic}/settings", topics.change_settings),
        change("POST", "/api/topics/{topic}/delete-records", topics.delete_records),
        change("DELETE", "/api/topics/{topic}", topics.delete),
    ]


class Topics:
    """The handlers of topics."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._asking = trio.Lock()
        self._asked_names: list[str] = []
        self._many: dict[str, dict[str, Any]] = {}
        self._many_lack: list[str] = []
        self._good_until = -math.inf

    async def listed(self, request: Request) -> Any:
        """`figures=1` adds what is asked for each partition; `kept=1` takes topics as they were up to a minute ago.

        The page begins with kept ones, and asks for fresh ones and for figures at once.
        """
        wanted = wanted_page(request, default="name", columns=OF_METADATA + OF_FIGURES)
        metadata = self._console.metadata
        is_fresh = "fresh" in request.query_params
        snapshot = await (metadata.kept() if in_query(request, "kept") == "1" else metadata.snapshot(fresh=is_fresh))
        with_internal = in_query(request, "internal") == "1"
        shown = [name for name, topic in snapshot.topics.items() if with_internal or not topic.is_internal]
        topics = [snapshot.topics[name] for name in matching(shown, wanted.filter)]
        figures: dict[str, dict[str, Any]] = {}
        if wanted.sort in OF_FIGURES:
            check_sortable(topics, wanted)
            figures = await self._figures_of_many(topics)
            page = cut(topics, wanted, lambda topic: figures[topic.name][wanted.sort])
        else:
            page = cut(topics, wanted, key_of(wanted.sort))
            if in_query(request, "figures") == "1":
                figures = await self._figures(page)
        rows = [topic_summary(topic) | figures.get(topic.name, {}) for topic in page]
        totals = total_of(figures.values()) if wanted.sort in OF_FIGURES else None
        return {"total": len(topics), "all": len(shown), "from": wanted.start, "totals": totals, "rows": rows}

    async def _figures_of_many(self, topics: Sequence[TopicRow]) -> dict[str, dict[str, Any]]:
        """As `_figures`, from what was asked for before: the cluster rests for many times as long as that took."""
        names = [each.name for each in topics]
        async with self._asking:
            begun = time.monotonic()
            if names != self._asked_names or begun > self._good_until:
                with noting() as lines:
                    self._many = await self._figures(topics)
                self._many_lack = list(lines)
                self._asked_names = names
                ended = time.monotonic()
                self._good_until = ended + (ended - begun) * REST_FACTOR
            for line in self._many_lack:
                lacks(line)
            return self._many

    async def _figures(self, topics: Sequence[TopicRow]) -> dict[str, dict[str, Any]]:
        """Messages, bytes and rate of each topic; None where no broker answers."""
        partitions = led_partitions(topics)
        found_figures = await self._console.kafka.ask(lambda client: figures_of(client, partitions))
        starts, ends, sizes = found_figures.starts, found_figures.ends, found_figures.bytes
        now = time.monotonic()
        found: dict[str, dict[str, Any]] = {each.name: dict.fromkeys(OF_FIGURES) for each in topics}
        for topic in topics:
            here = [at for at in led_partitions([topic]) if at in ends and at in starts]
            if here or not topic.partitions:
                end = sum(ends[at] for at in here)
                found[topic.name] |= {
                    "messages": end - sum(starts[at] for at in here),
                    "rate": self._console.growth.rate(topic.name, end, now),
                }
            if sizes:
                found[topic.name]["bytes"] = sum(sizes.get(at, 0) for at in led_partitions([topic]))
        return found

    async def one(self, request: Request) -> Any:
        """The topic, and a page of its partitions."""
        topic = await self.topic_in(request)
        wanted = wanted_page(request, default="partition", columns=("partition", "leader"))
        page = cut(topic.partitions, wanted, lambda each: getattr(each, wanted.sort))
        cut_topic = topic._replace(partitions=tuple(page))
        partitions = led_partitions([cut_topic])
        found = await self._console.kafka.ask(lambda client: figures_of(client, partitions, with_stable=True))
        starts, stables, ends, bytes_by_partition = (
            {at.partition: value for at, value in each.items()}
            for each in (found.starts, found.stables, found.ends, found.bytes)
        )
        logs = await self._logs(topic.name, page)
        growth = self._console.growth
        return topic_summary(topic) | {
            "total": len(topic.partitions),
            "from": wanted.start,
            "rows": [
                each._asdict()
                | {
                    "start": starts.get(each.partition),
                    "stable": stables.get(each.partition),
                    "end": ends.get(each.partition),
                    "bytes": bytes_by_partition.get(each.partition),
                    "log_end": None if each.partition not in logs else logs[each.partition]["log_end_offset"],
                    "segments": None if each.partition not in logs else logs[each.partition]["segments"],
                    "rate": growth.rate(f"{topic.name}/{each.partition}", ends[each.partition])
                    if each.partition in ends
                    else None,
                }
                for each in page
            ],
        }

    async def _logs(self, topic: str, page: Sequence[PartitionRow]) -> dict[int, Any]:
        """The facts that only the broker itself knows of its logs; none without a control socket."""
        if self._console.control is None or not page:
            return {}
        try:
            found = await self._console.call("inside.logs", topic=topic, partitions=[each.partition for each in page])
        except BrokerError:  # an earlier minibroker, or one that has just ended: the rest of the page is still known
            return {}
        return {row["partition"]: row for row in found["rows"]}

    async def topic_in(self, request: Request) -> TopicRow:
        """The topic in the path. Raises Refused for one that does not exist."""
        return await existing_topic(self._console, in_path(request, "topic"))

    async def settings(self, request: Request) -> Any:
        topic = await self.topic_in(request)
        return await settings_of(self._console, "topic", topic.name)

    async def create(self, request: Request, body: dict[str, Any]) -> Any:
        name = text_of(body, "name")
        outcomes = await self._console.kafka.act(
            lambda client: topic_admin.create(
                client,
                [name],
                partitions=number_in(body, "partitions", 1, most=PARTITIONS_MAX),
                replication_factor=number_in(body, "replication", 1, most=1_000),
                configs=settings_in(body, "settings"),
                may_exist=False,
            )
        )
        return self._changed(outcomes)

    async def grow(self, request: Request, body: dict[str, Any]) -> Any:
        topic = await self.topic_in(request)
        refuse_internal(topic, "`minibroker topics grow --internal` adds partitions all the same")
        partitions = number_in(body, "partitions", 0, most=PARTITIONS_MAX)
        return self._changed(
            await self._console.kafka.act(
                lambda client: topic_admin.grow(client, [topic.name], partitions=partitions, with_internal=True)
            )
        )

    async def delete_records(self, request: Request, body: dict[str, Any]) -> Any:
        """The plan of a deletion up to the position `to`; `before` has the offset of each partition, and deletes."""
        topic = await self.topic_in(request)
        if "before" in body:
            offsets = offsets_in(body, "before", topic)
            begins = await self._console.kafka.act(
                lambda client: topic_admin.delete_before(client, topic.name, offsets)
            )
            return {"executed": True, "rows": [{"partition": at, "earliest": begins[at]} for at in sorted(begins)]}
        position = parse_position(text_of(body, "to"))
        numbers = [] if body.get("partition") is None else [number_in(body, "partition", 0, most=PARTITIONS_MAX)]

        def plan(client: Any) -> Sequence[Deletion]:
            return topic_admin.plan_deletion(client, topic.name, numbers, position)

        return {"executed": False, "rows": [each._asdict() for each in await self._console.kafka.ask(plan)]}

    async def delete(self, request: Request, body: dict[str, Any]) -> Any:
        topic = await self.topic_in(request)
        refuse_internal(topic, "`minibroker topics delete --internal` deletes it all the same")
        return self._changed(
            await self._console.kafka.act(
                lambda client: topic_admin.delete(client, [topic.name], may_be_absent=False, with_internal=True)
            )
        )

    async def change_settings(self, request: Request, body: dict[str, Any]) -> Any:
        topic = await self.topic_in(request)
        return await change_settings_of(self._console, "topic", topic.name, body)

    def _changed(self, outcomes: Sequence[Outcome]) -> Any:
        """Raises Refused with the broker's refusal."""
        self._console.metadata.forget()
        return outcome_of(outcomes)


def total_of(figures: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum of each figure; None if it is known of no topic."""
    rows = list(figures)
    known = {name: [row[name] for row in rows if row[name] is not None] for name in OF_FIGURES}
    return {name: sum(values) if values else None for name, values in known.items()}


def key_of(column: str) -> Any:
    return {
        "name": lambda topic: topic.name,
        "partitions": lambda topic: len(topic.partitions),
        "replication": lambda topic: topic.replication_factor,
    }[column]


def check_sortable(topics: Sequence[TopicRow], wanted: Wanted) -> None:
    """Raises Refused for more partitions than one page may ask about."""
    partitions = sum(len(topic.partitions) for topic in topics)
    if partitions > SORTED_PARTITIONS_MAX:
        raise Refused(
            409,
            f"sorting by {wanted.sort} would ask for the ends of {partitions:,} partitions; filter to "
            f"{SORTED_PARTITIONS_MAX:,} or fewer first, or sort by name",
        )


def topic_summary(topic: TopicRow) -> dict[str, Any]:
    return {
        "name": topic.name,
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replication": topic.replication_factor,
        "offline": offline(topic.partitions),
        "under_replicated": under_replicated(topic.partitions),
    }


async def settings_of(console: Console, kind: Literal["topic", "broker"], name: str) -> Any:
    """The settings of a topic or a broker, each with what it sets where that is known."""
    configs = await console.kafka.ask(lambda client: config_admin.describe(client, Subject(kind, name)))
    return {
        "rows": [
            {**config._asdict(), "is_default": config.is_default, "about": meaning_of(kind, config.name)}
            for config in configs
        ]
    }


async def change_settings_of(
    console: Console, kind: Literal["topic", "broker"], name: str, body: dict[str, Any]
) -> Any:
    """`set` has values by name, `unset` the names that go back to their defaults."""
    values, names = settings_in(body, "set"), names_in(body, "unset")
    subject = Subject(kind, name)

    def act(client: Any) -> None:
        if values:
            config_admin.set_values(client, subject, values)
        if names:
            config_admin.unset(client, subject, names)

    await console.kafka.act(act)
    return {}


async def existing_topic(console: Console, name: str) -> TopicRow:
    """Raises Refused for a topic that does not exist, also after asking again, CommandFailed for one that is denied."""
    snapshot: Snapshot = await console.metadata.snapshot()
    if name not in snapshot.topics:
        snapshot = await console.metadata.snapshot(fresh=True)
    if name not in snapshot.topics:
        await console.kafka.ask(lambda client: check_allowed(client, name))
        raise Refused(404, f"topic {name} does not exist; the page Topics lists those that do")
    return snapshot.topics[name]


def check_allowed(client: Any, name: str) -> None:
    """Raises CommandFailed for a topic that this user may not see."""
    (row,) = client.metadata([name]).topics
    if row.error_code in DENIALS:
        raise CommandFailed(refusal(name, row.error_code))


def refuse_internal(topic: TopicRow, advice: str) -> None:
    """Raises Refused for an internal topic."""
    if topic.is_internal:
        raise Refused(409, internal_refusal(topic.name, advice))


def text_of(body: dict[str, Any], name: str, *, least: int = 1, most: int = TEXT_MAX) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise Refused(400, f"{name} is not a text of {least} to {most:,} characters; correct it")
    return value


def number_in(body: dict[str, Any], name: str, default: int, *, most: int) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Refused(400, f"{name} is not a number from 0 to {most:,}; correct it")
    return value


def offsets_in(body: dict[str, Any], name: str, topic: TopicRow) -> dict[int, int]:
    """An offset of each partition, by its number as text. Raises Refused."""
    value = body.get(name)
    known = {str(each.partition): each.partition for each in topic.partitions}
    if not isinstance(value, dict) or not value or not value.keys() <= known.keys():
        raise Refused(400, f'{name} is not an object of offsets by partition, such as {{"0": 42}}; correct it')
    return {known[at]: number_in(value, at, 0, most=NUMBER_MAX) for at in value}


def settings_in(body: dict[str, Any], name: str) -> dict[str, str]:
    value = body.get(name, {})
    is_right = isinstance(value, dict) and len(value) <= SETTINGS_MAX
    if not is_right or not all(isinstance(each, str) for each in value.values()):
        raise Refused(400, f'{name} is not an object of texts, such as {{"retention.ms": "60000"}}; correct it')
    return dict(value)


def names_in(body: dict[str, Any], name: str) -> list[str]:
    value = body.get(name, [])
    if not isinstance(value, list) or len(value) > SETTINGS_MAX or not all(isinstance(each, str) for each in value):
        raise Refused(400, f'{name} is not a list of texts, such as ["retention.ms"]; correct it')
    return value
