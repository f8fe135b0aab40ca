"""Reads a history of JSON lines; docs/recipes/checking-a-history.md describes them.

    {"process": "p1", "event": "invoke", "operation": "send", "topic": "t", "partition": 0, "value": "a"}
    {"process": "p1", "event": "ok", "operation": "send", "offset": 17}

A completion belongs to the oldest open invocation of its process and operation, or to the one with its `id`. One
without an invocation stands for both.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minibroker.history.model import History, HistoryError, Outcome, Partition, Process, Send, Value

Row = dict[str, Any]
OUTCOMES = {"ok": Outcome.OK, "fail": Outcome.FAILED, "info": Outcome.UNKNOWN}
EVENTS = ("invoke", *OUTCOMES)
VALUES = (str, int, type(None))
COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


class BadLine(Exception):
    """A line is not one of a history; the message goes behind the number of the line."""


def read_lines(path: Path, advance: Callable[[int], None] = lambda amount: None) -> History:
    """The history in a file; `advance` is called with the bytes that were read. Raises OSError and HistoryError."""
    history = History(lambda at: f"line {at}")
    reader = LineReader(history)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            advance(len(line))
            if line.isspace():
                continue
            try:
                reader.read(number, parsed(line))
            except BadLine as error:
                if not line.endswith(b"\n"):
                    history.notes.append(f"line {number}, the last one, is torn and was left out")
                    break
                raise HistoryError(f"{path}: line {number}: {error}") from None
    return history.finish()


def parsed(line: bytes) -> Row:
    """Raises BadLine."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise BadLine("not JSON; write one object a line") from None
    if not isinstance(row, dict):
        raise BadLine("not an object; write one object a line")
    return row


