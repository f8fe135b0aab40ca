"""Draws what a run does: settings, clients, and faults with their times. All of it follows from the seed.

Seeds that are even also draw what clients of Kafka do beside the usual. What is added later is drawn from a generator
of its own, by name: so a seed keeps the rest of what it drew.

A plan can be printed, and made smaller: `without` leaves out clients and faults, which is how a finding is shrunk.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any, NamedTuple

SAFETY_SECONDS = 8.0
TOPIC_COUNTS = (1, 1, 2)
PARTITION_COUNTS = (1, 2, 3)
SEGMENT_BYTES = (2048, 16_384, 1 << 20)  # the last is never full; one may take its space at once


def weights(text: str) -> dict[str, int]:
    """The weights of kinds: `kill 4, power 3`."""
    return {name: int(weight) for name, weight in (each.split() for each in text.split(","))}


# How often each fault is drawn, with one broker and with several.
OF_ONE = weights("kill 4, crash_at_call 5, power 4, stop 2, cut_clients 2, fail_call 2, clock 1")
OF_SEVERAL = weights("""
    kill 4, crash_at_call 4, power 3, stop 2, pause 3, isolate 4, one_way 3, cut 2, fail_call 1, clock 1, kill_all 1,
    elect 1, reassign 2, cut_clients 1, fail_over 6, bounce 3, stall 4, bad_disk 1, wipe 1, rot 1
""")
# Beside ZooKeeper: its nodes are the state of the cluster.
OF_ZOOKEEPER = weights("""
    no_zookeeper 4, to_zookeeper 2, from_zookeeper 2, cut_zookeeper 2, late_zookeeper 4, slow_zookeeper 2, expire 3,
    depose 4, restart_zookeeper 1
