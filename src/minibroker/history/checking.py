"""Judges a history by all checks."""

from __future__ import annotations

from collections.abc import Collection

from minibroker.history.findings import CLASSES, WRITE_CYCLE, Finding
from minibroker.history.information import check_information
from minibroker.history.logs import Judged
from minibroker.history.model import History
from minibroker.history.offsets import check_offsets
from minibroker.history.reading_order import check_reading_order
from minibroker.history.records import check_records
from minibroker.history.sending_order import check_sending_order

ON_DEMAND = frozenset({WRITE_CYCLE})


def check(history: History, *, allowed: Collection[str] = (), also: Collection[str] = ()) -> list[Finding]:
    """The findings of a finished history, by class and place, without those of allowed classes.

    `also` names classes that are judged on demand: Kafka's transactions interleave their writes.
    """
    judged = Judged(history)
    findings = [
        *check_offsets(judged),
        *check_records(judged),
        *check_information(judged, write_cycles=WRITE_CYCLE in also),
        *check_reading_order(judged),
        *check_sending_order(judged),
    ]
    order = {name: rank for rank, name in enumerate(CLASSES)}
    wanted = [each for each in findings if each.kind not in allowed]
    return sorted(wanted, key=lambda each: (order[each.kind], each.places))
