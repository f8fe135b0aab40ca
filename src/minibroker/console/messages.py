"""Messages of a topic: a page of them from any position, one with all that is known of it, the newest as they come."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from minibroker.admin.partitions import OffsetRange, clamped
from minibroker.admin.positions import Position, parse_position
from minibroker.any_cluster.batch_fetching import Found
from minibroker.any_cluster.cluster import both, connected
from minibroker.any_cluster.record_distances import offsets_at
from minibroker.any_cluster.record_text import ShownRecord, as_json
from minibroker.any_cluster.shortfalls import lacks
from minibroker.client.topic_partition import TopicPartition
from minibroker.console.answers import (
    Refused,
    answered,
    get,
    in_path,
    in_query,
    looked,
    number_in_query,
    number_of,
)
from minibroker.console.console import Console
from minibroker.console.event_stream import STREAMS_MAX, StreamEvent
from minibroker.console.fetching import fetch
from minibroker.console.figures import led_partitions, offsets_of
from minibroker.console.matching_records import Search
from minibroker.console.metadata import TopicRow
from minibroker.console.scanning import Budget, Page, Scan, Span, first_of, read_backwards, read_forward
from minibroker.console.topics import existing_topic
from minibroker.errors import CommandFailed
from minibroker.protocol.facts import batch_row, crc_of
from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from minibroker.protocol.record import Record
from minibroker.protocol.text import counted

MESSAGES = 50
MESSAGES_MAX = 500
PREVIEW_BYTES = 400
SHOWN_BYTES = 64 << 10  # of a value; all of it is a download
ONE_RECORD_BYTES = 16
LINES_BYTES_MAX = 8 << 20  # of values, for one page of lines
TAIL_WAIT_MS = 400
TAIL_PAUSE_SECONDS = 0.1
TAIL_PRINTED_A_SECOND = 50
TAIL_ALIVE_SECONDS = 10.0
CURSOR_PARTS_MAX = 10_000


def routes(console: Console) -> list[BaseRoute]:
    messages = Messages(console)
    return [
        get("/api/topics/{topic}/messages", messages.page),
        get("/api/topics/{topic}/messages/lines", messages.lines),
        get("/api/topics/{topic}/messages/{partition}/{offset}", messages.one),
        Route("/api/topics/{topic}/messages/{partition}/{offset}/{part}", messages.download, methods=["GET"]),
        console.streams.route("/api/stream/topics/{topic}", messages.tail),
    ]


class Query(NamedTuple):
    """A position, a number of messages, and what they must match."""

    at: str
    size: int
    partition: int | None
    committed: bool
    search: Search
    cursor: dict[int, int]


def query_of(request: Request) -> Query:
    """Raises Refused."""
    partition, until = request.query_params.get("partition"), request.query_params.get("until")
    return Query(
        in_query(request, "at", "newest"),
        number_in_query(request, "n", MESSAGES, most=MESSAGES_MAX),
        number_of(partition, "partition", most=2**31 - 1) if partition else None,
        in_query(request, "committed") == "1",
        Search(
            in_query(request, "in", "any"),
            in_query(request, "op", "contains"),
            in_query(request, "text"),
            in_query(request, "header"),
            parse_position(f"@{until}").value if until else None,
        ),
        cursor_of(request.query_params.get("cursor", "")),
    )


def cursor_of(text: str) -> dict[int, int]:
    """Read `0:1200,3:42`: an offset in each of those partitions. Raises Refused."""
    if not text:
        return {}
    parts = text.split(",")
    if len(parts) > CURSOR_PARTS_MAX:
        raise Refused(400, "the cursor names too many partitions; choose a partition")
    pairs = [part.partition(":") for part in parts]
    return {number_of(at, "cursor"): number_of(offset, "cursor") for at, _, offset in pairs}


class Messages:
    """The handlers of messages."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tail_limiter = trio.CapacityLimiter(STREAMS_MAX)

    async def page(self, request: Request) -> Any:
        """`at` is newest, beginning, an offset or @TIME; a cursor goes on in the same direction.

        With `begin` as its cursor the same page is read again, whatever has been written since.
        """
        topic, (spans, positions, page) = await self._read(request, Budget())
        return {
            "rows": await self._rows(page.rows),
            **progress_of(page),
            "begin": cursor_text(positions),
            "start": sum(span.start for span in spans.values()),
            "total": sum(span.end - span.start for span in spans.values()),
            "partitions": len(spans),
            "without_leader": sum(each.leader is None for each in topic.partitions),
        }

    async def lines(self, request: Request) -> Any:
        """The same page as lines of JSON: those of `minibroker consume -o json`, for `minibroker produce --json`."""
        topic, (_, _, page) = await self._read(request, Budget(data_bytes=LINES_BYTES_MAX))
        return {"lines": [line_of(topic.name, each) for each in page.rows], **progress_of(page)}

    async def _read(self, request: Request, budget: Budget) -> tuple[TopicRow, ReadPage]:
        """The topic and the page of it that a request asks for. Raises Refused."""
        query = query_of(request)
        query.search.matcher()
        position = None if query.at == "newest" else parse_position(query.at)
        topic = chosen(await existing_topic(self._console, in_path(request, "topic")), query.partition)
        return topic, await self._console.kafka.ask(lambda client: read_page(client, topic, query, position, budget))

    async def one(self, request: Request) -> Any:
        """All that is known of a message, and of the batch it is in."""
        found = await self._found(request)
        record, batch, data = found.record, found.batch, found.data
        decoded = await self._decoded(record)
        return summary_of(found, decoded) | {
            "key": part_of(record.key),
            "value": part_of(record.value),
            "decoded": {name: text_of(record, decoded, name) for name in ("key", "value")},
            "headers": [{"name": name, **(part_of(value) or {"size": None})} for name, value in record.headers],
            "sequence": record.sequence,
            "batch": batch_row(batch, crc_of(data, batch))
            | {"records": None if batch.magic < 2 else batch.records_count},
        }

    async def download(self, request: Request) -> Response:
        """The bytes of a key or value, which no browser opens."""

        async def part() -> bytes:
            record = (await self._found(request)).record
            parts: dict[str, bytes | None] = {"key": record.key, "value": record.value}
            data = parts.get(in_path(request, "part"))
            if data is None:
                raise Refused(404, "the message has no such part; ask for its key or value")
            return data

        headers = {"content-disposition": "attachment", "cache-control": "no-store"}

        async def looked_up() -> bytes:
            return (await looked(part))[0]

        return await answered(looked_up, partial(Response, headers=headers, media_type="application/octet-stream"))

    async def _rows(self, found: Sequence[Found]) -> list[dict[str, Any]]:
        return [summary_of(each, await self._decoded(each.record)) for each in found]

    async def _decoded(self, record: Record) -> Record:
        """Decode the key and the value of a serializer to JSON, if the console knows a schema registry."""
        registry = self._console.options.schema_registry
        if registry is None or not any(each and not each[0] for each in (record.key, record.value)):
            return record
        try:
            key, value = await self._console.kafka.in_thread(
                lambda: (registry.shown(record.key), registry.shown(record.value))
            )
        except CommandFailed as error:
            lacks(str(error))
            return record
        return record._replace(key=key, value=value)

    async def _found(self, request: Request) -> FoundAlone:
        """The message in the path. Raises Refused."""
        topic = await existing_topic(self._console, in_path(request, "topic"))
        partition = number_of(in_path(request, "partition"), "partition", most=2**31 - 1)
        return await message_at(self._console, topic, partition, number_of(in_path(request, "offset"), "offset"))

    async def tail(self, request: Request, last_id: int | None) -> AsyncGenerator[StreamEvent, None]:
        """Messages as they come: all are read, as many are sent as an eye can follow, the rest is counted."""
        query = query_of(request)
        matches = query.search.matcher()
        topic = chosen(await existing_topic(self._console, in_path(request, "topic")), query.partition)
        tail, told = await looked(lambda: self._in_tail_thread(lambda: Tail(self._console, topic, query)))
        try:
            beginning = {"rows": [], "left_out": 0, "read": 0, "unreadable": [], "lacks": told}
            yield StreamEvent(beginning | {"cursor": tail.cursor})
            allowance, filled_at, sent_at = float(TAIL_PRINTED_A_SECOND), trio.current_time(), trio.current_time()
            while True:
                (found, unreadable), lacking = await looked(lambda: self._in_tail_thread(tail.more))
                now = trio.current_time()
                allowance = min(TAIL_PRINTED_A_SECOND, allowance + (now - filled_at) * TAIL_PRINTED_A_SECOND)
                filled_at = now
                shown = [each for each in found if matches(each.record)]
                kept = shown[-int(allowance) :] if allowance >= 1 else []
                allowance -= len(kept)
                if found or unreadable or lacking != told or now - sent_at > TAIL_ALIVE_SECONDS:
                    sent_at, told = now, lacking
                    left_out = len(shown) - len(kept)
                    rows = await self._rows(kept)
                    counts = {"left_out": left_out, "read": len(found), "unreadable": unreadable, "lacks": lacking}
                    yield StreamEvent({"rows": rows, **counts, "cursor": tail.cursor})
                await trio.sleep(TAIL_PAUSE_SECONDS)
        finally:
            with trio.CancelScope(shield=True):
                await self._in_tail_thread(tail.close)

    async def _in_tail_thread(self, work: Any) -> Any:
        return await trio.to_thread.run_sync(work, limiter=self._tail_limiter)


