"""Draws what one round does: the brokers and their settings, the clients, and the faults with their times.

All of it follows from a seed. What a fault strikes may be a role (the controller, a leader): the broker that has it is
found when the fault is due.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from minibroker.broker.wings.several.shared_state import COMPACTED_BYTES
from minibroker.cluster_verbs import Direction

SENT, TRANSACTED, COPIED = TOPICS = ("sent", "transacted", "copied")
COPIED_IN_V2 = "copied-in-v2"
CONTROLLER = "controller"  # as what a fault strikes; another role is the leader of a partition, `sent-0`
# How often each fault is drawn, of those that last and of those that happen.
LASTING = {"kill": 5, "pause": 5, "stop": 3, "isolate": 4, "hold": 2, "slow": 2, "late": 1}
SUDDEN = {
    "move_leader": 4,
    "elect": 2,
    "reassign": 4,
    "move_controller": 3,
    "grow": 1,
    "lose_answers": 2,
    "churn": 2,
    "kill_all": 2,
}
OURS, MIXED, KAFKA = KINDS = ("ours", "mixed", "kafka")
# What a kind of brokers cannot have: it takes a network that can be cut, or brokers that make faults.
NOT_BESIDE_KAFKA = {"isolate", "hold", "move_leader"}
NOT_OF = {OURS: set(), MIXED: NOT_BESIDE_KAFKA, KAFKA: NOT_BESIDE_KAFKA | {"slow", "late", "lose_answers"}}
OF_ALL = ("elect", "grow", "churn", "kill_all")  # strike no single broker
DIRECTIONS: tuple[Direction, ...] = ("both", "to", "from")
FIRST_SECONDS = 0.3


class Fault(NamedTuple):
    """A fault at a time, in seconds from the start of the faults; one that lasts is undone after `seconds`."""

    at: float
    kind: str
    target: int | str  # a broker, or a role
    seconds: float = 0.0
    other: int = 0  # the broker at the other end, or that is to lead
    direction: Direction = "both"
    replicas: tuple[int, ...] = ()  # of a reassigned partition; none cancels a move
    journal_bytes: int = 0  # of the cluster's state, before all brokers are killed

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.2f} s" if self.seconds else ""
        other = f" {self.direction} {self.other}" if self.other else ""
        replicas = f" to {self.replicas}" if self.replicas else ""
        journal = f" with a journal of {self.journal_bytes}" if self.journal_bytes else ""
        return f"{self.at:.2f} {self.kind} {self.target}{other}{replicas}{lasts}{journal}"


PART_WITH_V2 = 0.5  # of the rounds


class Plan(NamedTuple):
    """One round."""

    kind: str
    seed: int
    brokers: int
    seconds: float
    partitions: int
    settings: dict[str, object]
    senders: int
    transactors: int
    members: int
    has_v2: bool  # a copier in transactions v2, by franz-go
    faults: tuple[Fault, ...]

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        clients = f"{self.senders} senders, {self.transactors} transactors, {self.members} members"
        clients += ", a copier in transactions v2" if self.has_v2 else ""
        brokers = f"{self.brokers} brokers ({self.kind}), {self.partitions} partitions"
        head = f"seed {self.seed}: {brokers}, {clients}, {self.seconds:g} s"
        return "\n".join([head, f"  {settings}", *(f"  {fault}" for fault in self.faults)])


def draw(seed: int, *, seconds: float, brokers: int | None = None, kind: str = OURS) -> Plan:
    """Draw a round; the same one for the same arguments."""
    source = random.Random(f"{seed} {seconds} {brokers} {kind}")
    count = brokers or (source.choice((3, 3, 3, 4, 5)) if kind == OURS else 3)
    partitions = source.randint(1, 4)
    return Plan(
        kind,
        seed,
        count,
        seconds,
        partitions,
        drawn_settings(source, kind),
        senders=source.randint(1, 2),
        transactors=source.randint(1, 2),
        members=source.randint(1, 3),
        has_v2=kind == OURS and source.random() < PART_WITH_V2,
        faults=tuple(drawn_faults(source, kind, count, partitions, seconds)),
    )


def drawn_settings(source: random.Random, kind: str) -> dict[str, object]:
    lag_ms = source.choice((300, 1000, 3000))
    drawn: dict[str, Any] = {
        "replica.lag.time.max.ms": lag_ms,
        "zookeeper.session.timeout.ms": source.choice((500, 1000, 3000) if kind == OURS else (2000, 4000)),
        "replica.fetch.wait.max.ms": min(lag_ms, source.choice((20, 100, 500))),
        "num.replica.fetchers": source.choice((1, 1, 2)),
        "replica.high.watermark.checkpoint.interval.ms": source.choice((100, 5000)),
        "log.segment.bytes": source.choice((16_384, 1 << 30)),
        "leader.imbalance.check.interval.seconds": source.choice((1, 300)),
        "max.incremental.fetch.session.cache.slots": source.choice((0, 1000)),
        "log.flush.interval.messages": source.choice((2**63 - 1, 2**63 - 1, 10)),
    }
    return drawn | {
        "min.insync.replicas": 2,
        "group.min.session.timeout.ms": 1000,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": 3,
        "transaction.state.log.num.partitions": 3,
        "log.cleaner.enable": "false",  # the logs of all replicas are compared to the byte
    }


def drawn_faults(
    source: random.Random, brokers_kind: str, brokers: int, partitions: int, seconds: float
) -> list[Fault]:
    """Faults of which each broker has one that lasts at a time; roles may be those of a broker that has one already."""
    kinds = {each: weight for each, weight in (LASTING | SUDDEN).items() if each not in NOT_OF[brokers_kind]}
    free_at = dict.fromkeys(range(1, brokers + 1), FIRST_SECONDS)
    faults = []
    at = FIRST_SECONDS
    while at < seconds:
        kind = source.choices(list(kinds), list(kinds.values()))[0]
        targets: list[int | str] = [*free_at, *free_at, CONTROLLER, a_leader(source, partitions)]
        target = source.choice(targets)
        lasts = round(source.choice((0.1, 0.5, 1.0, 3.0)) * source.uniform(0.5, 1.5), 2) if kind in LASTING else 0.0
        if kind in OF_ALL:
            target = "all"
        if kind in ("move_leader", "reassign"):
            target = a_leader(source, partitions)
        if isinstance(target, int) and kind in LASTING:
            if free_at[target] > at:
                at += source.uniform(0, 0.3)
                continue
            free_at[target] = at + lasts
        other, direction = 0, DIRECTIONS[0]
        if kind in ("isolate", "move_leader"):
            other = source.choice([each for each in free_at if each != target])
            direction = source.choice(DIRECTIONS) if kind == "isolate" else "to"
        # More than a replica: with one alone, a killed broker would stop the producers until it is back.
        replicas = source.sample(list(free_at), source.choice((0, 2, 3, 3, 3))) if kind == "reassign" else ()
        journal_bytes = drawn_length(source) if kind == "kill_all" and brokers_kind == OURS else 0
        faults.append(Fault(round(at, 2), kind, target, lasts, other, direction, tuple(replicas), journal_bytes))
        at += source.uniform(0, 1.0)
    return faults


def drawn_length(source: random.Random) -> int:
    """The length of a journal about the one from which on it is written anew, or anywhere above."""
    about = COMPACTED_BYTES + source.randint(-2000, 2000)
    return source.choice((about, about, source.randint(COMPACTED_BYTES, 1 << 20)))


def a_leader(source: random.Random, partitions: int) -> str:
    topic, number = source.choice([*TOPICS, "__consumer_offsets", "__transaction_state"]), source.randrange(partitions)
    return f"{topic}-{number if topic in TOPICS else number % 3}"


def place_of(name: str | int) -> tuple[str, int]:
    """The topic and the number of a partition, `sent-0`."""
    topic, _, partition = str(name).rpartition("-")
    return topic, int(partition)
