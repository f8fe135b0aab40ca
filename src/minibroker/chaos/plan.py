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

How many requests of an API there were is another number in each run, so the draw depends on it little: a fault that
would skip all of them strikes the first. Each candidate has a number of its own from the seed, and the smallest is
drawn: one that comes or goes, since a client looked for its coordinator once more, changes few plans but those that it
is in.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import NamedTuple

KINDS = ("refused", "lost", "late", "death", "rebalance", "coordinator", "clock", "disk")
COUNTS, COUNT_WEIGHTS = (1, 2, 3), (4, 4, 2)  # of the faults in a plan
SKIPS, SKIP_WEIGHTS = (0, 1, 2, 3, 5, 8), (8, 4, 3, 2, 1, 1)
TIMES, TIMES_WEIGHTS = (1, 2, 3), (5, 2, 1)
FULL_TIMES = 5  # a full disk is not emptied at once: clients that wait longer from time to time try for two seconds
LATE_SECONDS = 3  # tests wait for five by default
TURNED_SECONDS = 75  # past a session, and past a transaction's minute and the broker's next look at it
CLUSTERS = ("minibroker_cluster", "cluster")  # the names under which a test has one

# By API, in the spelling of `broker.faults`: how much a fault in it tells, and the errors that pass, by kind. Requests
# that change something tell the most; those that look something up are sent again by every client.
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
    "fetch": (2, {"refused": ["NOT_LEADER_FOR_PARTITION"], "disk": ["KAFKA_STORAGE_ERROR"]}),
    "list_offsets": (1, {"refused": ["NOT_LEADER_FOR_PARTITION"]}),
    "metadata": (1, {"refused": ["LEADER_NOT_AVAILABLE"]}),
    "find_coordinator": (1, {"refused": ["COORDINATOR_NOT_AVAILABLE"]}),
    "join_group": (1, COORDINATOR_ERRORS),
    "sync_group": (1, OF_MEMBERS),
    "heartbeat": (4, {**OF_MEMBERS, "refused": []}),
    "offset_commit": (24, OF_MEMBERS),
    "offset_fetch": (1, COORDINATOR_ERRORS),
    "consumer_group_heartbeat": (4, COORDINATOR_ERRORS),
    "init_producer_id": (1, {}),
    "add_partitions_to_txn": (4, OF_TRANSACTIONS),
    "add_offsets_to_txn": (4, OF_TRANSACTIONS),
    "txn_offset_commit": (4, COORDINATOR_ERRORS),
    "end_txn": (24, ENDING),
    "share_fetch": (2, {}),
    "share_acknowledge": (16, {}),
}
AFTER_SERVING = {"NOT_ENOUGH_REPLICAS_AFTER_APPEND"}
BEATING = "heartbeat"  # sent each three seconds: a test may be over before, or not
JOINING = "join_group"
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
        return f"{self.place}.faults.{self.verb}({', '.join(arguments)})"

    def simpler(self) -> Iterator[Fault]:
        """The same fault with one thing less."""
        if self.skip:
            yield replace(self, skip=0)
        if self.times is not None and self.times > 1:
            yield replace(self, times=1)


Plan = tuple[Fault, ...]


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
        clients.setdefault((place, BEATING), Counter(dict.fromkeys(clients[place, JOINING], 0)))
    uses = []
    for (place, api), counts in sorted(clients.items()):
        is_all = (place, api) not in shared
        if is_all:
            uses.append(Use(place, api, None, counts.total()))
        if len(counts) > 1 or not is_all:
            uses += [Use(place, api, each, counts[each]) for each in sorted(filter(None, counts))]
    return uses


def drawn(seed: int, test: str, uses: Iterable[Use]) -> Iterator[Plan]:
    """Yield the plans of a test, from plan 1 on; none where nothing was asked.

    Each kind has its turn, in an order of the seed's: twenty plans have each of the eight twice. A fault that was drawn
    is not drawn again while there are others of its kind.
    """
    key = f"{seed}/{test}"
    by_kind = defaultdict(list)
    for each in candidates(uses):
        by_kind[each.kind].append(each)
    left = {kind: list(of_kind) for kind, of_kind in by_kind.items()}
    turns = sorted(KINDS, key=lambda kind: chance(key, kind).random())
    for number in count(1) if by_kind else ():
        key_of_plan = f"{key}/{number}"
        random = chance(key_of_plan, "plan")
        kinds = dict.fromkeys([turns[number % len(turns)], *random.sample(KINDS, len(KINDS))])
        (faults,) = random.choices(COUNTS, COUNT_WEIGHTS)
        plan = []
        for kind in [kind for kind in kinds if kind in by_kind][:faults]:
            left[kind] = left[kind] or list(by_kind[kind])
            # The smallest number is drawn; a greater weight makes it smaller.
            chosen = min(left[kind], key=lambda each: each.number(key_of_plan))
            left[kind].remove(chosen)
            plan.append(chosen.with_options(key_of_plan))
        yield tuple(plan)


def chance(*keys: str) -> Random:
    return Random("/".join(keys))


class Candidate(NamedTuple):
    """A fault that may be drawn. Its `times` are None where the draw may choose them, and for an action."""

    kind: str
    weight: float
    fault: Fault
    requests: int  # of its kind without faults

    def number(self, key: str) -> float:
        return -math.log(1 - chance(key, self.fault.line).random()) / self.weight

    def with_options(self, key: str) -> Fault:
        fault = self.fault
        random = chance(key, f"{fault.line} options")
        (skip,) = random.choices(SKIPS, SKIP_WEIGHTS)
        (times,) = random.choices(TIMES, TIMES_WEIGHTS)
        return replace(
            fault,
            skip=skip if skip < self.requests else 0,
            times=fault.times if fault.times is not None or fault.verb == "call" else times,
        )


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

    def fault(verb: str, text: str = "", when: str = "before", times: int | None = None) -> Fault:
        return Fault(place, verb, text, use.api, use.client_id, when, times)

    for kind, codes in errors.items():
        for code in codes:
            when = "after" if code in AFTER_SERVING else "before"
            yield kind, weight / len(codes), fault("error", f'"{code}"', when, FULL_TIMES if kind == "disk" else None)
    yield "lost", weight / 3, fault("disconnect")
    yield "lost", weight / 3, fault("disconnect", when="after")
    yield "lost", weight / 3, fault("torn_frame")
    is_cluster = place in CLUSTERS
    death = f"{place}.kill" if is_cluster else f"lambda: ({place}.kill(), {place}.start())"
    turn = f"lambda{' _' if is_cluster else ''}: {place}.clock.advance({TURNED_SECONDS})"
    for when in ("before", "after"):
        yield "late", weight / 2, fault("delay", f"{LATE_SECONDS}", when, 1)
        yield "death", weight / 2, fault("call", death, when)
        yield "clock", weight / 2, fault("call", turn, when)