class LineReader:
    """Takes the lines of a history in their order."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._open: dict[tuple[Process, str], deque[tuple[Any, Any]]] = {}  # id, and what the invocation began
        self._operations: dict[str, Callable[[int, Process, str, Row], None]] = {
            "send": self._send,
            "poll": self._poll,
            "begin": self._begin,
            "commit": self._commit,
            "abort": self._abort,
            "assign": self._assign,
            "subscribe": self._subscribe,
            "seek": self._seek,
            "crash": self._crash,
            "delete_records": self._delete_records,
        }

    def read(self, at: int, row: Row) -> None:
        """Raises BadLine."""
        operation, event = text_of(row, "operation"), text_of(row, "event")
        take = self._operations.get(operation)
        if take is None:
            raise BadLine(f"operation {operation!r} is unknown; it is one of {', '.join(self._operations)}")
        if event not in EVENTS:
            raise BadLine(f"event {event!r} is unknown; it is one of {', '.join(EVENTS)}")
        name = row.get("process")
        if type(name) not in (str, int):
            raise BadLine("`process` must be text or a whole number")
        take(at, self._history.process(str(name)), event, row)

    def _invoked(self, process: Process, operation: str, row: Row, what: Any) -> None:
        self._open.setdefault((process, operation), deque()).append((row.get("id"), what))

    def _completed(self, process: Process, operation: str, row: Row) -> Any:
        """Return the result of the invocation that this completes; None without one."""
        waiting = self._open.get((process, operation))
        if not waiting:
            return None
        wanted = row.get("id")
        if wanted is None or waiting[0][0] == wanted:
            return waiting.popleft()[1]
        found = next((each for each in waiting if each[0] == wanted), None)
        if found is None:
            return None
        waiting.remove(found)
        return found[1]

    def _send(self, at: int, process: Process, event: str, row: Row) -> None:
        send: Send | None = None if event == "invoke" else self._completed(process, "send", row)
        if send is None:
            topic, value = text_of(row, "topic"), value_of(row.get("value"))
            number = optional_number(row, "partition")
            send = self._history.send(process, topic, number, value, at, process.transaction)
        if event == "invoke":
            self._invoked(process, "send", row, send)
            return
        number, offset = optional_number(row, "partition"), optional_number(row, "offset")
        self._history.end_send(send, at, OUTCOMES[event], number, offset if event == "ok" else None)

    def _poll(self, at: int, process: Process, event: str, row: Row) -> None:
        if event == "invoke":
            self._invoked(process, "poll", row, at)
            return
        began = self._completed(process, "poll", row)
        if event != "ok":
            return
        isolation = row.get("isolation", COMMITTED)
        if isolation not in (COMMITTED, UNCOMMITTED):
            raise BadLine(f"isolation {isolation!r} is neither {COMMITTED} nor {UNCOMMITTED}")
        records = self._records(row.get("records"))
        began = at if began is None else began
        self._history.poll(process, began, at, records, committed_only=isolation == COMMITTED)

    def _records(self, rows: Any) -> list[tuple[Partition, int, Value]]:
        partition = self._history.partition
        try:
            records = [(partition(topic, number), offset, value_of(value)) for topic, number, offset, value in rows]
            ok = all(type(row[0]) is str and type(row[1]) is type(row[2]) is int and row[2] >= 0 for row in rows)
        except (TypeError, ValueError):
            ok = False
        if not ok:
            raise BadLine('`records` must be a list of ["topic", partition, offset, value]')
        return records

    def _begin(self, at: int, process: Process, event: str, row: Row) -> None:
        if event == "invoke":
            self._invoked(process, "begin", row, process.begin(at))
        elif self._completed(process, "begin", row) is None and event == "ok":
            process.begin(at)
        elif event == "fail":
            process.leave_transaction()

    def _commit(self, at: int, process: Process, event: str, row: Row) -> None:
        transaction = process.transaction
        if transaction is None:
            raise BadLine(f"{event} of commit: process {process.name} has no transaction; write its begin first")
        if event == "invoke":
            transaction.ask_commit(at)
            self._invoked(process, "commit", row, transaction)
            return
        if self._completed(process, "commit", row) is None:
            transaction.ask_commit(at)
        transaction.end_commit(at, OUTCOMES[event])
        if event == "ok":
            process.leave_transaction()

    def _abort(self, at: int, process: Process, event: str, row: Row) -> None:
        transaction = process.transaction
        if transaction is None:
            raise BadLine(f"{event} of abort: process {process.name} has no transaction; write its begin first")
        if event == "invoke":
            return
        if event == "ok":
            transaction.abort(at)
        process.leave_transaction()

    def _assign(self, at: int, process: Process, event: str, row: Row) -> None:
        rows = row.get("partitions", ())
        try:
            partitions = [self._history.partition(topic, number) for topic, number in rows]
        except (TypeError, ValueError):
            raise BadLine('`partitions` must be a list of ["topic", partition]') from None
        if event in ("ok", "info"):
            self._history.move(process, {}, awaited=partitions)

    def _subscribe(self, at: int, process: Process, event: str, row: Row) -> None:
        topics = row.get("topics", ())
        if not isinstance(topics, list | tuple) or not all(isinstance(each, str) for each in topics):
            raise BadLine("`topics` must be a list of names")
        if event in ("ok", "info"):
            self._history.subscribe(process, topics)

    def _seek(self, at: int, process: Process, event: str, row: Row) -> None:
        if event in ("ok", "info"):
            partition = self._history.partition(text_of(row, "topic"), number_of(row, "partition"))
            self._history.move(process, {partition: number_of(row, "offset")}, keeps_others=True)

    def _crash(self, at: int, process: Process, event: str, row: Row) -> None:
        """The process lost its clients: its positions, its transaction, and the answers to its operations."""
        process.leave_transaction()
        for key in [key for key in self._open if key[0] is process]:
            del self._open[key]
        self._history.move(process, {})

    def _delete_records(self, at: int, process: Process, event: str, row: Row) -> None:
        if event != "fail":
            partition = self._history.partition(text_of(row, "topic"), number_of(row, "partition"))
            partition.delete_below(number_of(row, "offset"))


def text_of(row: Row, name: str) -> str:
    """Raises BadLine."""
    value = row.get(name)
    if type(value) is not str:
        raise BadLine(f"`{name}` is missing" if value is None else f"`{name}` must be text")
    return value


def number_of(row: Row, name: str) -> int:
    """Raises BadLine."""
    value = row.get(name)
    if type(value) is not int or value < 0:
        raise BadLine(f"`{name}` is missing" if value is None else f"`{name}` must be a whole number from 0 on")
    return value


def optional_number(row: Row, name: str) -> int | None:
    """Raises BadLine."""
    return None if row.get(name) is None else number_of(row, name)


def value_of(value: Any) -> Value:
    """Raises BadLine."""
    if type(value) not in VALUES:
        raise BadLine("a value must be text, a whole number, or null if it is not known")
    return value  # type: ignore[no-any-return]
