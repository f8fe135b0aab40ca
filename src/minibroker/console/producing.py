"""Sends a message that was written on the page, or one that is in the topic again, and returns where it is."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.produce_refusals import refusal
from minibroker.any_cluster.record_appends import appended
from minibroker.any_cluster.record_lines import PARTITIONS, TIMESTAMPS_MS, Headers, NewRecord
from minibroker.client.errors import ClientError, NoAnswer
from minibroker.client.writing import Place
from minibroker.console.answers import Refused, change, in_path
from minibroker.console.console import Console
from minibroker.console.messages import chosen, message_at
from minibroker.console.topics import existing_topic, number_in, refuse_internal
from minibroker.errors import CommandFailed
from minibroker.protocol.errors import ErrorCode, KafkaError

TIMES_MAX = 1_000
HEADERS_MAX = 100
FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp", "times", "like")


class Written(NamedTuple):
    """`partition` None chooses by the key; a value None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    times: int


def routes(console: Console) -> list[BaseRoute]:
    async def produce(request: Request, body: dict[str, Any]) -> Any:
        """`like` names a message of the topic, by partition and offset: what the body leaves out is as there."""
        topic = await existing_topic(console, in_path(request, "topic"))
        refuse_internal(topic, "only the broker writes to it")
        for name in body:
            if name not in FIELDS:
                raise Refused(400, f"{name} is not a field of a message, which are {', '.join(FIELDS)}; correct it")
        like = None
        if body.get("like") is not None:
            at = body["like"] if isinstance(body["like"], dict) else {}
            offset = number_in(at, "offset", -1, most=2**63 - 1)
            like = (await message_at(console, topic, number_in(at, "partition", -1, most=2**31 - 1), offset)).record
        written = written_in(body, like)
        chosen(topic, written.partition)
        rows = await console.kafka.act(lambda client: sent(client, topic.name, written))
        return {"rows": rows}

    return [change("POST", "/api/topics/{topic}/records", produce)]


def written_in(body: dict[str, Any], like: Any) -> Written:
    """The record to send; `like` is the record that has what the body leaves out, or None. Raises Refused."""
    if like is None and not body.keys() & {"value", "value_base64"}:
        raise Refused(400, "the message has no value; a tombstone has the value null")
    return Written(
        data_in(body, "key", None if like is None else like.key),
        data_in(body, "value", None if like is None else like.value),
        headers_in(body, [] if like is None else list(like.headers)),
        integer_in(body, "partition", PARTITIONS),
        integer_in(body, "timestamp", TIMESTAMPS_MS),
        max(1, number_in(body, "times", 1, most=TIMES_MAX)),
    )


def integer_in(body: dict[str, Any], name: str, allowed: range) -> int | None:
    """Raises Refused."""
    value = body.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value not in allowed:
        raise Refused(400, f"{name} is not a number from {allowed[0]} to {allowed[-1]}; correct it")
    return value


def data_in(body: dict[str, Any], name: str, left_out: bytes | None) -> bytes | None:
    """Text as `name`, or base64 as `name_base64`. Raises Refused."""
    encoded, text = body.get(f"{name}_base64"), body.get(name)
    if isinstance(encoded, str):
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise Refused(400, f"{name}_base64 is not base64; correct it") from None
    if encoded is not None or (text is not None and not isinstance(text, str)):
        raise Refused(400, f"{name} is neither a text nor null; correct it")
    if text is None:
        return None if name in body else left_out
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Refused(400, f"{name} has half of a surrogate pair; send its bytes as {name}_base64") from None


def headers_in(body: dict[str, Any], like: Headers) -> Headers:
    """Raises Refused."""
    if "headers" not in body:
        return like
    headers = body["headers"]
    if not isinstance(headers, list) or len(headers) > HEADERS_MAX:
        raise Refused(400, f"headers is not a list of {HEADERS_MAX} or fewer; correct it")
    return [header_of(each, like) for each in headers]


def header_of(row: Any, like: Headers) -> tuple[str, bytes | None]:
    """A pair of a name and a text, null or {"base64": ...}; or the place of a header in the other message.

    Bytes of a name that are not UTF-8 are surrogates, as the console shows them. Raises Refused.
    """
    if isinstance(row, int) and not isinstance(row, bool) and 0 <= row < len(like):
        return like[row]
    if isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and is_encodable(row[0]):
        name, value = row
        if not isinstance(value, dict):
            return name, data_in({"header": value}, "header", None)
        return name, data_in({"header_base64": value.get("base64", "-")}, "header", None)
    raise Refused(400, 'a header is a pair of a name and a text, such as ["source", "tower"]; correct it')


def is_encodable(name: str) -> bool:
    try:
        name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def sent(client: Any, topic: str, written: Written) -> list[dict[str, int]]:
    """Append the copies; return their places in that order. Raises CommandFailed."""
    record = NewRecord(written.key, written.value, written.headers, written.partition, written.timestamp_ms)
    places: list[Place] = []
    try:
        for _, found in appended(client, topic, [record] * written.times):
            places += found
    except NoAnswer as error:  # it may be written
        raise CommandFailed(refusal(topic, KafkaError(ErrorCode.REQUEST_TIMED_OUT), len(places))) from error
    except (ClientError, KafkaError) as error:
        raise CommandFailed(refusal(topic, error, len(places))) from error
    return [{"partition": each.partition, "offset": each.offset, "timestamp": each.timestamp_ms} for each in places]
