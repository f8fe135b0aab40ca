"""A partition's log as the history shows it: which send wrote the record at which offset, and what became of it."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from minibroker.history.findings import Actor, time_of
from minibroker.history.model import History, Outcome, Partition, Send, Transaction, Value, agree


class Conflict(NamedTuple):
    """Two sends that were acknowledged with one offset."""

    offset: int
    first: Send
    second: Send


class Log:
    """One partition with the send of each record that was seen.

    A record belongs to the send that was acknowledged with its offset, or else to one of the same value whose offset is
    unknown; first to one that may have succeeded.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.writers: dict[int, Send] = {}
        self.repeated: dict[int, Send] = {}  # offsets with a value whose sends are all elsewhere, and one of these
        self.unsent: list[int] = []
        self.acknowledged: dict[int, Send] = {}
        self.conflicts: list[Conflict] = []
        self.read: set[int] = set()  # ids of sends whose record was seen, at whatever offset
        waiting: dict[Value, list[Send]] = defaultdict(list)
        placed: dict[Value, Send] = {}
        for send in partition.sends:
            if send.offset is None:
                waiting[send.value].append(send)
            else:
                placed[send.value] = send
                first = self.acknowledged.setdefault(send.offset, send)
                if first is not send and not agree(first.value, send.value):
                    self.conflicts.append(Conflict(send.offset, first, send))
        for sends in waiting.values():
            sends.sort(key=lambda each: each.outcome is Outcome.FAILED, reverse=True)
        self.begin = min(self.acknowledged, default=0)  # records below it were there before the history
        self._match(waiting, placed)

    def _match(self, waiting: dict[Value, list[Send]], placed: dict[Value, Send]) -> None:
        for offset, sight in sorted(self.partition.seen.items()):
            send = self.acknowledged.get(offset)
            other = placed.get(sight.value)
            if other is not None and other.offset == offset:  # acknowledged with this offset too
                send = other
            if send is None or not agree(send.value, sight.value):
                if sight.value is None:
                    continue
                candidates = waiting.get(sight.value)
                if not candidates:
                    if sight.value in placed:
                        self.repeated[offset] = placed[sight.value]
                        self.read.add(id(placed[sight.value]))
                    elif offset >= self.begin and self.partition.sends:
                        self.unsent.append(offset)
                    continue
                send = candidates.pop()
                placed[sight.value] = send
            self.writers[offset] = send
            self.read.add(id(send))


class Judged:
    """A history with the log of each partition, and what is certain of each send."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.logs = {each: Log(each) for each in history.partitions.values()}
        # Transactions of unknown outcome of which a record was seen that only a commit shows.
        self._proven: set[Transaction] = {
            send.transaction
            for log in self.logs.values()
            for offset, send in log.writers.items()
            if send.transaction is not None
            and send.transaction.outcome is Outcome.UNKNOWN
            and log.partition.seen[offset].committed is not None
        }
        self.visible = {partition: self._visible(log) for partition, log in self.logs.items()}

    def outcome(self, send: Send) -> Outcome:
        """Whether a send's record is for all to see: OK, FAILED (never), or UNKNOWN."""
        transaction = send.transaction
        if send.outcome is Outcome.FAILED or transaction is None:
            return send.outcome
        if transaction.outcome is Outcome.UNKNOWN and transaction in self._proven:
            return send.outcome
        return transaction.outcome if transaction.outcome is not Outcome.OK else send.outcome

    def named(self, actor: Actor) -> str:
        """The name of the process that acts, with the place in the file."""
        return f"{actor.process.name} ({self.history.place(time_of(actor))})"

    def _visible(self, log: Log) -> list[int]:
        """The offsets, in order, that some consumer got and every other one that passes them must get."""
        offsets = []
        for offset, sight in log.partition.seen.items():
            send = log.writers.get(offset)
            outcome = Outcome.UNKNOWN if send is None else self.outcome(send)
            if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and sight.committed is not None):
                offsets.append(offset)
        return sorted(offsets)
