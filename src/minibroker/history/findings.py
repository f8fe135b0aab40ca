"""The classes of findings, and a finding: a contradiction between a history and what Kafka promises."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from minibroker.history.model import AFTER_ALL, Partition, Poll, Send, Transaction, Value
from minibroker.protocol.text import json_text

INCONSISTENT_OFFSET = "inconsistent-offset"
DUPLICATE = "duplicate"
LOST_WRITE = "lost-write"
UNSEEN = "unseen"
UNSENT = "unsent"
ABORTED_READ = "aborted-read"
OWN_UNCOMMITTED_READ = "own-uncommitted-read"
EARLY_READ = "early-read"
POLL_SKIP = "poll-skip"
POLL_BACK = "poll-back"
SEND_ORDER = "send-order"
SEND_ORDER_IN_TRANSACTION = "send-order-in-transaction"
READ_CYCLE = "read-cycle"
WRITE_CYCLE = "write-cycle"

# In the order of a report, with what each one is.
CLASSES = {
    INCONSISTENT_OFFSET: "one offset, two values",
    DUPLICATE: "a value that was sent once is at several offsets",
    LOST_WRITE: "an acknowledged record that polls passed over",
    UNSEEN: "acknowledged records behind all that was polled",
    UNSENT: "a polled value that no process sent",
    ABORTED_READ: "a polled record of a failed send, or of an aborted transaction",
    OWN_UNCOMMITTED_READ: "a transaction polled what it sent itself",
    EARLY_READ: "a record was polled before its send, or its commit, began",
    POLL_SKIP: "a consumer went past records that others got",
    POLL_BACK: "a consumer went back without a new assignment",
    SEND_ORDER: "a process's sends are in another order in the log",
    SEND_ORDER_IN_TRANSACTION: "a transaction's sends are in another order in the log",
    READ_CYCLE: "transactions that polled each other's records",
    WRITE_CYCLE: "transactions that wrote before each other; correct in Kafka, judged on demand",
}
MAX_VALUE_LENGTH = 60


class Finding(NamedTuple):
    """One contradiction; `places` are times of the history, and `text` names all of it in a line."""

    kind: str
    topic: str
    partition: int
    offsets: tuple[int, ...]
    values: tuple[Value, ...]
    processes: tuple[str, ...]
    places: tuple[int, ...]
    text: str


def found(
    kind: str, partition: Partition, offsets: Iterable[int], values: Iterable[Value], by: Iterable[Actor], text: str
) -> Finding:
    """A finding about these operations."""
    actors = list(dict.fromkeys(by))
    names = dict.fromkeys(each.process.name for each in actors)
    places = sorted({time_of(each) for each in actors})
    return Finding(
        kind, partition.topic, partition.number, tuple(offsets), tuple(values), tuple(names), tuple(places), text
    )


Actor = Send | Poll | Transaction


def time_of(actor: Actor) -> int:
    """Return the time at which a reader of the file finds an operation: its end, or its beginning if it has none."""
    return actor.began if actor.ended == AFTER_ALL or isinstance(actor, Transaction) else actor.ended


def shown(value: Value) -> str:
    """A value, cut if it is long."""
    if not isinstance(value, str):
        return "a record" if value is None else str(value)
    cut = value if len(value) <= MAX_VALUE_LENGTH else value[:MAX_VALUE_LENGTH] + "..."
    return json_text(cut)
