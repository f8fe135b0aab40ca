"""Measurements: samples of a quantity for each contender, in rounds, and the ratios between them.

Absolute numbers differ from machine to machine and from hour to hour. So contenders run interleaved, and a ratio is
taken within each round, between runs a few seconds apart; the report has the median of those ratios.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MINIBROKER = "minibroker"
COMPILED = "minibroker compiled"  # by mypyc: `--compiled`
BEFORE = "minibroker before"  # of another checkout: `--against`
KAFKA = "Apache Kafka 2.0.1"
LATER_KAFKA = "Apache Kafka 4.4.0"  # for what 2.0.1 does not have
KAFKA_3 = "Apache Kafka 3.9.1"  # for clusters: the last one that ran with ZooKeeper, too
RAW = "raw sockets"
PLAIN = "minibroker plain"  # without what the case is about

ROUNDS_TO_CONCLUDE = 5  # in fewer, half of all quantities differ in every round by chance, or a quarter

Run = Callable[[], Mapping[str, float]]
Samples = dict[str, dict[str, list[float]]]  # metric -> contender -> one value a round


class Spread(NamedTuple):
    """A median with its minimum and maximum."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Median, minimum and maximum."""
    return Spread(statistics.median(values), min(values), max(values))


class Change(NamedTuple):
    """The change of a quantity; `is_apart` when the two spreads have nothing in common."""

    ratio: Spread
    is_worse: bool
    is_apart: bool

    @property
    def text(self) -> str:
        word = "worse" if self.is_worse else "better"
        return f"{word} beyond the spread" if self.is_apart else f"{word} in every round"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One quantity: `case` and `metric` name it, `text` describes it."""

    case: str
    metric: str
    text: str
    unit: str
    samples: Mapping[str, Sequence[float]]

    def of(self, contender: str) -> Spread | None:
        """The contender's spread, or None when it did not take part."""
        values = self.samples.get(contender)
        return spread(values) if values else None

    def ratio(self, contender: str, other: str) -> Spread | None:
        """Contender to other, round by round; None when one of them did not take part or measured nothing."""
        ours, theirs = self.samples.get(contender), self.samples.get(other)
        if not ours or not theirs or not all(theirs):
            return None
        return spread([mine / yours for mine, yours in zip(ours, theirs, strict=True)])

    @property
    def more_is_better(self) -> bool:
        """Of rates; of times, memory and CPU, less is."""
        return self.metric.endswith("_per_s")

    def change(self, contender: str, other: str) -> Change | None:
        """The difference that every round has; None without one, or if the rounds are too few for it."""
        ratio = self.ratio(contender, other)
        ours, theirs = self.of(contender), self.of(other)
        if ratio is None or ours is None or theirs is None or ratio.low <= 1 <= ratio.high:
            return None
        if len(self.samples[contender]) < ROUNDS_TO_CONCLUDE:
            return None
        is_apart = ours.low > theirs.high or theirs.low > ours.high
        return Change(ratio, (ratio.median < 1) == self.more_is_better, is_apart)


def interleave(runs: Mapping[str, Run], *, rounds: int, warm_ups: int, on_round: Callable[[int], None]) -> Samples:
    """Run each contender once a round, the first one last in every other round; warm-ups are not kept."""
    samples: Samples = {}
    for number in range(-warm_ups, rounds):
        on_round(number)
        order = list(runs) if number % 2 == 0 else list(runs)[::-1]
        for contender in order:
            measured = runs[contender]()
            if number < 0:
                continue
            for metric, value in measured.items():
                samples.setdefault(metric, {}).setdefault(contender, []).append(value)
    return samples
