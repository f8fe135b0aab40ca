"""A conversation drawn from a seed: topics of all formats, and everything that is done with records, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minibroker.conformance.asking import CODECS, TIME_MS, create_all, delete_records, fetch, list_offsets, produce_all
from minibroker.conformance.generated_groups import generated_groups
from minibroker.conformance.generated_oddities import GeneratedOddities
from minibroker.conformance.generated_transactions import GeneratedTransactions, generated_transactions
from minibroker.conformance.steps import Batch, Joined, Script, SessionOf, Step, drop, look

MOVES = 30
MOST_ODD_MOVES = (8, 6, 8, 2)  # of each kind, beside some 25 others to choose from
LAST_VERSION_OF_MESSAGE_SETS = 2
PARTITION_BYTES = (0, 1, 60, 100, 300, 700, 1500, 5000, 1 << 20)
RESPONSE_BYTES = (0, 100, 400, 1000, 3000, 50 << 20, 50 << 20)
CONFIGS: dict[str, tuple[Any, ...]] = {
    "message_format_version": (None, None, None, "0.10.2", "0.9.0", "0.11.0"),
    "message_timestamp_type": (None, None, None, "LogAppendTime"),
    "segment_bytes": (None, 400, 1000, 2500),
    "compression_type": (None, None, None, "gzip", "snappy", "lz4", "uncompressed"),
    "index_interval_bytes": (None, 1, 300),
    "max_message_bytes": (None, None, 250, 1000),
    "cleanup_policy": (None, None, None, None, "compact", "compact,delete"),
    "message_downconversion_enable": (None, None, None, None, "false"),
    "min_insync_replicas": (None, None, None, None, None, None, 2),
    "message_timestamp_difference_max_ms": (None,) * 9 + (1 << 50,),
}


class Generator:
    """Draws one conversation; it knows what was asked, and guesses from that where the logs end."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._partitions: list[tuple[str, int]] = []
        self._transactable: list[tuple[str, int]] = []  # those that can hold transactions, and their markers
        self._ends: dict[tuple[str, int], int] = {}
        self._deleted: set[tuple[str, int]] = set()
        self._packed_by_lz4: set[str] = set()
        self._segment_bytes: dict[str, Any] = {}
        self._sequences: dict[tuple[str, int, int], tuple[int, int]] = {}  # epoch and next one, by producer
        self._sessions: list[tuple[str, int]] = []  # names and next epochs
        self._time_ms = TIME_MS
        self._numbers = iter(range(1000))

    def script(self) -> Script:
        script = [self._create()]
        moves = [self._produce] * 9 + [self._fetch] * 7 + [self._session] * 4 + [self._list_offsets] * 2
        moves += [self._delete_records, self._wait]
        oddities = GeneratedOddities(
            self._random, self._partitions, self._ends, self._rows, self._deleted, self._changed_configs
        )
        odd_moves = [oddities.odd_set, oddities.offsets_for_a_replica, oddities.lying, oddities.alter]
        for move, most in zip(odd_moves, MOST_ODD_MOVES, strict=True):
            moves += [move] * self._one_of((0, 0, most))
        if self._transactable:
            transactions = GeneratedTransactions(self._random, self._transactable, self._ends, self._rows)
            moves += [transactions.move] * self._one_of((0, 10))
        while len(script) < MOVES:
            script += self._random.choice(moves)()
        return script

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _is_lucky(self, chance: float) -> bool:
        return self._random.random() < chance

    def _create(self) -> Step:
        topics = []
        for name in ("@a", "@b", "@c")[: self._random.randint(1, 3)]:
            drawn = self._configs(name)
            self._segment_bytes[name] = drawn["segment_bytes"]
            count = self._random.randint(1, 3)
            topics.append((name, count, {config: value for config, value in drawn.items() if value is not None}))
            self._partitions += [(name, partition) for partition in range(count)]
            if drawn["message_format_version"] in (None, "0.11.0") and drawn["min_insync_replicas"] is None:
                self._transactable += [(name, partition) for partition in range(count)]
        return create_all(*topics)

    def _configs(self, topic: str) -> dict[str, Any]:
        drawn = {config: self._one_of(values) for config, values in CONFIGS.items()}
        if drawn["message_timestamp_type"]:
            # What compressed times come to in bytes is a matter of time.
            drawn["compression_type"] = "uncompressed"
        if drawn["compression_type"] == "lz4":
            self._packed_by_lz4.add(topic)
        return drawn

    def _changed_configs(self, topic: str) -> dict[str, Any]:
        """Other configs of a topic, with which its transactions can still end.

        Its segments stay as large as they were: a batch larger than that is lost on 2.0.1 (docs/differences.md).
        """
        drawn = {**self._configs(topic), "segment_bytes": self._segment_bytes[topic]}
        if any(name == topic for name, _ in self._transactable):
            drawn["min_insync_replicas"] = drawn["message_format_version"] = None
        return {config: value for config, value in drawn.items() if value is not None}

    def _rows(self) -> tuple[tuple[Any, ...], ...]:
        rows: list[tuple[Any, ...]] = []
        for _ in range(self._one_of((1, 1, 2, 3, 5, 12))):
            self._time_ms += self._random.randint(-20, 60)
            key = None if self._is_lucky(0.1) else self._one_of((b"", b"key", 30))
            value = self._one_of((None, 0, 5, 40, 120, -80, 300))
            row: tuple[Any, ...] = (self._time_ms, key, value)
            if self._is_lucky(0.1):
                row = (*row, (("name", b"value"), ("none", None))[: self._random.randint(1, 2)])
            rows.append(row)
        return tuple(rows)

    def _batch(self, version: int, at: tuple[str, int]) -> Batch:
        magic = 2 if version > LAST_VERSION_OF_MESSAGE_SETS else self._one_of((0, 1, 1, 2))
        rows = self._rows()
        codec = self._one_of(tuple(CODECS.values()))
        if codec == CODECS["lz4"] or at[0] in self._packed_by_lz4:
            rows = (*rows, (self._time_ms, b"key", 120))  # a few bytes are packed otherwise, docs/differences.md
        if magic < 2:
            rows = tuple(row[:3] for row in rows)
            return Batch(rows, magic=magic, codec=codec, first_offset=self._one_of((0, 0, 7)))
        producer = self._producer(at, len(rows)) if self._is_lucky(0.25) else (-1, -1, -1)
        return Batch(rows, codec=codec, producer=producer)

    def _producer(self, at: tuple[str, int], count: int) -> tuple[int, int, int]:
        producer_id = self._one_of((7001, 7002))
        epoch, sequence = self._sequences.get((*at, producer_id), (0, 0))
        luck = self._random.random()
        if luck < 0.15:
            return producer_id, epoch, max(0, sequence - self._random.randint(1, 6))
        if luck < 0.2:
            return producer_id, epoch, sequence + 1
        if luck < 0.3:
            epoch, sequence = epoch + 1, 0
        self._sequences[(*at, producer_id)] = (epoch, sequence + count)
        return producer_id, epoch, sequence

    def _produce(self, most: int = 2) -> list[Step]:
        version = self._random.randint(0, 6)
        topics: dict[str, list[Any]] = {}
        for at in self._random.sample(self._partitions, min(len(self._partitions), most, self._one_of((1, 1, 2)))):
            what: Any = self._batch(version, at)
            count = len(what.rows)
            if version <= LAST_VERSION_OF_MESSAGE_SETS and self._is_lucky(0.2):
                other = self._batch(version, at)
                what, count = Joined((what, other), cut=self._one_of((0, 0, 5))), count + len(other.rows)
            self._ends[at] = self._ends.get(at, 0) + count
            topics.setdefault(at[0], []).append((at[1], what))
        return [produce_all(*topics.items(), version=version, acks=self._one_of((1, -1, -1, 0)))]

    def _offset(self, at: tuple[str, int]) -> int:
        end = self._ends.get(at, 0)
        if self._is_lucky(0.05):
            return int(self._one_of((-1, end + 3)))
        return int(self._one_of((0, end, self._random.randint(0, end))))

    def _positions(self, largest: int = 4) -> list[tuple[Any, ...]]:
        chosen = [self._one_of(self._partitions) for _ in range(self._random.randint(1, largest))]
        if self._is_lucky(0.05):
            chosen.append(("@unknown", 0))
        return [(*at, self._offset(at), self._one_of(PARTITION_BYTES)) for at in chosen]

    def _knobs(self) -> dict[str, Any]:
        return {
            "max_bytes": self._one_of(RESPONSE_BYTES),
            "min_bytes": self._one_of((0, 1, 1, 500)),
            "isolation_level": self._one_of((0, 0, 1)),
            "replica_id": self._one_of((-1, -1, -1, -1, -1, -1, -2, 5)),
        }

    def _fetch(self) -> list[Step]:
        return [fetch(*self._positions(), version=self._random.randint(0, 8), **self._knobs())]

    def _session(self) -> list[Step]:
        version = self._one_of((7, 8))
        if not self._sessions or self._is_lucky(0.3):
            name = f"f{next(self._numbers)}"
            self._sessions.append((name, 1))
            return [fetch(*self._positions(), version=version, session=(0, 0), name=name, **self._knobs())]
        place = self._random.randrange(len(self._sessions))
        name, epoch = self._sessions[place]
        luck = self._random.random()
        if luck < 0.05:
            return [fetch(*self._positions(), version=version, session=(SessionOf(name), epoch + 1))]
        if luck < 0.1:
            self._sessions.pop(place)
            return [fetch(*self._positions(), version=version, session=(SessionOf(name), self._one_of((0, -1))))]
        self._sessions[place] = (name, epoch + 1)
        rows = self._positions(2) if self._is_lucky(0.4) else []
        forget: dict[str, list[int]] = {}
        if self._is_lucky(0.2):
            topic, partition = self._one_of(self._partitions)
            forget = {topic: [partition]}
        return [fetch(*rows, version=version, session=(SessionOf(name), epoch), forget=forget.items(), **self._knobs())]

    def _list_offsets(self) -> list[Step]:
        rows = []
        for _ in range(self._random.randint(1, 3)):
            at = self._one_of(self._partitions)
            time_ms = self._one_of((-1, -2, self._random.randint(TIME_MS - 50, self._time_ms + 50)))
            if at in self._deleted:
                time_ms = min(time_ms, -1)  # by time, docs/differences.md
            rows.append((*at, time_ms, self._random.randint(1, 9)))
        version = self._random.randint(0, 3)
        if version == 0:
            rows = [(*row[:2], min(row[2], -1), row[3]) for row in rows]  # by file times, which are the machine's
        return [list_offsets(*rows, version=version, isolation_level=self._one_of((0, 1)))]

    def _delete_records(self) -> list[Step]:
        at = self._one_of(self._partitions)
        self._deleted.add(at)
        return [delete_records((*at, self._one_of((-1, self._offset(at)))))]

    def _wait(self) -> list[Step]:
        """Park a fetch at the ends, write, and see whether that was enough.

        To one partition: of two, Apache Kafka may answer when it has written the first, in the order of a hash map.
        """
        knobs = {**self._knobs(), "min_bytes": self._one_of((1, 200, 1000)), "max_wait_ms": 60_000}
        rows = [(*row[:2], self._ends.get((row[0], row[1]), 0), row[3]) for row in self._positions(3)]
        parked = fetch(*rows, version=self._random.randint(0, 8), connection="parked", kind="park", **knobs)
        return [parked, *self._produce(1), look("parked"), *self._produce(1), look("parked"), drop("parked")]


def generated(seed: int, family: str = "") -> Script:
    """The conversation of a seed; the same seed, the same conversation. Without a family, seeds take turns."""
    if not family:
        family = list(FAMILIES)[seed % len(FAMILIES)]
    return FAMILIES[family](seed)


FAMILIES: dict[str, Callable[[int], Script]] = {
    "records": lambda seed: Generator(seed).script(),
    "groups": lambda seed: generated_groups(seed, MOVES),
    "transactions": lambda seed: generated_transactions(seed, 2 * MOVES),
}
