"""The catalogue of metrics: one line a metric, with what it is read from.

A block is a family, which has an MBean type of Kafka, and a row for each value of its keys:

    log = kafka.log:type=Log (topic, partition)
      Size | size_bytes | gauge bytes | of all segments

A metric has Kafka's name, its reader, its kind and unit, its meaning, and its name for Prometheus where the rules of
the JMX exporter do not make it. The reader is the path of an attribute of what the row is made of, the length of one as
`len(segments)`, a number, or `self`. A metric without a kind is not for Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Self

Value = float | int | str | Mapping[str, float]  # of a metric; an object has the attributes of Kafka's histogram


class Metric(NamedTuple):
    """A line of the catalogue."""

    name: str
    reader: str
    kind: str = ""
    unit: str = ""
    text: str = ""
    prometheus: str = ""

    @classmethod
    def of(cls, line: str) -> Self:
        name, reader, *rest = line.split(" | ")
        kind, _, unit = rest[0].partition(" ") if rest else ("", "", "")
        return cls(name, reader, kind, unit, *rest[1:])

    def reading(self) -> Callable[[Any], Any]:
        """Return the function that reads the metric."""
        if self.reader == "self":
            return lambda thing: thing
        if self.reader.isdecimal():
            number = int(self.reader)
            return lambda thing: number
        if self.reader.startswith("len("):
            sized = attrgetter(self.reader[4:-1])
            return lambda thing: len(sized(thing))
        return attrgetter(self.reader)


class Family:
    """Metrics of one MBean type with the same keys."""

    def __init__(self, type: str, keys: Sequence[str], metrics: Sequence[Metric]) -> None:
        self.type = type
        self.keys = tuple(keys)
        self.metrics = tuple(metrics)
        self.readers = [each.reading() for each in metrics]

    def row(self, keys: Sequence[Value], thing: Any) -> Found:
        return self, (*keys, *[read(thing) for read in self.readers])

    def alone(self) -> Iterator[Family]:
        """A family of each metric."""
        return (Family(self.type, self.keys, [each]) for each in self.metrics)

    def head(self) -> dict[str, Any]:
        """The family without rows, for JSON: of each metric its kind, unit, meaning and name for Prometheus."""
        about = [(each.kind, each.unit, each.text, each.prometheus) for each in self.metrics]
        return {"type": self.type, "keys": self.keys, "names": [each.name for each in self.metrics], "about": about}


Row = Sequence[Value]
Found = tuple[Family, Row] | None  # None: a moment at which the scan may pause


def families(catalogue: str) -> dict[str, Family]:
    """The families of a catalogue, by their names in it."""
    found: dict[str, Family] = {}
    for block in catalogue.strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, _, subject = head.partition(" = ")
        mbean_type, _, keys = subject.partition(" (")
        metrics = [Metric.of(line.strip()) for line in lines]
        found[name] = Family(mbean_type, keys.removesuffix(")").split(", ") if keys else (), metrics)
    return found