""")
# A coordinator that does not hear of the next one, as its session has ended, takes part in transactions v1: it names
# partitions again that the last transaction had, without a record, in Kafka too. So no session ends beside them.
SHORT_OF_ZOOKEEPER = weights("cut_zookeeper 3, depose 4, restart_zookeeper 1")
OF_TRANSACTIONS = ("transactional1", "fenced")
LASTING = set(
    "kill crash_at_call power stop pause isolate one_way kill_all fail_call fail_over bad_disk wipe rot".split()
)
ZOOKEEPER_DELAYS_MS = (1.0, 1.0, 20.0)  # near by, and far away: then a broker writes what it has read a while ago
LASTING_OF_ZOOKEEPER = ("no_zookeeper", "to_zookeeper", "from_zookeeper", "slow_zookeeper")
FAILED_OVER = ("t0-0", "t0-0", "__consumer_offsets-0", "__transaction_state-0")
ERRNOS = {"EIO": 5, "ENOSPC": 28}
SENDERS = ("producer", "idempotent", "transactional", "batching")
CLIENTS = (*SENDERS, "loose", "fenced", "reader", "member", "consumer", "operator")
# Where an unclean election may lose what a transaction or a group has done, it may hang, as in Kafka.
UNHARMED = ("producer", "idempotent", "batching", "loose", "reader", "operator")
# What a client is in its place beside ZooKeeper: Kafka 2.0.1 has no KIP-848, and no transactions v2.
AS_IN_KAFKA_2 = {"consumer": "member", "transactional": "transactional1"}
# What a client may be in its place, where what is beside the usual is drawn.
BESIDE = {"transactional": "transactional1", "loose": "unheard", "member": "static", "operator": "owner"}
SETTINGS_BESIDE: dict[str, tuple[Any, ...]] = {
    "log.segment.bytes": SEGMENT_BYTES,
    "log.flush.offset.checkpoint.interval.ms": (300, 60_000),
    "log.flush.start.offset.checkpoint.interval.ms": (300, 60_000),
    "log.roll.ms": (500, 604_800_000, 604_800_000),
    "log.preallocate": ("false", "false", "true"),
    "log.retention.check.interval.ms": (500,),
    "log.segment.delete.delay.ms": (100, 60_000),
    "replica.fetch.max.bytes": (100, 1 << 20),
    "offsets.topic.segment.bytes": SEGMENT_BYTES,
    "transaction.state.log.segment.bytes": SEGMENT_BYTES,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": (500,),
}


CLEANING = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": 300,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.cleaner.dedupe.buffer.size": 2 << 20,
    "log.cleaner.io.buffer.size": 65_536,
    "log.segment.bytes": 2048,
}


class Fault(NamedTuple):
    """Something that happens `at` a time, in seconds; what lasts is undone after `seconds`."""

    at: float
    kind: str
    broker: int
    seconds: float = 0.0
    other: int = 0
    calls: int = 0  # of the disk, until the one that is struck; milliseconds until a new leader is one no more
    how: str = ""

    def __str__(self) -> str:
        text = f"{self.at:.3f} {self.kind} {self.broker}"
        text += f" and {self.other}" if self.other else ""
        text += f" {self.how}" if self.how else ""
        if self.kind in ("fail_over", "bounce"):
            text += f", {self.calls} ms later {'a kill' if self.kind == 'fail_over' else 'back'}"
        elif self.kind in ("stall", "late_zookeeper", "slow_zookeeper"):
            text += f" by {self.calls} ms"
        elif self.calls:
            text += f" at its call {self.calls} from then"
        return text + (f" for {self.seconds:.3f} s" if self.seconds else "")


class Plan(NamedTuple):
    seed: int
    brokers: int
    settings: dict[str, Any]
    topics: dict[str, int]
    clients: tuple[tuple[str, str], ...]  # kind and name
    faults: tuple[Fault, ...]
    delay_ms: float  # of a piece of bytes, at most, most often
    zookeeper_delay_ms: float = 0.0  # likewise, to ZooKeeper and from it; 0 without one
    seconds: float = SAFETY_SECONDS

    def without(self, events: Collection[object]) -> Plan:
        """The plan without these faults and clients."""
        return self._replace(
            clients=tuple(each for each in self.clients if each not in events),
            faults=tuple(each for each in self.faults if each not in events),
        )

    def until(self, at: float) -> Plan:
        """The plan without what happens later: the same run up to then."""
        return self.without([each for each in self.faults if each.at > at])

    @property
    def is_beside(self) -> bool:
        """Whether what clients do beside the usual is drawn."""
        return self.seed % 2 == 0

    @property
    def is_beside_zookeeper(self) -> bool:
        return self.zookeeper_delay_ms > 0

    @property
    def is_unclean(self) -> bool:
        return "unclean.leader.election.enable" in self.settings

    @property
    def is_cleaning(self) -> bool:
        return bool(self.settings["log.cleaner.enable"] == "true")

    @property
    def events(self) -> tuple[object, ...]:
        return *self.faults, *self.clients

    def document(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "brokers": self.brokers,
            "zookeeper_delay_ms": self.zookeeper_delay_ms,
            "settings": self.settings,
            "topics": self.topics,
            "clients": [list(each) for each in self.clients],
            "faults": [str(each) for each in self.faults],
            "delay_ms": self.delay_ms,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        beside = f" {self.zookeeper_delay_ms:g} ms from ZooKeeper" if self.is_beside_zookeeper else ""
        topics = ", ".join(f"{name} of {count}" for name, count in self.topics.items())
        return "\n".join(
            [
                f"seed {self.seed}: {self.brokers} brokers{beside}, {self.seconds:g} s, delays of {self.delay_ms:g} ms",
                f"  topics {topics}; clients {', '.join(name for _, name in self.clients)}",
                f"  {settings}",
                *(f"  {each}" for each in self.faults),
            ]
        )


def draw(seed: int, brokers: int, *, is_beside_zookeeper: bool = False) -> Plan:
    """Draw a plan; the same one for the same arguments."""
    plan = drawn_cluster(seed, brokers)
    if not is_beside_zookeeper:
        return plan
    kinds = [AS_IN_KAFKA_2.get(kind, kind) for kind, _ in plan.clients]
    known = OF_ZOOKEEPER if set(kinds).isdisjoint(OF_TRANSACTIONS) else SHORT_OF_ZOOKEEPER
    faults = drawn_faults_of_zookeeper(Random(f"zookeeper {seed} {brokers}"), brokers, known)
    return plan._replace(
        faults=tuple(sorted((*plan.faults, *faults))),
        clients=tuple((kind, f"{kind}-{number}") for number, kind in enumerate(kinds)),
        zookeeper_delay_ms=Random(f"delay of zookeeper {seed} {brokers}").choice(ZOOKEEPER_DELAYS_MS),
    )


def drawn_faults_of_zookeeper(source: Random, brokers: int, known: Mapping[str, int]) -> list[Fault]:
    """Each may come while others last."""
    faults = []
    at = source.uniform(1.0, 2.5)
    while at < SAFETY_SECONDS:
        kind = source.choices(list(known), list(known.values()))[0]
        fault = Fault(round(at, 3), kind, source.randint(1, brokers))
        if kind in LASTING_OF_ZOOKEEPER:
            fault = fault._replace(seconds=round(source.choice((0.1, 0.5, 1.0, 4.0)) * source.uniform(0.5, 1.5), 3))
        if kind in ("late_zookeeper", "slow_zookeeper"):
            fault = fault._replace(calls=source.choice((5, 50, 500, 3000)))
        faults.append(fault)
        at += source.choice((0.3, 1.0, 3.0)) * source.uniform(0.2, 1.5)
    return faults


def drawn_cluster(seed: int, brokers: int) -> Plan:
    """Draw a plan of a cluster that keeps its own state."""
    source = Random(f"plan {seed} {brokers}")
    is_durable = brokers == 1 or source.random() < 0.5
    settings = drawn_settings(source, brokers, is_durable=is_durable)
    topics = {f"t{each}": source.choice(PARTITION_COUNTS) for each in range(source.choice(TOPIC_COUNTS))}
    known: tuple[str, ...] = CLIENTS
    if brokers > 1 and source.random() < 0.1:
        settings["unclean.leader.election.enable"] = "true"
        known = UNHARMED
    if source.random() < 0.3:
        settings |= CLEANING
        known = (*known, "upserter", "upserter")
    kinds = [source.choice([each for each in SENDERS if each in known]), "reader"]
    kinds += source.choices(known, k=source.randint(1, 4))
    plan = Plan(
        seed,
        brokers,
        settings,
        topics,
        tuple((kind, f"{kind}-{number}") for number, kind in enumerate(kinds)),
        tuple(drawn_faults(source, brokers, is_durable=is_durable)),
        delay_ms=source.choice((1.0, 5.0, 30.0)),
    )
    return drawn_beside(plan) if plan.is_beside else plan


def drawn_beside(plan: Plan) -> Plan:
    """Draw other settings and clients beside the usual ones."""

    def source_of(name: str) -> Random:
        return Random(f"{name} {plan.seed} {plan.brokers}")

    settings = {name: source_of(name).choice(values) for name, values in SETTINGS_BESIDE.items()}
    if plan.is_cleaning:
        del settings["log.segment.bytes"]
    source = source_of("clients beside")
    kinds = [BESIDE.get(kind, kind) if source.random() < 0.5 else kind for kind, _ in plan.clients]
    kinds += ["owner"] * source.randint(0, 1)
    return plan._replace(
        settings=plan.settings | settings,
        clients=tuple((kind, f"{kind}-{number}") for number, kind in enumerate(kinds)),
    )


def drawn_settings(source: Random, brokers: int, *, is_durable: bool) -> dict[str, Any]:
    replicas = min(3, brokers)
    lag_ms = source.choice((1000, 3000))
    return {
        "log.flush.interval.messages": 1 if is_durable else 2**63 - 1,
        "log.segment.bytes": source.choice((2048, 16_384, 1 << 30)),
        "log.index.interval.bytes": source.choice((0, 4096)),
        "replica.lag.time.max.ms": lag_ms,
        "replica.fetch.wait.max.ms": source.choice((100, 500)),
        "zookeeper.session.timeout.ms": source.choice((1000, 3000)),
        "replica.high.watermark.checkpoint.interval.ms": source.choice((500, 5000)),
        "num.replica.fetchers": source.choice((1, 2)),
        "leader.imbalance.check.interval.seconds": source.choice((2, 300)),
        "max.incremental.fetch.session.cache.slots": source.choice((0, 2, 1000)),
        "default.replication.factor": replicas,
        "min.insync.replicas": min(source.choice((1, 2)), replicas),
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.min.isr": min(2, replicas),
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 1000,
        "group.consumer.session.timeout.ms": 3000,
        "group.consumer.min.session.timeout.ms": 1000,
        "group.consumer.heartbeat.interval.ms": 300,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "auto.create.topics.enable": "false",
        "log.cleaner.enable": "false",  # the logs of all replicas are compared to the byte
    }


def drawn_faults(source: Random, brokers: int, *, is_durable: bool) -> list[Fault]:
    """Each broker has one fault that lasts at a time. Power fails only where records are synced before they count."""
    kinds = dict(OF_ONE if brokers == 1 else OF_SEVERAL)
    if not is_durable:
        del kinds["power"]
    free_at = dict.fromkeys(range(1, brokers + 1), 0.0)
    faults = []
    at = source.uniform(1.0, 2.5)
    while at < SAFETY_SECONDS:
        kind = source.choices(list(kinds), list(kinds.values()))[0]
        broker = source.choice(list(free_at))
        seconds = round(source.choice((0.1, 0.5, 1.0, 4.0)) * source.uniform(0.5, 1.5), 3) if kind in LASTING else 0.0
        if kind in LASTING and free_at[broker] > at:
            at += 0.1
            continue
        if kind in LASTING:
            free_at[broker] = at + seconds
        others = [each for each in free_at if each != broker]
        fault = Fault(round(at, 3), kind, broker, seconds)
        if kind in ("isolate", "one_way", "cut", "reassign", "bounce") and others:
            fault = fault._replace(other=source.choice(others))
        if kind in ("crash_at_call", "fail_call"):
            fault = fault._replace(calls=source.randint(1, 200))
        if kind == "crash_at_call" and is_durable and source.random() < 0.5:
            fault = fault._replace(how="with its power")
        if kind in ("fail_over", "bounce"):
            fault = fault._replace(how=source.choice(FAILED_OVER), calls=source.choice((1, 5, 20, 100, 300)))
        if kind == "stall":
            fault = fault._replace(calls=source.choice((2500, 3000, 4000)))
        if kind in ("fail_call", "bad_disk"):
            fault = fault._replace(how=source.choice(list(ERRNOS)))
        if kind == "clock":
            fault = fault._replace(how=str(source.choice((-3_600_000, -500, 500, 3_600_000))))
        faults.append(fault)
        at += source.choice((0.05, 0.3, 1.0, 3.0)) * source.uniform(0.2, 1.5)
    return faults