async def message_at(console: Console, topic: TopicRow, partition: int, offset: int) -> FoundAlone:
    """Raises Refused."""
    chosen(topic, partition)
    fetched = await console.kafka.ask(
        lambda client: fetch(client, topic, {partition: offset}, committed=False, partition_bytes=ONE_RECORD_BYTES)
    )
    found = next((each for row in fetched for each in row.records if each.record.offset == offset), None)
    if found is None:
        unreadable = (str(each) for row in fetched for each in row.unreadable if each.first <= offset < each.next)
        failure = next(unreadable, None) or next((row.failure for row in fetched if row.failure), None)
        if not fetched:
            failure = "the partition has no leader now"
        reason = failure or "it was deleted, compacted away, or is a marker of a transaction; choose another"
        raise Refused(404, f"no message at offset {offset:,} of {topic.name}-{partition}: {reason}")
    return FoundAlone(found, fetched[0].data)


class FoundAlone(NamedTuple):
    """A message that was asked for alone, with the bytes that its batch is in."""

    found: Found
    data: bytes

    @property
    def record(self) -> Any:
        return self.found.record

    @property
    def batch(self) -> Any:
        return self.found.batch

    @property
    def partition(self) -> int:
        return self.found.partition


class Tail:
    """Follows partitions from their ends, or from a cursor, over a connection of its own. Raises CommandFailed."""

    def __init__(self, console: Console, topic: TopicRow, query: Query) -> None:
        self._topic = topic
        self._committed = query.committed
        self._cursor = query.cursor
        self._positions: dict[int, int] = {}
        self._closing = ExitStack()
        self._client = self._closing.enter_context(connected(console.kafka.cluster))
        try:
            self._find_ends()
        except BaseException:
            self._closing.close()
            raise

    @property
    def cursor(self) -> str:
        return cursor_text(self._positions)

    def _find_ends(self) -> None:
        """Begin with the partitions whose leader has not answered until now."""
        unknown = [at for at in led_partitions([self._topic]) if at.partition not in self._positions]
        ends = offsets_of(self._client, unknown, LATEST_TIMESTAMP, committed=self._committed) if unknown else {}
        self._positions |= {at.partition: self._cursor.get(at.partition, end) for at, end in ends.items()}

    def more(self) -> tuple[list[Found], list[str]]:
        """Wait a moment for more, in the order of their times; and what of it cannot be read."""
        self._find_ends()
        found: list[Found] = []
        unreadable: list[str] = []
        for each in fetch(
            self._client, self._topic, self._positions, committed=self._committed, max_wait_ms=TAIL_WAIT_MS
        ):
            if each.failure is not None and each.start > self._positions[each.partition]:
                self._positions[each.partition] = each.start  # what was there has been deleted
            else:
                self._positions[each.partition] = each.next
            found += each.records
            unreadable += map(str, each.unreadable)
        return sorted(found, key=lambda each: each.record.timestamp_ms), unreadable

    def close(self) -> None:
        self._closing.close()


