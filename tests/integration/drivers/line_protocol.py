"""How a test talks to a client library that runs in a process of its own.

One JSON object a line on stdin, one a line on stdout, in order:

    {"op": "consume", "arguments": {...}}  ->  {"result": ...}
                                           or  {"error": {"kind", "code", "message"}}

`code` is Kafka's error code where the library says it, else null. Bytes travel as base64, null stays null.
This module is run by other interpreters as well, so it uses the standard library alone.
"""

from __future__ import annotations

import base64
import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

Operation = Callable[..., Any]
JsonRecord = dict[str, Any]


class DeadlineError(Exception):
    """The awaited event did not come in time."""


class Deadline:
    """A point in time that loops ask about, instead of sleeping for a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def seconds_left(self, waiting_for: str) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise DeadlineError(f"still waiting for {waiting_for}")
        return left


def to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def to_bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def headers_to_bytes(record: JsonRecord) -> list[tuple[str, bytes | None]]:
    return [(name, to_bytes(value)) for name, value in record["headers"]]


def consumed(
    *,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> JsonRecord:
    """A record as it is reported to the test."""
    return {
        "partition": partition,
        "offset": offset,
        "timestamp_ms": timestamp_ms,
        "key": to_text(key),
        "value": to_text(value),
        "headers": [[name, to_text(data)] for name, data in headers],
    }


def describe_error(error: BaseException) -> JsonRecord:
    return {"kind": type(error).__name__, "code": error_code_of(error), "message": str(error)}


def error_code_of(error: BaseException) -> int | None:
    """Kafka's error code, as kafka-python (`errno`) and confluent-kafka (`args[0].code()`) carry it."""
    code = getattr(error, "errno", None)
    if isinstance(code, int):
        return code
    if error.args and callable(getattr(error.args[0], "code", None)):
        return int(error.args[0].code())
    return None


def serve(operations: dict[str, Operation], before_each: Callable[[], None] | None = None) -> None:
    """Answer requests until stdin ends; `before_each` returns when there is one to read."""
    while True:
        if before_each is not None:
            before_each()
        line = sys.stdin.readline()
        if not line:
            return
        request = json.loads(line)
        try:
            reply = {"result": operations[request["op"]](**request["arguments"])}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": describe_error(error)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def serve_driver(driver: object) -> None:
    """Answer with its public methods."""
    serve({name: getattr(driver, name) for name in dir(driver) if not name.startswith("_")})
