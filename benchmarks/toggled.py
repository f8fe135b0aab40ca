"""The cost of what can be turned on and off in a running broker: in turns of less than half a second, under
one load that goes on.

Two processes of the same program differ by some percent, and so do two loads: more than what is measured here. The load
is measured by the bytes on the loopback device, which no other process may use meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.measurements import MINIBROKER, PLAIN, Samples
from benchmarks.processes import ProcessError
from benchmarks.topics import Broker

WARM_UP_SECONDS = 1.5
TURN_SECONDS = 0.4
SETTLE_SECONDS = 0.05
SLACK_SECONDS = 2.0
PAIRS_A_ROUND = 5
RECEIVED_BYTES = 1  # its place in a line of /proc/net/dev

Load = Callable[[float], Mapping[str, float]]  # for so many seconds


class Turn(NamedTuple):
    bytes_per_s: float
    cpu_per_byte: float


def toggled(broker: Broker, load: Load, toggle: Callable[[bool], None], *, rounds: int) -> Samples:
    """Samples of `per_s` and `cpu_us` with it on (MINIBROKER) and off (PLAIN). Raises ProcessError."""
    turns: dict[str, list[Turn]] = {PLAIN: [], MINIBROKER: []}
    pairs = rounds * PAIRS_A_ROUND
    result: list[Mapping[str, float]] = []
    seconds = WARM_UP_SECONDS + 2 * pairs * (TURN_SECONDS + SETTLE_SECONDS) + SLACK_SECONDS
    loading = threading.Thread(target=lambda: result.append(load(seconds)))
    before = loopback_bytes()
    loading.start()
    time.sleep(WARM_UP_SECONDS)
    for pair in range(pairs):
        for is_on in (False, True) if pair % 2 else (True, False):
            toggle(is_on)
            time.sleep(SETTLE_SECONDS)
            turns[MINIBROKER if is_on else PLAIN].append(one_turn(broker))
    loading.join()
    if not result:
        raise ProcessError("the load ended with an error")
    bytes_a_request = (loopback_bytes() - before) / result[0]["requests"]
    return {
        "per_s": {name: [each.bytes_per_s / bytes_a_request for each in row] for name, row in turns.items()},
        "cpu_us": {name: [each.cpu_per_byte * bytes_a_request * 1e6 for each in row] for name, row in turns.items()},
    }


def one_turn(broker: Broker) -> Turn:
    began, cpu_before, bytes_before = time.perf_counter(), broker.cpu_seconds(), loopback_bytes()
    time.sleep(TURN_SECONDS)
    sent_bytes = loopback_bytes() - bytes_before
    return Turn(sent_bytes / (time.perf_counter() - began), (broker.cpu_seconds() - cpu_before) / sent_bytes)


def loopback_bytes() -> int:
    """The bytes that the loopback device has carried."""
    line = next(each for each in Path("/proc/net/dev").read_text().splitlines() if each.strip().startswith("lo:"))
    return int(line.split()[RECEIVED_BYTES])
