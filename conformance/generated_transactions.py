"""Transactions in a generated conversation: producers that begin, write, commit, abort, and come back, right and wrong.

Only into partitions that can hold them: of the present format, with replicas enough for the markers. What differs on
purpose stays out (docs/differences.md): ending with a greater epoch than the producer's. Topics and groups of their own
are deleted and made again while transactions are open.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from minibroker.conformance.asking import TIME_MS, create, create_all, fetch, list_offsets, produce
from minibroker.conformance.generated_groups import TOPIC_EXISTS
from minibroker.conformance.steps import Batch, ProducerOf, Script, Step, call
from minibroker.protocol.errors import ErrorCode

At = tuple[str, int]
Rows = tuple[tuple[Any, ...], ...]
COORDINATOR_IS_NEW = (
    int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
    int(ErrorCode.NOT_COORDINATOR),
)
CONCURRENT = (int(ErrorCode.CONCURRENT_TRANSACTIONS),)
TRANSACTIONAL_IDS = ("@p", "@q")
FIRST_VERSION, LAST_VERSION = 3, 6  # of Produce, with transactions
GROUPS = ("@offsets-p", "@offsets-q")
MORTAL = "@mortal"  # a topic that is deleted and made again
STILL_THERE = (0,)  # Apache Kafka stops a partition after it has answered
TOPICS = ("@a", MORTAL)


def find(key: str = "@t", key_type: int = 1) -> Step:
    return call("FindCoordinator", 1, key=key, key_type=key_type, retry=COORDINATOR_IS_NEW)


def init(name: str = "p", transactional_id: str = "@t", *, version: int = 1, timeout_ms: int = 60_000) -> Step:
    who: dict[str, Any] = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
    return call("InitProducerId", version, name=name, retry=(*COORDINATOR_IS_NEW, *CONCURRENT), **who)


def init_once(transactional_id: str = "@t", *, timeout_ms: int = 60_000) -> Step:
    """Not asked again: Apache Kafka says CONCURRENT_TRANSACTIONS when it has to abort first."""
    return call("InitProducerId", 1, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)


def of(epoch: int = 0, name: str = "p", transactional_id: str = "@t") -> dict[str, Any]:
    """The asking producer, made by the step of that name."""
    return {"transactional_id": transactional_id, "producer_id": ProducerOf(name), "producer_epoch": epoch}


def add(topic: str = "@a", *partitions: int, version: int = 1, **who: Any) -> Step:
    topics = [(topic, list(partitions or (0,)))]
    return call("AddPartitionsToTxn", version, topics=topics, retry=CONCURRENT, **(of() | who))


def end(is_commit: bool = True, *, version: int = 1, **who: Any) -> Step:
    return call("EndTxn", version, is_commit=is_commit, **(of() | who))


def ended(is_commit: bool = True, **who: Any) -> list[Step]:
    """End, and wait until that is done."""
    return [end(is_commit, **who), call("EndTxn", 1, is_commit=is_commit, retry=CONCURRENT, **(of() | who))]


@dataclass
class TransactionalProducer:
    """The producer's answers so far; `step` is the one that made it."""

    transactional_id: str
    step: str
    epoch: int = 0
    partitions: set[At] = field(default_factory=set)  # in the open transaction
    sequences: dict[At, int] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)  # in the open transaction
    is_open: bool = False

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
        self._is_mortal_there = True

    def wild_move(self) -> list[Step]:
        """A move, or one that goes wrong, or takes a topic or a group away."""
        luck = self._random.random()
        if not self._producers or luck < 0.55:
            return self.move()
        producer = self._random.choice(self._producers)
        return self._random.choice(
            [self._add_wrongly, self._end_wrongly, self._write_wrongly, self._look]
            + [self._commit_offsets, self._take_away] * 2
        )(producer)

    def _wrong_identity(self, producer: TransactionalProducer) -> dict[str, Any]:
        """A lesser epoch, another's id, or none."""
        other = next((each.step for each in self._producers if each is not producer), "none")
        return self._random.choice(
            (
                producer.identity | {"producer_epoch": producer.epoch - 1},
                producer.identity | {"producer_id": ProducerOf(other)},
                producer.identity | {"producer_id": -1},
                producer.identity | {"transactional_id": "@unknown"},
                producer.identity | {"transactional_id": ""},
            )
        )

    def _add_wrongly(self, producer: TransactionalProducer) -> list[Step]:
        at = self._random.choice((*self._partitions, ("@unknown", 0), ("@a", 99)))
        version = self._random.randint(0, 1)
        if self._random.random() < 0.3:
            return [call("AddOffsetsToTxn", version, group_id=GROUPS[0], **self._wrong_identity(producer))]
        identity = self._wrong_identity(producer)
        if at not in self._partitions:
            identity = producer.identity
        return [call("AddPartitionsToTxn", version, topics=[(at[0], [at[1]])], **identity)]

    def _end_wrongly(self, producer: TransactionalProducer) -> list[Step]:
        if self._random.random() < 0.3:  # either aborts what is open, or begins anew
            return [init_once(producer.transactional_id), *self._come_back(producer, epochs=2)]
        return [end(self._random.random() < 0.5, **self._wrong_identity(producer))]

    def _write_wrongly(self, producer: TransactionalProducer) -> list[Step]:
        """A wrong epoch or sequence, outside of the transaction or as if there were none."""
        at = self._random.choice(self._partitions)
        rows, sequence = self._make_rows(), producer.sequences.get(at, 0)
        sequence += self._random.choice((-3, -1, 0, 0, 1, 5))
        self._ends[at] = self._ends.get(at, 0) + len(rows)
        whose = self._random.choice((producer, producer, self._random.choice(self._producers)))
        epoch = whose.epoch - self._random.choice((0, 0, 1))  # a greater one would fence the markers, for ever
        given = Batch(
            rows,
            producer=(ProducerOf(whose.step), max(0, epoch), max(0, sequence)),
            is_transactional=self._random.random() < 0.7,
        )
        named = self._random.choice((producer.transactional_id, producer.transactional_id, None))
        version = self._random.randint(FIRST_VERSION, LAST_VERSION)
        return [produce(at[0], given, at[1], version=version, transactional_id=named)]

    def _commit_offsets(self, producer: TransactionalProducer) -> list[Step]:
        group = self._random.choice(GROUPS)
        identity = producer.identity
        steps = []
        if group not in producer.groups and self._random.random() < 0.9:
            steps.append(call("AddOffsetsToTxn", 1, group_id=group, retry=CONCURRENT, **identity))
            producer.groups.add(group)
            producer.is_open = True
        metadata = self._random.choice(("m", "", None, "x" * 5000))
        rows = [(topic, [(0, self._random.randint(0, 9), -1, metadata)]) for topic in self._random.sample(TOPICS, 1)]
        if self._random.random() < 0.2:
            identity |= {"producer_epoch": -1}  # an older one is fenced here, and not by Apache Kafka 2.0.1
        version = self._random.randint(0, 1)
        return [
            *steps,
            call("TxnOffsetCommit", version, group_id=group, topics=rows, **identity),
            *self._look(producer),
        ]

    def _take_away(self, producer: TransactionalProducer) -> list[Step]:
        group = self._random.choice(GROUPS)
        luck = self._random.random()
        if luck < 0.4:
            return [call("DeleteGroups", 1, group_names=[group])]
        self._ends.update({(MORTAL, 0): 0, (MORTAL, 1): 0})
        for each in self._producers:
            for at in ((MORTAL, 0), (MORTAL, 1)):
                each.sequences.pop(at, None)
        deleted = [
            call("DeleteTopics", 1, topic_names=[MORTAL], timeout_ms=20_000),
            *(replace(list_offsets((MORTAL, partition, -1)), retry=STILL_THERE) for partition in range(2)),
        ]
        self._is_mortal_there = luck > 0.5
        return [*deleted, replace(create(MORTAL, 2), retry=TOPIC_EXISTS)] if self._is_mortal_there else deleted

    def _look(self, _: TransactionalProducer) -> list[Step]:
        group = self._random.choice(GROUPS)
        at = self._random.choice(self._partitions)
        level = self._random.randint(0, 1)
        return [
            self._random.choice(
                (
                    call("OffsetFetch", self._random.randint(2, 4), group_id=group, topics=None),
                    call("DescribeGroups", 1, groups=[group]),
                    call("ListGroups", 1),
                    fetch((*at, self._random.randint(0, self._ends.get(at, 0))), isolation_level=level),
                    list_offsets((*at, -1), isolation_level=level),
                )
            )
        ]

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

    def _come_back(self, producer: TransactionalProducer, *, epochs: int = 0) -> list[Step]:
        """Another of its name: what was open is aborted, under an epoch of its own."""
        producer.epoch += epochs or (2 if producer.is_open else 1)
        producer.step = self._next_name()
        producer.sequences.clear()
        self._close(producer)
        return [init(producer.step, producer.transactional_id)]

    def _write(self, producer: TransactionalProducer) -> list[Step]:
        at = self._random.choice(self._partitions)
        steps = []
        if at not in producer.partitions and self._random.random() < 0.95:
            steps.append(add(*at, **producer.identity))
            if at[0] != MORTAL or self._is_mortal_there:
                producer.partitions.add(at)
                producer.is_open = True
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
        producer.groups.clear()
        producer.is_open = False


def generated_transactions(seed: int, moves: int) -> Script:
    """A conversation of transactions in each other, right and wrong, over topics and groups that come and go."""
    rng = random.Random(seed)
    partitions = [(topic, partition) for topic in TOPICS for partition in range(2)]

    def rows() -> Rows:
        return tuple((TIME_MS + number, b"key", rng.choice((5, 40))) for number in range(rng.randint(1, 3)))

    transactions = GeneratedTransactions(rng, partitions, {}, rows)
    script: Script = [create_all(*((topic, 2, {}) for topic in TOPICS)), call("FindCoordinator", 0, key=GROUPS[0])]
    while len(script) < moves:
        script += transactions.wild_move()
    return script
