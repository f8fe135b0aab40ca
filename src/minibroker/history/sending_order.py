"""Are a process's acknowledged sends to a partition in the log in the order in which it sent them?"""

from __future__ import annotations

from collections.abc import Iterator

from minibroker.history.findings import SEND_ORDER, SEND_ORDER_IN_TRANSACTION, Finding, found, shown
from minibroker.history.logs import Judged
from minibroker.history.model import Outcome, Partition, Send


def check_sending_order(judged: Judged) -> Iterator[Finding]:
    for process in judged.history.processes.values():
        last: dict[Partition, tuple[int, Send]] = {}
        for send in process.sends:
            if send.outcome is not Outcome.OK or send.offset is None or send.partition is None:
                continue
            before = last.get(send.partition)
            if before is None or before[0] < send.offset:
                last[send.partition] = (send.offset, send)
            elif before[0] > send.offset:
                yield out_of_order(judged, send.partition, before[1], send)


def out_of_order(judged: Judged, partition: Partition, first: Send, second: Send) -> Finding:
    is_inside = first.transaction is not None and first.transaction is second.transaction
    text = (
        f"{partition} has {shown(second.value)} of {judged.named(second)} at offset {second.offset}, before"
        f" {shown(first.value)} at offset {first.offset}, which {judged.named(first)} sent earlier"
    )
    return found(
        SEND_ORDER_IN_TRANSACTION if is_inside else SEND_ORDER,
        partition,
        [offset for offset in (first.offset, second.offset) if offset is not None],
        [first.value, second.value],
        [first, second],
        text + (" in the same transaction" if is_inside else ""),
    )
