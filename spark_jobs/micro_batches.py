"""The micro-batches of a streaming query: facts about each, and the line for a person."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minibroker.spark_jobs.errors import JobFailed

LOOK_AGAIN_SECONDS = 0.5
NO_WATERMARK = "1970-01-01T00:00:00.000Z"  # of the batches before there is one


def start(writer: DataStreamWriter, *, checkpoint: str, every_seconds: float | None) -> StreamingQuery:
    """Start a query of the present records, or one with a micro-batch every so many seconds for ever."""
    writer = writer.option("checkpointLocation", checkpoint)
    if every_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_seconds} seconds").start()


def micro_batches(
    query: StreamingQuery, *, stop: threading.Event, until: datetime | None = None, counters: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Yield facts about each micro-batch until the query ends, `stop` is set, or the watermark reaches `until`.

    `counters` are the names that the query observes with `DataFrame.observe`. A query whose stream ends with records
    that are later than all others observes `latest_ms`, without those, and `ends`, their count: they and the watermark
    that they bring about are not shown. Raises the query's error, and JobFailed for a topic made anew meanwhile.
    """
    seen = -1
    records = 0
    has_ended = False
    running = True
    while running:
        running = not query.awaitTermination(LOOK_AGAIN_SECONDS)  # type: ignore[arg-type]  # a fraction is fine
        if stop.is_set() and running:
            # What is written next is that the tasks were cancelled, each with its trace.
            SparkSession.active().sparkContext.setLogLevel("OFF")
            query.stop()
        for progress in query.recentProgress:
            # Idle triggers repeat the last batch's id with no rows.
            if progress["batchId"] <= seen:
                continue
            seen = progress["batchId"]
            if back := next(filter(None, map(went_back, progress["sources"])), ""):
                query.stop()
                raise JobFailed(f"{back}; give the new topic an output and a checkpoint of its own")
            records += progress["numInputRows"]
            watermark = progress["eventTime"].get("watermark")
            # A batch writes the windows that its watermark has passed.
            if until is not None and watermark and _is_reached(until, watermark):
                stop.set()
            observed: dict[str, Any] = {}
            for row in progress["observedMetrics"].values():
                observed |= row.asDict()
            latest = progress["eventTime"].get("max")
            if "latest_ms" in observed:
                latest = None if observed["latest_ms"] is None else _time(observed["latest_ms"])
            yield {
                "batch": seen,
                "records": progress["numInputRows"],
                "records_so_far": records,
                "behind": sum(behind(source) for source in progress["sources"]),
                **{name: observed.get(name) or 0 for name in counters},
                "too_late": sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"]),
                "watermark": None if has_ended or watermark == NO_WATERMARK else watermark,
                "latest": latest,
                "has_ended": has_ended,
                "milliseconds": progress["batchDuration"],
            }
            # The watermark of the next batch is that of the records in this one.
            has_ended = has_ended or bool(observed.get("ends"))


def _time(ms: int) -> str:
    """A time as Spark writes those of its progress."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError):  # a year that Python does not have
        return f"{ms} ms"


def _is_reached(until: datetime, watermark: str) -> bool:
    try:
        return datetime.fromisoformat(watermark) >= until
    except ValueError:  # a year of five digits has a plus, one before the first a minus
        return watermark.startswith("+")


def behind(source: Any) -> int:
    """How many offsets a Kafka source had before it when its micro-batch ended; 0 for other sources."""
    try:
        end, latest = (json.loads(source[name] or "{}") for name in ("endOffset", "latestOffset"))
        return sum(
            max(0, offset - end.get(topic, {}).get(partition, offset))
            for topic, partitions in latest.items()
            for partition, offset in partitions.items()
        )
    except (AttributeError, TypeError, ValueError):  # a file source's offset is a number, a rate source's another
        return 0


def went_back(source: Any) -> str:
    """Name a partition whose micro-batch ended before it began: failOnDataLoss=false leaves out what it has."""
    try:
        begin, end = (json.loads(source[name] or "{}") for name in ("startOffset", "endOffset"))
        return next(
            (
                f"{topic}-{partition}: made anew: it was read up to offset {offset:,}, and now ends at {ends:,}"
                for topic, partitions in begin.items()
                for partition, offset in partitions.items()
                if (ends := end.get(topic, {}).get(partition, offset)) < offset
            ),
            "",
        )
    except (AttributeError, TypeError, ValueError):  # as in `behind`
        return ""


def sentence(facts: dict[str, Any], *, left_out: Sequence[str] = (), fate: str = "not in the result") -> str:
    """Tell a micro-batch in a line; `left_out` are counters of records that are not in the result, but have a fate."""
    seconds = facts["milliseconds"] / 1000
    text = (
        f"batch {facts['batch']}: {facts['records']:,} records in {seconds:.1f} s, {facts['records_so_far']:,} so far"
    )
    if facts["behind"]:
        text += f", {facts['behind']:,} behind"
    if facts["watermark"]:
        text += f", watermark {facts['watermark']}"
    if facts["has_ended"]:
        text += ", the stream has ended"
    for trouble in (*left_out, "too_late"):
        if facts[trouble]:
            text += f", {facts[trouble]:,} {trouble.replace('_', ' ')}: {fate}"
    return text
