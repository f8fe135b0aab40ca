"""Transactions in a generated conversation: producers that begin, write, commit, abort, and come back, right and wrong.

Only into partitions that can hold them: of the present format, with replicas enough for the markers. What differs on
purpose stays out (docs/differences.md): ending with a greater epoch than the producer's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.asking import produce
from tests.conformance.scripts.transactions import add, end, ended, find, init, of
from tests.conformance.steps import Batch, ProducerOf, Step

At = tuple[str, int]
Rows = tuple[tuple[Any, ...], ...]
TRANSACTIONAL_IDS = ("@p", "@q")
FIRST_VERSION, LAST_VERSION = 3, 6  # of Produce, with transactions


@dataclass
class TransactionalProducer:
    """What it was told so far; `step` is the one that made it."""

    transactional_id: str
    step: str
    epoch: int = 0
    partitions: set[At] = field(default_factory=set)  # in the open transaction
    sequences: dict[At, int] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, Any]:
        return of(self.epoch, self.step, self.transactional_id)


class GeneratedTransactions:
    """Draws moves of transactional producers. `make_rows` draws records; `ends` is told what is written where."""

    def __init__(
        self, rng: random.Random, partitions: Sequence[At], ends: dict[At, int], make_rows: Callable[[], Rows]
    ) -> None:
        self._random = rng
        self._partitions = partitions
        self._ends = ends
        self._make_rows = make_rows
        self._producers: list[TransactionalProducer] = []
        self._count = 0

    def move(self) -> list[Step]:
        if len(self._producers) < len(TRANSACTIONAL_IDS) and self._random.random() < (0.2 if self._producers else 1):
            return self._begin(TRANSACTIONAL_IDS[len(self._producers)])
        producer = self._random.choice(self._producers)
        luck = self._random.random()
        if luck < 0.65:
            return self._write(producer)
        return self._end(producer) if luck < 0.92 else self._come_back(producer)

    def _begin(self, transactional_id: str) -> list[Step]:
        producer = TransactionalProducer(transactional_id, self._next_name())
        self._producers.append(producer)
        return [find(transactional_id), init(producer.step, transactional_id)]

    def _next_name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _come_back(self, producer: TransactionalProducer) -> list[Step]:
        """Another of its name: what was open is aborted, under an epoch of its own."""
        producer.epoch += 2 if producer.partitions else 1
        producer.step = self._next_name()
        producer.sequences.clear()
        self._close(producer)
        return [init(producer.step, producer.transactional_id)]

    def _write(self, producer: TransactionalProducer) -> list[Step]:
        at = self._random.choice(self._partitions)
        steps = []
        if at not in producer.partitions and self._random.random() < 0.95:
            steps.append(add(*at, **producer.identity))
            producer.partitions.add(at)
        rows, sequence = self._make_rows(), producer.sequences.get(at, 0)
        luck = self._random.random()
        if luck < 0.1:
            sequence = max(0, sequence - self._random.randint(1, 4))  # sent before, perhaps
        elif luck < 0.15:
            sequence += 1
        else:
            producer.sequences[at] = sequence + len(rows)
        self._ends[at] = self._ends.get(at, 0) + len(rows)
        epoch = producer.epoch - (1 if producer.epoch and self._random.random() < 0.1 else 0)
        given = Batch(rows, producer=(ProducerOf(producer.step), epoch, sequence), is_transactional=True)
        version = self._random.randint(FIRST_VERSION, LAST_VERSION)
        return [*steps, produce(at[0], given, at[1], version=version, transactional_id=producer.transactional_id)]

    def _end(self, producer: TransactionalProducer) -> list[Step]:
        is_commit = self._random.random() < 0.5
        self._close(producer)
        steps = ended(is_commit, **producer.identity)
        return [*steps, end(not is_commit, **producer.identity)] if self._random.random() < 0.1 else steps

    def _close(self, producer: TransactionalProducer) -> None:
        for at in producer.partitions:
            self._ends[at] = self._ends.get(at, 0) + 1
        producer.partitions.clear()
