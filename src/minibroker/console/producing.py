"""Sends a message that was written on the page, and returns where it is."""

from __future__ import annotations

import base64
import binascii
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import Refused, change, in_path
from minibroker.console.console import Console
from minibroker.console.messages import chosen
from minibroker.console.topics import existing_topic, number_in, refuse_internal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from minibroker.cli.options import Cluster

ANSWER_SECONDS = 15.0
TIMES_MAX = 1_000
HEADERS_MAX = 100


class Written(NamedTuple):
    """`partition` None chooses by the key; a value None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int | None
    timestamp_ms: int | None
    times: int


def routes(console: Console) -> list[BaseRoute]:
    async def produce(request: Request, body: dict[str, Any]) -> Any:
        topic = await existing_topic(console, in_path(request, "topic"))
        refuse_internal(topic, "only the broker writes to it")
        written = written_in(body)
        chosen(topic, written.partition)
        rows = await console.kafka.in_thread(lambda: send(console.kafka.cluster, topic.name, written))
        return {"rows": rows}

    return [change("POST", "/api/topics/{topic}/records", produce)]


def written_in(body: dict[str, Any]) -> Written:
    """Raises Refused."""
    headers = body.get("headers", [])
    if not isinstance(headers, list) or len(headers) > HEADERS_MAX:
        raise Refused(400, f"headers is not a list of {HEADERS_MAX} or fewer; correct it")
    return Written(
        data_in(body, "key"),
        data_in(body, "value"),
        [header_of(each) for each in headers],
        None if body.get("partition") is None else number_in(body, "partition", 0, most=2**31 - 1),
        None if body.get("timestamp") is None else number_in(body, "timestamp", 0, most=2**62),
        max(1, number_in(body, "times", 1, most=TIMES_MAX)),
    )


def data_in(body: dict[str, Any], name: str) -> bytes | None:
    """Text as `name`, or base64 as `name_base64`. Raises Refused."""
    encoded, text = body.get(f"{name}_base64"), body.get(name)
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise Refused(400, f"{name}_base64 is not base64; correct it") from None
    if text is not None and not isinstance(text, str):
        raise Refused(400, f"{name} is neither a text nor null; correct it")
    return None if text is None else text.encode("utf-8", "surrogatepass")


def header_of(row: Any) -> tuple[str, bytes]:
    """A pair of a name and a text, or {"base64": ...}; kafka-python sends no null. Raises Refused."""
    if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and row[0]:
        name, value = row
        encoded = value.get("base64") if isinstance(value, dict) else None
        data = data_in({"header": value} if encoded is None else {"header_base64": encoded}, "header")
        if data is not None:
            return name, data
    raise Refused(400, 'a header is a pair of a name and a text, such as ["source", "tower"]; correct it')


def send(cluster: Cluster, topic: str, written: Written) -> list[dict[str, int]]:
    """Where each copy is, in the order they were sent. Raises CommandFailed."""
    from minibroker.cli.cluster import failures_explained, first_reachable

    address = first_reachable(cluster.addresses, cluster.properties)
    with failures_explained(address), producer_of(cluster) as producer:
        sending = [
            producer.send(
                topic,
                value=written.value,
                key=written.key,
                headers=written.headers,
                partition=written.partition,
                timestamp_ms=written.timestamp_ms,
            )
            for _ in range(written.times)
        ]
        done = [each.get(timeout=ANSWER_SECONDS) for each in sending]
    return [{"partition": each.partition, "offset": each.offset, "timestamp": each.timestamp} for each in done]


@contextmanager
def producer_of(cluster: Cluster) -> Iterator[Any]:
    from minibroker.cli.cluster import CLIENT_ID, checked, close, producer

    settings = {"client.id": CLIENT_ID, "acks": "all", "retries": "0", **checked(cluster.properties)}
    made = producer(str(cluster), settings)
    try:
        yield made
    finally:
        close(made)
