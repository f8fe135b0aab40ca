"""Was every acknowledged record polled, and was every polled record sent, and not taken back?"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.history.findings import ABORTED_READ, LOST_WRITE, UNSEEN, UNSENT, Finding, found, shown
from minibroker.history.logs import Judged, Log
from minibroker.history.model import Outcome, Send
from minibroker.history.offsets import repeated_values
from minibroker.protocol.text import counted, ranges


def check_records(judged: Judged) -> Iterator[Finding]:
    for log in judged.logs.values():
        if not log.partition.is_cut:
            yield from unread(judged, log)
            yield from unwritten(judged, log)
        yield from taken_back(judged, log)


def unread(judged: Judged, log: Log) -> Iterator[Finding]:
    """Acknowledged records that no poll returned: lost if a later record was polled, else only unseen."""
    partition = log.partition
    if not partition.is_awaited:
        return
    highest = max(partition.seen, default=-1)
    begin = max(partition.read_from or 0, partition.deleted_below)
    unseen: list[Send] = []
    for send in partition.sends:
        if id(send) in log.read or judged.outcome(send) is not Outcome.OK:
            continue
        if send.offset is None or send.offset > max(highest, begin - 1):
            unseen.append(send)
        elif begin <= send.offset and send.offset not in partition.seen:  # else it is inconsistent
            last = partition.seen[highest].poll
            text = (
                f"{partition} offset {send.offset} {shown(send.value)} was acknowledged to"
                f" {judged.named(send)} and never polled; {judged.named(last)} polled offset {highest}"
            )
            yield found(LOST_WRITE, partition, [send.offset], [send.value], [send, last], text)
    if unseen:
        offsets = sorted(send.offset for send in unseen if send.offset is not None)
        where = f" at the offsets {ranges(offsets)}" if offsets else ""
        latest = max(unseen, key=lambda each: each.ended)
        text = (
            f"{partition} has {counted(len(unseen), 'acknowledged record')}{where} that no process polled,"
            f" the last one of {judged.named(latest)}"
        )
        yield found(UNSEEN, partition, offsets, [send.value for send in unseen], [latest], text)


def unwritten(judged: Judged, log: Log) -> Iterator[Finding]:
    elsewhere = [offsets[0] for offsets in repeated_values(judged, log).values() if len(offsets) == 1]
    for offset in [*log.unsent, *elsewhere]:
        acknowledged = log.acknowledged.get(offset)
        if acknowledged is not None and judged.outcome(acknowledged) is Outcome.OK:
            continue  # inconsistent
        value, poll, _ = log.partition.seen[offset]
        text = f"{log.partition} offset {offset} {shown(value)} was polled by {judged.named(poll)}"
        yield found(UNSENT, log.partition, [offset], [value], [poll], f"{text}, and no process sent it there")


def taken_back(judged: Judged, log: Log) -> Iterator[Finding]:
    """Records of failed sends that were polled, and records of aborted transactions that were polled as committed."""
    for offset, send in log.writers.items():
        sight = log.partition.seen[offset]
        reader = sight.poll if send.outcome is Outcome.FAILED else sight.committed
        if reader is None or judged.outcome(send) is not Outcome.FAILED:
            continue
        if send.transaction is not None and reader.transaction is send.transaction:
            continue  # its own uncommitted record
        what = "whose send failed" if send.outcome is Outcome.FAILED else "of an aborted transaction"
        text = (
            f"{log.partition} offset {offset} {shown(send.value)} of {judged.named(send)}, {what},"
            f" was polled by {judged.named(reader)}"
        )
        yield found(ABORTED_READ, log.partition, [offset], [send.value], [send, reader], text)
