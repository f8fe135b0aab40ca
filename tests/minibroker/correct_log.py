"""A history as a correct Kafka would give it: a log with transactions, and processes that crash and rebalance.

Every operation takes effect, or not, at some moment between its invocation and its completion, which may never come.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

Row = dict[str, Any]
TOPIC = "t"
PARTITIONS = range(3)


class Written:
    """A record in a log; a marker has no value. `is_committed` is None while its transaction is open."""

    def __init__(self, value: str | None, *, is_committed: bool | None) -> None:
        self.value = value
        self.is_committed = is_committed


class CorrectLog:
    """Makes a history of `steps` moments by chance."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._logs: list[list[Written]] = [[] for _ in PARTITIONS]
        self._values = count()
        self.rows: list[Row] = []

    def run(self, steps: int) -> list[Row]:
        processes = {f"p{number}": self._produce(f"p{number}") for number in range(2)}
        processes |= {f"x{number}": self._transact(f"x{number}") for number in range(2)}
        processes |= {f"c{number}": self._consume(f"c{number}") for number in range(3)}
        for _ in range(steps):
            next(processes[self._random.choice(list(processes))])
        for log in self._logs:  # transactions in hand time out
            for each in log:
                each.is_committed = bool(each.is_committed)
        self._note("last", "invoke", "assign")
        self._note("last", "ok", "assign", partitions=[[TOPIC, number] for number in PARTITIONS])
        for number in PARTITIONS:
            self._poll("last", {number: 0}, isolation="read_committed", limit=10**6)
        return self.rows

    def _note(self, process: str, event: str, operation: str, **fields: Any) -> None:
        self.rows.append({"process": process, "event": event, "operation": operation, **fields})

    def _send(self, process: str, transaction: list[Written] | None) -> Iterator[None]:
        number, value = self._random.choice(PARTITIONS), f"v{next(self._values)}"
        self._note(process, "invoke", "send", topic=TOPIC, partition=number, value=value)
        yield
        fate = self._random.choice(["ok"] * 8 + ["fail", "info", "lost answer"])
        offset = len(self._logs[number])
        if fate in ("ok", "lost answer"):
            written = Written(value, is_committed=None if transaction is not None else True)
            self._logs[number].append(written)
            if transaction is not None:
                transaction.append(written)
        yield
        if fate == "ok":
            self._note(process, "ok", "send", offset=offset)
        else:
            self._note(process, "fail" if fate == "fail" else "info", "send")

    def _produce(self, process: str) -> Iterator[None]:
        while True:
            yield from self._send(process, None)
            yield

    def _transact(self, process: str) -> Iterator[None]:
        positions: dict[int, int] = {}
        while True:
            self._note(process, "invoke", "begin")
            self._note(process, "ok", "begin")
            transaction: list[Written] = []
            for _ in range(self._random.randint(0, 4)):
                yield from self._send(process, transaction)
                self._poll(process, positions, isolation="read_committed", limit=2)
                yield
            fate = self._random.choice(["commit"] * 4 + ["abort", "crash", "lost commit", "lost answer"])
            if fate == "crash":
                self._note(process, "info", "crash")
                positions.clear()
            else:
                operation = "abort" if fate == "abort" else "commit"
                self._note(process, "invoke", operation)
                yield
            self._decide(transaction, is_committed=fate in ("commit", "lost answer"))
            yield
            if fate != "crash":
                self._note(process, "ok" if fate == operation else "info", operation)
            yield

    def _decide(self, transaction: list[Written], *, is_committed: bool) -> None:
        for log in self._logs:
            if any(each in log for each in transaction):
                log.append(Written(None, is_committed=True))
        for each in transaction:
            each.is_committed = is_committed

    def _consume(self, process: str) -> Iterator[None]:
        while True:
            mine = self._random.sample(PARTITIONS, self._random.randint(0, len(PARTITIONS)))
            if self._random.random() < 0.2:
                self._note(process, "info", "crash")
            self._note(process, "ok", "assign", partitions=[[TOPIC, number] for number in mine])
            positions = {number: self._random.randint(0, len(self._logs[number])) for number in mine}
            isolation = self._random.choice(["read_committed", "read_uncommitted"])
            for _ in range(self._random.randint(0, 12)):
                yield
                self._note(process, "invoke", "poll")
                yield
                self._poll(process, positions, isolation=isolation, limit=5)

    def _poll(self, process: str, positions: dict[int, int], *, isolation: str, limit: int) -> None:
        """Go on from the positions, which move, and note the records."""
        for number in PARTITIONS if process.startswith("x") else ():
            positions.setdefault(number, 0)
        records: list[list[Any]] = []
        for number in positions:
            log = self._logs[number]
            while positions[number] < len(log) and len(records) < limit:
                each, offset = log[positions[number]], positions[number]
                if isolation == "read_committed" and each.is_committed is None:
                    break
                positions[number] += 1
                if each.value is not None and (each.is_committed or isolation == "read_uncommitted"):
                    records.append([TOPIC, number, offset, each.value])
        self._note(process, "ok", "poll", records=records, isolation=isolation)
