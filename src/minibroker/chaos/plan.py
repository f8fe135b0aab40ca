"""Plans of faults: what a seed draws for a test, from the requests that it sent without faults.

A plan has one to three faults, each a line of Python that a user can paste into the test. Faults are of eight kinds:

    refused      an error code that Kafka may answer with at any moment, and that passes
    lost         the connection closes before the request is served, after it, or in the middle of its answer
    late         a request or its answer waits
    death        the broker is killed and starts again; in a cluster, the one that has the request, and it stays dead
    rebalance    the coordinator asks a member to join again
    coordinator  another broker coordinates, as this one says
    clock        a minute passes for the broker: members without a heartbeat leave, transactions are aborted
    disk         the log directory of a partition is full

What twenty plans find is not left to luck. Each plan has a fault in the requests that tell the most, such as Produce:
the kinds take turns, and each kind begins with the faults that tell the most. Beside them are faults in requests that
look something up: each API has one before any has a second. The seed decides where turns begin, what comes first among
equals, and which faults meet.

How many requests of an API there were is another number in each run, so a plan depends on it little: a fault that would
skip all of them strikes an earlier one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, cycle, islice
from random import Random
from typing import NamedTuple, TypeVar

KINDS = ("refused", "lost", "late", "death", "rebalance", "coordinator", "clock", "disk")
# Of the requests that tell the most. Some kinds have more faults than others, and come twice.
TURNS = (
    *("late", "death", "lost", "clock", "refused", "rebalance"),
    *("late", "disk", "lost", "clock", "death", "coordinator"),
)
COUNTS = (1, 2, 2, 1, 3)  # of the faults in a plan; in turn
SKIPS = (0, 2, 0, 1, 3, 0, 5, 1)  # of the requests of an API; in turn
TIMES, TIMES_WEIGHTS = (1, 2, 3), (5, 2, 1)
FULL_SECONDS = 3  # a full disk is not emptied at once, and a leader is not found at once
LATE_SECONDS, VERY_LATE_SECONDS = 3, 6  # for what waits for five seconds
LATE_WEIGHT = 3  # of what looks something up: it is sent again at once where its answer is refused or lost
TURNED_SECONDS = 75  # past a session, and past a transaction's minute and the broker's next look at it
CLUSTERS = ("minibroker_cluster", "cluster")  # the names under which a test has one

# By API, in the spelling of `broker.faults`: how much a fault in it tells, and the errors that pass, by kind. Requests
# that change something tell the most; those that look something up (1) are sent again by every client.
COORDINATOR_ERRORS = {"coordinator": ["NOT_COORDINATOR"], "refused": ["COORDINATOR_LOAD_IN_PROGRESS"]}
OF_TRANSACTIONS = {"coordinator": ["NOT_COORDINATOR"], "refused": ["CONCURRENT_TRANSACTIONS"]}
# As after a time-out: the coordinator has aborted the transaction, and the producer needs a new epoch.
ENDING = {**OF_TRANSACTIONS, "clock": ["INVALID_PRODUCER_EPOCH"]}
OF_MEMBERS = {**COORDINATOR_ERRORS, "rebalance": ["REBALANCE_IN_PROGRESS"]}
APIS: dict[str, tuple[int, dict[str, list[str]]]] = {
    "produce": (
        32,
        {
            "refused": ["NOT_LEADER_FOR_PARTITION", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"],
            "disk": ["KAFKA_STORAGE_ERROR"],
        },
    ),
    "fetch": (4, {"refused": ["NOT_LEADER_FOR_PARTITION"], "disk": ["KAFKA_STORAGE_ERROR"]}),
    "list_offsets": (1, {"refused": ["NOT_LEADER_FOR_PARTITION"]}),
    "metadata": (1, {"refused": ["LEADER_NOT_AVAILABLE"]}),
    "find_coordinator": (1, {"refused": ["COORDINATOR_NOT_AVAILABLE"]}),
    "join_group": (1, COORDINATOR_ERRORS),
    "sync_group": (1, OF_MEMBERS),
    "heartbeat": (4, {**OF_MEMBERS, "refused": []}),
    "offset_commit": (24, OF_MEMBERS),
    "offset_fetch": (1, COORDINATOR_ERRORS),
    "consumer_group_heartbeat": (4, COORDINATOR_ERRORS),
    "add_partitions_to_txn": (4, OF_TRANSACTIONS),
    "add_offsets_to_txn": (4, OF_TRANSACTIONS),
    "txn_offset_commit": (4, COORDINATOR_ERRORS),
    "end_txn": (24, ENDING),
    "share_fetch": (2, {}),
    "share_acknowledge": (16, {}),
}
AFTER_SERVING = {"NOT_ENOUGH_REPLICAS_AFTER_APPEND": "after"}
LOOKED_UP = 1
HEARTBEAT = "heartbeat"  # sent each three seconds: a test may be over before, or not
BEATING = (HEARTBEAT, "consumer_group_heartbeat")
LASTING = ("produce", "fetch")  # by which a test lasts until then, when they are very late
JOINING = "join_group"
# A client whose first Metadata is lost does not start. librdkafka subscribes only with an answer, and where the
# connection is lost before it, asks again after topic.metadata.refresh.interval.ms, five minutes. Neither is a mistake.
UNREPEATED = "metadata"
TIMED = {JOINING, "consumer_group_heartbeat", "share_fetch", "end_txn"}  # whose clients the broker gives up in time


class Use(NamedTuple):
    """A client of a test that asks a broker, which the test has by the name `place`, by an API."""

    place: str
    api: str
    client_id: str | None  # None for all clients
    requests: int  # without faults, at one broker


@dataclass(frozen=True)
class Fault:
    """A fault of a plan; `text` is the code of its first argument."""

    place: str
    verb: str
    text: str
    api: str
    client_id: str | None = None
    when: str = "before"
    times: int | None = None
    skip: int = 0
    for_seconds: int | None = None

    @property
    def line(self) -> str:
        """The line of Python that makes it."""
        arguments = [self.text] if self.text else []
        arguments.append(f'api="{self.api}"')
        if self.client_id is not None:
            arguments.append(f"client_id={self.client_id!r}".replace("'", '"'))
        if self.when != "before":
            arguments.append(f'when="{self.when}"')
        if self.times is not None:
            arguments.append(f"times={self.times}")
        if self.skip:
            arguments.append(f"skip={self.skip}")
        if self.for_seconds is not None:
            arguments.append(f"for_seconds={self.for_seconds}")
        return f"{self.place}.faults.{self.verb}({', '.join(arguments)})"

    def simpler(self) -> Iterator[Fault]:
        """The same fault with one thing less."""
        if self.skip:
            yield replace(self, skip=0)
        if (self.times or 2) > 1 and self.verb != "call":
            yield replace(self, times=1, for_seconds=None)
        if self.text == f"{VERY_LATE_SECONDS}":
            yield replace(self, text=f"{LATE_SECONDS}")


Plan = tuple[Fault, ...]
T = TypeVar("T")


class Requests(NamedTuple):
    """The requests of a client at a broker without faults, for one API."""

    place: str
    api: str
    client_id: str | None
    is_of_test: bool  # the client is one of the test's
    how_many: int


def used_by(asked: Iterable[Requests]) -> list[Use]:
    """The uses in the requests of all brokers, in any order."""
    clients: dict[tuple[str, str], Counter[str | None]] = defaultdict(Counter)
    shared = set()
    for place, api, client_id, is_of_test, requests in asked:
        if api not in APIS:
            continue
        if is_of_test:
            clients[place, api][client_id] = max(clients[place, api][client_id], requests)
        else:
            shared.add((place, api))
    for place in {place for place, api in clients if api == JOINING}:
        clients.setdefault((place, HEARTBEAT), Counter(dict.fromkeys(clients[place, JOINING], 0)))
    uses = []
    for (place, api), counts in sorted(clients.items()):
        is_all = (place, api) not in shared
        if is_all:
            uses.append(Use(place, api, None, counts.total()))
        if len(counts) > 1 or not is_all:
            uses += [Use(place, api, each, counts[each]) for each in sorted(filter(None, counts))]
    return uses


def drawn(seed: int, test: str, uses: Iterable[Use]) -> Iterator[Plan]:
    """Yield the plans of a test, from plan 1 on; none where nothing was asked."""
    key = f"{seed}/{test}"
    every = list(candidates(uses))
    telling = [each for each in every if APIS[each.fault.api][0] > LOOKED_UP] or every
    others = [each for each in every if each not in telling]
    decks = {kind: cycle(ordered(key, [each for each in telling if each.kind == kind])) for kind in KINDS}
    turns = rotated(f"{key}/turns", [kind for kind in TURNS if any(each.kind == kind for each in telling)])
    counts = rotated(f"{key}/counts", COUNTS)
    skips = {api: rotated(f"{key}/{api}", SKIPS) for api in APIS}
    left = list(others)
    for number in count(1) if every else ():
        chances = f"{key}/{number}"
        faults = next(counts)
        chosen = [next(decks[next(turns)])]
        if faults == max(COUNTS):
            kind = next((each for each in islice(turns, len(TURNS)) if does_meet(chosen, each)), None)
            chosen += [next(decks[kind])] if kind else []
        left = left or list(others)
        beside = lasting(chosen[0], every) or [each for each in left if does_meet(chosen, each.kind)]
        if beside and (faults > 1 or beside[0] not in left):
            chosen.append(
                min(beside, key=lambda each: each.chance(chances) / (LATE_WEIGHT if each.kind == "late" else 1))
            )
            left = [each for each in left if (each.fault.place, each.fault.api) != chosen[-1].where]
        yield tuple(each.with_options(chances, next(skips[each.fault.api])) for each in chosen)


def ordered(key: str, of_kind: list[Candidate]) -> list[Candidate]:
    """Return the faults of a kind in order: the most telling ones come first.

    Those of an API's second client come after all of the first.
    """
    rounds: Counter[tuple[str, ...]] = Counter()
    order: list[tuple[int, int, Candidate]] = []
    for each in sorted(of_kind, key=lambda each: -each.weight * (3 + 2 * each.chance(key))):
        form = each.fault.place, each.fault.api, each.fault.text, each.fault.verb, each.fault.when
        order.append((rounds[form], len(order), each))
        rounds[form] += 1
    return [each for *_, each in sorted(order, key=lambda each: each[:2])]


def does_meet(chosen: list[Candidate], kind: str) -> bool:
    """Whether a fault of this kind may join them. The turn of a clock ends delays."""
    kinds = {each.kind for each in chosen}
    return kind not in kinds and not {kind, *kinds} >= {"late", "clock"}


def lasting(chosen: Candidate, every: list[Candidate]) -> list[Candidate]:
    """Return faults by which a test lasts until a member beats again, where the chosen one waits for that."""
    if chosen.fault.api not in BEATING or chosen.requests > 1:
        return []
    return [each for each in every if each.where[1] in LASTING and each.fault.text == f"{VERY_LATE_SECONDS}"]


def rotated(key: str, turns: Sequence[T]) -> Iterator[T]:
    """Yield them again and again, from one on that the key chooses."""
    first = Random(key).randrange(len(turns) or 1)
    return cycle([*turns[first:], *turns[:first]])


class Candidate(NamedTuple):
    """A fault that may be drawn. Its `times` are None where the draw may choose them, and for an action."""

    kind: str
    weight: float
    fault: Fault
    requests: int  # of its kind without faults

    @property
    def where(self) -> tuple[str, str]:
        return self.fault.place, self.fault.api

    def chance(self, key: str) -> float:
        return Random(f"{key}/{self.fault.line}").random()

    def with_options(self, key: str, skip: int) -> Fault:
        fault = replace(self.fault, skip=skip % max(self.requests, 1))
        if fault.times or fault.for_seconds or fault.verb == "call":
            return fault
        (times,) = Random(f"{key}/{fault.line}/times").choices(TIMES, TIMES_WEIGHTS)
        return replace(fault, times=times)


def candidates(uses: Iterable[Use]) -> Iterator[Candidate]:
    """Yield each fault that may be drawn."""
    uses = list(uses)
    timed = {use.place for use in uses if use.api in TIMED}
    for use in uses:
        for kind, weight, fault in faults_of(use):
            if kind != "clock" or use.place in timed:
                yield Candidate(kind, weight, fault, use.requests)


def faults_of(use: Use) -> Iterator[tuple[str, float, Fault]]:
    """Yield each fault that a use may meet, with its kind and its weight."""
    place = use.place
    weight, errors = APIS[use.api]

    def fault(verb: str, text: str = "", when: str = "before", **options: int) -> Fault:
        return Fault(place, verb, text, use.api, use.client_id, when, **options)

    for kind, codes in errors.items():
        for code in codes:
            options = {"for_seconds": FULL_SECONDS} if kind == "disk" else {}
            yield kind, weight / len(codes), fault("error", f'"{code}"', AFTER_SERVING.get(code, "before"), **options)
    if use.api != UNREPEATED:
        yield "lost", weight / 3, fault("disconnect")
        yield "lost", weight / 3, fault("disconnect", when="after")
        yield "lost", weight / 3, fault("torn_frame")
    yield "late", weight / 2, fault("delay", f"{LATE_SECONDS}", times=1)
    yield "late", weight / 3, fault("delay", f"{LATE_SECONDS}", "after", times=1)
    if use.api in LASTING:
        yield "late", weight / 2.5, fault("delay", f"{VERY_LATE_SECONDS}", times=1)
    is_cluster = place in CLUSTERS
    death = f"{place}.kill" if is_cluster else f"lambda: ({place}.kill(), {place}.start())"
    turn = f"lambda{' _' if is_cluster else ''}: {place}.clock.advance({TURNED_SECONDS})"
    for when in ("before", "after"):
        if use.api != UNREPEATED:
            yield "death", weight / 2, fault("call", death, when)
        yield "clock", weight / 2, fault("call", turn, when)
