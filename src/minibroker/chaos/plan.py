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

The draw does not depend on how many requests of an API there were, which is another number in each run. Each candidate
has a number of its own from the seed, and the smallest is drawn: one that comes or goes, since a client looked for its
coordinator once more, changes only the plans that it is in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import NamedTuple

KINDS = ("refused", "lost", "late", "death", "rebalance", "coordinator", "clock", "disk")
COUNTS, COUNT_WEIGHTS = (1, 2, 3), (6, 3, 1)  # of the faults in a plan
SKIPS, SKIP_WEIGHTS = (0, 1, 2, 3, 5, 8), (8, 4, 3, 2, 1, 1)
TIMES, TIMES_WEIGHTS = (1, 2, 3), (5, 2, 1)
LATE_SECONDS = (1, 3)  # tests wait for five by default
TURNED_SECONDS = 75  # past a session, and past a transaction's minute and the broker's next look at it
CLUSTERS = ("minibroker_cluster", "cluster")  # the names under which a test has one

# By API, in the spelling of `broker.faults`: how much a fault in it tells, and the errors that pass, by kind.
COORDINATOR_ERRORS = {"coordinator": ["NOT_COORDINATOR"], "refused": ["COORDINATOR_LOAD_IN_PROGRESS"]}
OF_TRANSACTIONS = {"coordinator": ["NOT_COORDINATOR"], "refused": ["CONCURRENT_TRANSACTIONS"]}
# As after a time-out: the coordinator has aborted the transaction, and the producer needs a new epoch.
ENDING = {**OF_TRANSACTIONS, "clock": ["INVALID_PRODUCER_EPOCH"]}
OF_MEMBERS = {**COORDINATOR_ERRORS, "rebalance": ["REBALANCE_IN_PROGRESS"]}
APIS: dict[str, tuple[int, dict[str, list[str]]]] = {
    "produce": (
        8,
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
    "offset_commit": (5, OF_MEMBERS),
    "offset_fetch": (1, COORDINATOR_ERRORS),
    "consumer_group_heartbeat": (2, COORDINATOR_ERRORS),
    "init_producer_id": (1, {}),
    "add_partitions_to_txn": (2, OF_TRANSACTIONS),
    "add_offsets_to_txn": (2, OF_TRANSACTIONS),
    "txn_offset_commit": (2, COORDINATOR_ERRORS),
    "end_txn": (6, ENDING),
    "share_fetch": (1, {}),
    "share_acknowledge": (1, {}),
}
AFTER_SERVING = {"NOT_ENOUGH_REPLICAS_AFTER_APPEND"}
BEATING = "heartbeat"  # sent each three seconds: a test may be over before, or not
JOINING = "join_group"


class Use(NamedTuple):
    """A client of a test that asks a broker, which the test has by the name `place`, by an API."""

    place: str
    api: str
    client_id: str | None  # None for all clients


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


def used_by(asked: Iterable[tuple[str, str, str | None, bool]]) -> list[Use]:
    """The uses in requests: (place, API, client id, whether it is a client of the test), in any order."""
    clients: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    shared = set()
    for place, api, client_id, is_of_test in asked:
        if api not in APIS:
            continue
        if is_of_test:
            clients[place, api].add(client_id)
        else:
            shared.add((place, api))
    for place in {place for place, api in clients if api == JOINING}:
        clients.setdefault((place, BEATING), clients[place, JOINING])
    uses = []
    for (place, api), ids in sorted(clients.items()):
        is_all = (place, api) not in shared
        if is_all:
            uses.append(Use(place, api, None))
        if len(ids) > 1 or not is_all:
            uses += [Use(place, api, each) for each in sorted(filter(None, ids))]
    return uses


def drawn(seed: int, test: str, number: int, uses: Iterable[Use]) -> Plan:
    """Plan `number` of a test, from 1. Empty where nothing was asked."""
    key = f"{seed}/{test}"
    by_kind = defaultdict(list)
    for kind, weight, fault in candidates(uses):
        by_kind[kind].append((weight, fault))
    if not by_kind:
        return ()
    # Each kind in turn, in an order of the seed's: twenty plans have each of the eight twice.
    turns = sorted(KINDS, key=lambda kind: chance(key, kind).random())
    key = f"{key}/{number}"
    random = chance(key, "plan")
    kinds = dict.fromkeys([turns[number % len(turns)], *random.sample(KINDS, len(KINDS))])
    count = random.choices(COUNTS, COUNT_WEIGHTS)[0]
    chosen = [kind for kind in kinds if kind in by_kind][:count]
    return tuple(drawn_of(key, by_kind[kind]) for kind in chosen)


def drawn_of(key: str, weighted: Iterable[tuple[float, Fault]]) -> Fault:
    """The candidate with the smallest number; a greater weight makes it smaller."""
    _, fault = min(weighted, key=lambda each: -math.log(1 - chance(key, each[1].line).random()) / each[0])
    random = chance(key, f"{fault.line} options")
    skip = random.choices(SKIPS, SKIP_WEIGHTS)[0]
    times = random.choices(TIMES, TIMES_WEIGHTS)[0]
    return replace(fault, skip=skip, times=None if fault.verb == "call" else 1 if fault.verb == "delay" else times)


def chance(*keys: str) -> Random:
    return Random("/".join(keys))


def of_use(use: Use, verb: str, text: str = "", when: str = "before") -> Fault:
    return Fault(use.place, verb, text, use.api, use.client_id, when)


def candidates(uses: Iterable[Use]) -> Iterator[tuple[str, float, Fault]]:
    """Yield each fault that may be drawn, with its kind and its weight."""
    for use in uses:
        place = use.place
        weight, errors = APIS[use.api]
        fault = partial(of_use, use)

        for kind, codes in errors.items():
            for code in codes:
                when = "after" if code in AFTER_SERVING else "before"
                yield kind, weight / len(codes), fault("error", f'"{code}"', when)
        yield "lost", weight / 3, fault("disconnect")
        yield "lost", weight / 3, fault("disconnect", when="after")
        yield "lost", weight / 3, fault("torn_frame")
        for seconds in LATE_SECONDS:
            for when in ("before", "after"):
                yield "late", weight / 4, fault("delay", f"{seconds:g}", when)
        is_cluster = place in CLUSTERS
        death = f"{place}.kill" if is_cluster else f"lambda: ({place}.kill(), {place}.start())"
        turn = f"lambda{' _' if is_cluster else ''}: {place}.clock.advance({TURNED_SECONDS})"
        for when in ("before", "after"):
            yield "death", weight / 2, fault("call", death, when)
            yield "clock", weight / 2, fault("call", turn, when)