class ReadPage(NamedTuple):
    """A page, what there was to read of each partition, and the offsets at which reading began."""

    spans: dict[int, Span]
    positions: Mapping[int, int]
    page: Page


def read_page(client: Any, topic: TopicRow, query: Query, position: Position | None, budget: Budget) -> ReadPage:
    partitions = led_partitions([topic])
    starts, ends = both(
        lambda: offsets_of(client, partitions, EARLIEST_TIMESTAMP),
        lambda: offsets_of(client, partitions, LATEST_TIMESTAMP, committed=query.committed),
    )
    spans = {at.partition: Span(starts[at], ends[at]) for at in partitions if at in starts and at in ends}
    if position is None:
        positions = query.cursor or first_of(topic, spans, lambda span: span.end)
    else:
        positions = query.cursor or starts_at(client, topic, spans, position, committed=query.committed)
    scan = Scan(client, topic, positions, spans, query.search, query.size, query.committed, budget)
    budget.renew()  # another leader may have taken all of it, by not answering where its partitions end
    return ReadPage(spans, positions, read_backwards(scan) if position is None else read_forward(scan))


def progress_of(page: Page) -> dict[str, Any]:
    """How a page ended, and where the next one begins."""
    return {
        "state": page.state,
        "failure": page.failure,
        "unreadable": [str(each) for each in page.unreadable],
        "scanned": page.scanned,
        "cursor": cursor_text(page.cursor),
    }


