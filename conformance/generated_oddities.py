"""Oddities that no library sends, in a generated conversation: odd message sets, requests that lie about their lengths.

And what few do: ListOffsets in the name of a replica, topics whose configuration changes under traffic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from minibroker.conformance.asking import CODECS, TIME_MS, config_rows, delete_records, fetch, list_offsets, produce
from minibroker.conformance.lies import Lie
from minibroker.conformance.steps import Batch, Step, Wrapper, call

At = tuple[str, int]
Rows = tuple[tuple[Any, ...], ...]
TOPIC = 2  # of the resource types
REPLICAS = (-1, -1, -2, -3, -9, 0, 7)
NUMBERS = (1, -1, 0, -2, -5, -(2**31), 2**31 - 1, 1000, 70_000, None, None, None)


class GeneratedOddities:
    """Draws odd moves. `make_rows` draws records, `change` a topic's new configs; `ends` has where the logs may end.

    Those in `deleted` are not searched by time, nor is a message inside larger than the memory (docs/differences.md).
    """

    def __init__(
        self,
        rng: random.Random,
        partitions: Sequence[At],
        ends: dict[At, int],
        make_rows: Callable[[], Rows],
        deleted: Set[At],
        change: Callable[[str], Mapping[str, Any]],
    ) -> None:
        self._random = rng
        self._partitions = partitions
        self._ends = ends
        self._make_rows = make_rows
        self._deleted = deleted
        self._change = change

    def odd_set(self) -> list[Step]:
        """Write a wrapper with any offsets, perhaps cut or damaged."""
        at = self._one_of(self._partitions)
        rows = tuple(row[:3] for row in self._make_rows())
        self._ends[at] = self._ends.get(at, 0) + len(rows)
        return [produce(at[0], self._wrapper(rows), at[1], version=self._version_of_sets())]

    def _version_of_sets(self) -> int:
        return self._random.randint(0, 2)

    def _plain_set(self) -> Batch:
        return Batch(tuple(row[:3] for row in self._make_rows()), magic=self._one_of((0, 1)))

    def _wrapper(self, rows: Rows) -> Wrapper:
        first, step = self._one_of((0, 0, 50, -2)), self._one_of((1, 1, 1, 2, 0, -1))
        offsets = tuple(first + step * number for number in range(len(rows)))
        options: dict[str, Any] = {}
        luck = self._random.random()
        if luck < 0.15:
            options["cut"] = self._random.randint(1, 80)
        elif luck < 0.25:
            options["damage"] = ((self._random.randint(0, 12), ">b", self._one_of((0, 1, 99, -1))),)
        elif luck < 0.3:
            options["packed_for"] = self._one_of((0, 1))
        elif luck < 0.4:
            options["attributes"] = 8
        elif luck < 0.5:
            options["edits"] = ((self._one_of((8, 12, 16, 17)), ">b", self._one_of((0, 1, 2, 3))),)
        return Wrapper(
            rows,
            offsets,
            self._one_of((0, offsets[-1], offsets[-1], len(rows) - 1, 1000)),
            magic=self._one_of((0, 1, 1)),
            codec=self._one_of((CODECS["gzip"], CODECS["snappy"], CODECS["lz4"])),
            **options,
        )

    def offsets_for_a_replica(self) -> list[Step]:
        at, version = self._one_of(self._partitions), self._random.randint(0, 3)
        is_by_time = version > 0 and at not in self._deleted
        time_ms = self._one_of((-1, -1, -2, -3, TIME_MS + 20) if is_by_time else (-1, -1, -2))
        options = {"replica_id": self._one_of(REPLICAS), "isolation_level": self._one_of((0, 1))}
        return [list_offsets((*at, time_ms, 5), version=version, **options)]

    def lying(self) -> list[Step]:
        """A request with a wrong length, count or text; none that could make a topic."""
        topic, partition = self._one_of(self._partitions)
        step: Step = self._one_of(
            (
                fetch((topic, partition, 0), ("@unknown", 1, 0), version=self._random.randint(0, 8)),
                list_offsets((topic, partition, -1), ("@unknown", 1, -2), version=self._random.randint(0, 3)),
                produce(topic, self._plain_set(), partition, version=self._version_of_sets()),
                produce("@unknown", self._plain_set(), version=self._version_of_sets()),
                delete_records((topic, partition, 0), version=self._one_of((0, 1))),
                call("OffsetFetch", self._random.randint(1, 4), group_id="@g", topics=[(topic, [partition])]),
                call("OffsetCommit", 3, group_id="@g", topics=[(topic, [(partition, 5, -1, -1, "text")])]),
                call("FindCoordinator", self._one_of((0, 1)), key="@g"),
                call("DescribeGroups", self._one_of((0, 1)), groups=["@none", "@other"]),
                call("DeleteGroups", 1, group_names=["@none", "@other"]),
                call("Heartbeat", 1, group_id="@g", generation_id=1, member_id="none"),
                call("LeaveGroup", 1, group_id="@g", member_id="none"),
                call("DescribeConfigs", 0, resources=[(TOPIC, topic, ["retention.ms", "segment.ms"])]),
                call("OffsetForLeaderEpoch", 0, topics=[(topic, [(partition, -1, 0)])]),
            )
        )
        self._ends[topic, partition] = self._ends.get((topic, partition), 0) + 12
        lie = Lie(self._random.randrange(20), self._one_of(NUMBERS))
        return [call(step.api, step.version, lie=lie, **step.body)]

    def alter(self) -> list[Step]:
        """Change the configuration of a topic."""
        topic, _ = self._one_of(self._partitions)
        rows = config_rows(dict(self._change(topic)))
        return [call("AlterConfigs", self._one_of((0, 1)), resources=[(TOPIC, topic, rows)])]

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)
