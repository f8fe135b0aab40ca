"""Compares a conversation that was held with two brokers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from minibroker.conformance.answers import Plain, differences, differing
from minibroker.conformance.conversation import SocketPeer
from minibroker.conformance.recordings import Delta
from minibroker.conformance.steps import Script, Step, call

COORDINATOR_POLL_SECONDS = 0.1


class Difference(NamedTuple):
    """The first step that was answered differently, and how."""

    number: int
    step: Step
    fields: list[str]

    def __str__(self) -> str:
        return "\n".join([f"step {self.number}: {self.step!r}", *(f"    {each}" for each in self.fields)])


def first_difference(
    script: Script, kafkas: list[Plain], ours: list[Plain], *, strict: bool = True
) -> Difference | None:
    """The first answer that differs. Raises ValueError if there are not as many, unless `strict` is off."""
    answered = (step for step in script if step.kind != "drop")
    for number, (step, theirs, mine) in enumerate(zip(answered, kafkas, ours, strict=strict)):
        found = differences(theirs, mine)
        if found:
            return Difference(number, step, found)
    return None


def deltas_between(kafkas: Sequence[Plain], others: Sequence[Plain]) -> list[Delta]:
    return [
        Delta(number, path, value)
        for number, (theirs, ours) in enumerate(zip(kafkas, others, strict=True))
        for path, value, _ in differing(theirs, ours)
    ]


def wait_for_coordinator(peer: SocketPeer) -> None:
    """Apache Kafka makes its topic of groups some time after it is first asked for, and then loads it."""
    ready: Script = [call("FindCoordinator", 0, key="g"), call("OffsetFetch", 2, group_id="g", topics=[])]
    while any(answer["error_code"] for answer in peer.hold(ready, "")):
        time.sleep(COORDINATOR_POLL_SECONDS)