def cursor_text(positions: Mapping[int, int]) -> str:
    """The text that `cursor_of` reads."""
    return ",".join(f"{at}:{offset}" for at, offset in sorted(positions.items()))


def line_of(topic: str, found: Found) -> str:
    record = found.record
    return as_json(
        ShownRecord(
            topic,
            found.partition,
            record.offset,
            record.timestamp_ms,
            record.key,
            record.value,
            list(record.headers),
        )
    ).decode()


def starts_at(
    client: Any, topic: TopicRow, spans: Mapping[int, Span], position: Position, *, committed: bool
) -> dict[int, int]:
    """The offset of a position in each partition; partitions without records are left out."""
    ranges = {
        TopicPartition(topic.name, at): OffsetRange(span.start, span.end)
        for at, span in spans.items()
        if span.end > span.start
    }
    if position.kind == "time":  # without the partitions that no leader answers for
        found = offsets_of(client, list(ranges), position.value)
        return {at.partition: clamped(offset, ranges[at]) for at, offset in found.items()}
    return {
        at.partition: offset for at, offset in offsets_at(client, position, ranges, committed_only=committed).items()
    }


def chosen(topic: TopicRow, partition: int | None) -> TopicRow:
    """The topic with all its partitions or one of them. Raises Refused."""
    if partition is None:
        return topic
    found = tuple(each for each in topic.partitions if each.partition == partition)
    if not found:
        has = counted(len(topic.partitions), "partition")
        raise Refused(404, f"topic {topic.name} has no partition {partition}; it has {has}, numbered from 0")
    return topic._replace(partitions=found)


def summary_of(found: Any, record: Record) -> dict[str, Any]:
    batch = found.batch
    return {
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": preview_of(record.key),
        "value": preview_of(record.value),
        "headers": len(record.headers),
        "size": len(found.record.key or b"") + len(found.record.value or b""),
        "transactional": batch.is_transactional,
    }


def preview_of(data: bytes | None) -> dict[str, Any] | None:
    """The beginning as text, or as hexadecimal digits if it is none; None for null."""
    if data is None:
        return None
    beginning = data[:PREVIEW_BYTES]
    try:
        text = beginning.decode()
    except UnicodeDecodeError as error:
        is_cut = len(data) > PREVIEW_BYTES and error.end >= PREVIEW_BYTES - 3 and error.start >= PREVIEW_BYTES - 3
        if not is_cut:
            return {"hex": beginning[: PREVIEW_BYTES // 4].hex(), "size": len(data)}
        text = beginning[: error.start].decode()
    return {"text": text, "size": len(data)}


def text_of(record: Record, decoded: Record, name: str) -> str | None:
    """The JSON of a key or value that a serializer has written; None for others."""
    text: bytes | None = getattr(decoded, name)
    return None if text is None or text == getattr(record, name) else text[:SHOWN_BYTES].decode(errors="replace")


def part_of(data: bytes | None) -> dict[str, Any] | None:
    """The bytes in base64, as many as are shown."""
    if data is None:
        return None
    return {"base64": base64.b64encode(data[:SHOWN_BYTES]).decode(), "size": len(data)}
