"""The records of share groups that are in flight, as the brokers of a minibroker keep them: who has them since when.

Kafka's protocol has no request for that; the control socket of a minibroker has.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from minibroker.any_cluster.cluster import at_once
from minibroker.any_cluster.shortfalls import lacks
from minibroker.control import Control
from minibroker.errors import BrokerError
from minibroker.fetching_groups import UNKNOWN_CALL, controls_of


class SharedRecords(NamedTuple):
    """A run of records of the same state: "available" after a delivery, "acquired", "acknowledged" or "archived".

    `member_id` is empty unless a member has them; then `held_ms` is for how long, and `left_ms` for how long still.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    state: str
    delivery_count: int
    member_id: str
    held_ms: int
    left_ms: int

    @property
    def offsets(self) -> str:
        """`3-5`, or `3` of a single one."""
        return (
            f"{self.first_offset}-{self.last_offset}" if self.last_offset > self.first_offset else f"{self.last_offset}"
        )


def shared_records(control: Control, group: str) -> list[SharedRecords]:
    """The records of a share group in flight, of all brokers, in order. Raises BrokerError."""
    controls = controls_of(control)
    asked = {broker: partial(each.call, "shared_records", group_id=group) for broker, each in controls.items()}
    found: list[SharedRecords] = []
    for broker, answer in at_once(asked).items():
        if not isinstance(answer, Exception):
            found += [SharedRecords(*row) for row in answer]
        elif isinstance(answer, BrokerError) and answer.code == UNKNOWN_CALL:
            continue  # it serves no share groups
        elif isinstance(answer, BrokerError) and len(controls) > 1:
            lacks(f"broker {broker}: {answer}; its records in flight are not shown")
        else:
            raise answer
    return joined(sorted(found))


def joined(rows: Iterable[SharedRecords]) -> list[SharedRecords]:
    """The runs, those next to each other as one where nothing but their offsets differs."""
    found: list[SharedRecords] = []
    for row in rows:
        last = found[-1] if found else None
        if last is not None and row == last._replace(first_offset=last.last_offset + 1, last_offset=row.last_offset):
            found[-1] = last._replace(last_offset=row.last_offset)
        else:
            found.append(row)
    return found
