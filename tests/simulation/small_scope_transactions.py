"""Every state that a transactional id can reach: the real rules of `Transaction`, with a log that may fail.

    python -m tests.simulation.small_scope_transactions --states 1000000

Two producers share the id. A request may be delivered while the one before is being appended; its answer may be lost,
so that the producer sends it again; with `late` it is also delivered once more after its answer. An append succeeds or
fails, the coordinator dies with the append in hand written or not, transactions time out, an idle id expires.

What must hold: no rule is applied where it may not be; a producer ends the transaction that it means, and no other;
what it was told is what the log has; nobody acts for an identity once a newer one is known; no epoch goes back.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from minibroker.broker.transaction import transaction as rules
from minibroker.broker.transaction.transaction import (
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    ProducerIdentity,
    Transaction,
    TransactionMetadata,
    new_metadata,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from tests.simulation.small_scope import Explored, told, visit

ID = "id"
PLACE = TopicPartition("t", 0)
V1, V2 = 0, 2
# Upon these a producer asks again; upon all others it gives up.
PASSES = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE}
Label = tuple[int, int]  # a transaction: its producer, and its number there


class Bounds(NamedTuple):
    version: int = V2
    producers: int = 2
    transactions: int = 2  # of each producer
    failures: int = 1  # of appends
    crashes: int = 1
    timeouts: int = 1
    repeats: int = 1  # requests that are delivered again
    is_late: bool = False  # also after their answer
    max_epoch: int = 4  # in place of 32,767


class Request(NamedTuple):
    producer: int
    kind: str  # init, add, commit, abort
    identity: ProducerIdentity | None
    label: Label


class Client(NamedTuple):
    identity: ProducerIdentity | None = None
    number: int = 0
    is_open: bool = False
    asked: Request | None = None
    is_over: bool = False


class Coordinator(NamedTuple):
    """The coordinator. `appending` is the request that its append is for, or what else it does."""

    metadata: TransactionMetadata | None = None
    pending: TransactionMetadata | None = None
    appending: Request | str = ""
    has_failed_epoch_fence: bool = False
    has_markers: bool = False  # of the decision


class World(NamedTuple):
    coordinator: Coordinator
    clients: tuple[Client, ...]
    stored: TransactionMetadata | None = None  # the last one in the log
    late: frozenset[Request] = frozenset()
    current: Label | None = None  # the open transaction
    outcomes: tuple[tuple[Label, bool], ...] = ()  # whether a transaction was committed, once it is decided
    given: tuple[int, ProducerIdentity] | None = None  # the newest identity that was answered, and to whom
    next_id: int = 1
    failures: int = 0
    crashes: int = 0
    timeouts: int = 0
    repeats: int = 0


Step = tuple[str, World, str]


class Scope:
    """The steps within bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def first(self) -> World:
        return World(Coordinator(), tuple(Client() for _ in range(self.bounds.producers)))

    def steps(self, world: World) -> Iterator[Step]:
        bounds, coordinator = self.bounds, world.coordinator
        for number, client in enumerate(world.clients):
            yield from self._steps_of_client(world, number, client)
        for request in world.late:
            gone = world._replace(late=world.late - {request})
            yield from self._deliver(gone, request, f"late {text(request)}")
        if coordinator.pending is not None:
            yield from self._end_append(world)
        elif coordinator.metadata is not None:
            yield from self._act(world, coordinator.metadata)
        if world.crashes < bounds.crashes:
            yield from self._crash(world)

    # -- producers ---------------------------------------------------------------------------------------------

    def _steps_of_client(self, world: World, number: int, client: Client) -> Iterator[Step]:
        if client.is_over:
            return
        if client.asked is not None:
            if world.coordinator.appending == client.asked:
                return
            if world.repeats < self.bounds.repeats:
                again = world._replace(repeats=world.repeats + 1)
                yield from self._deliver(again, client.asked, f"again {text(client.asked)}")
            return
        label = number, client.number
        kinds = ("init",) if client.identity is None else ("commit", "abort") if client.is_open else ("add",)
        if client.number >= self.bounds.transactions:
            return
        for kind in kinds:
            request = Request(number, kind, client.identity, label)
            yield from self._deliver(with_client(world, number, client._replace(asked=request)), request, text(request))

    def _hear(self, world: World, request: Request, error: ErrorCode, answer: ProducerIdentity | None) -> World:
        """The producer takes its answer; one that is late it ignores."""
        client = world.clients[request.producer]
        if client.asked != request:
            return world
        client = client._replace(asked=None)
        if error in PASSES:
            return with_client(world, request.producer, client)
        if error is not ErrorCode.NONE:
            return with_client(world, request.producer, client._replace(is_over=True))
        if request.kind == "init":
            assert answer is not None
            return with_client(
                world._replace(given=(request.producer, answer)), request.producer, client._replace(identity=answer)
            )
        if request.kind == "add":
            return with_client(world, request.producer, client._replace(is_open=True))
        identity = client.identity
        if self.bounds.version >= V2 and answer is not None:
            identity = answer
            if world.given is not None and world.given[0] == request.producer:
                world = world._replace(given=(request.producer, answer))
        ended = client._replace(identity=identity, is_open=False, number=client.number + 1)
        return with_client(world, request.producer, ended)

    def _answer(self, world: World, request: Request, error: ErrorCode, name: str) -> Iterator[Step]:
        """An answer is heard, or lost."""
        metadata = world.coordinator.metadata
        identity = None if metadata is None else metadata.next_identity
        wrong = self._judge_answer(world, request, error)
        heard = self._hear(world, request, error, identity)
        yield f"{name}: {error.name}", heard, wrong
        if world.clients[request.producer].asked == request and world.repeats < self.bounds.repeats:
            yield f"{name}: {error.name}, which is lost", world, wrong
            if self.bounds.is_late:
                late = heard._replace(late=heard.late | {request}, repeats=heard.repeats + 1)
                yield f"{name}: {error.name}, and it comes again", late, wrong

    def _judge_answer(self, world: World, request: Request, error: ErrorCode) -> str:
        if error is not ErrorCode.NONE or request.kind not in ("commit", "abort"):
            return ""
        outcome = dict(world.outcomes).get(request.label)
        if outcome is not (request.kind == "commit"):
            return f"{text(request)} is answered NONE, and its outcome is {outcome}"
        return ""

    # -- the coordinator ---------------------------------------------------------------------------------------

    def _deliver(self, world: World, request: Request, name: str) -> Iterator[Step]:
        next_id = world.next_id
        if world.coordinator.metadata is None and request.kind == "init":
            made = new_metadata(next_id, 1, 0)
            world = world._replace(coordinator=Coordinator(made), next_id=next_id + 1)
        if world.coordinator.metadata is None:
            yield from self._answer(world, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, name)
            return
        transaction = transaction_of(world.coordinator)
        taken: list[int] = []

        def next_producer_id() -> int:
            taken.append(world.next_id + len(taken))
            return taken[-1]

        try:
            is_done = self._handle(transaction, request, next_producer_id)
        except KafkaError as error:
            yield from self._answer(world, request, error.code, name)
            return
        except RuntimeError as error:
            yield name, world, str(error)
            return
        wrong = judge_identity(world, request, is_done)
        world = world._replace(
            coordinator=coordinator_of(transaction, world.coordinator, request), next_id=world.next_id + len(taken)
        )
        if is_done:
            for step, after, also_wrong in self._answer(world, request, ErrorCode.NONE, name):
                yield step, after, wrong or also_wrong
        else:
            yield name, world, wrong or self._judge_change(world, request)

    def _handle(self, transaction: Transaction, request: Request, next_producer_id: Any) -> bool:
        """As `TransactionCoordinator`; return whether there is nothing to append. Raises KafkaError."""
        if request.kind == "init":
            transaction.check_initialize(None)
            if transaction.state is ONGOING:
                transaction.prepare_fence(0, next_producer_id)
            else:
                transaction.prepare_identity(1, None, next_producer_id, 0)
            return False
        assert request.identity is not None
        version = self.bounds.version
        if request.kind == "add":
            return transaction.prepare_add_partitions(request.identity, frozenset({PLACE}), 0, version) is None
        decision = transaction.prepare_end(
            request.identity,
            is_commit=request.kind == "commit",
            now_ms=0,
            client_version=version,
            next_producer_id=next_producer_id,
        )
        return decision is None

    def _judge_change(self, world: World, request: Request) -> str:
        if request.kind in ("commit", "abort") and world.current != request.label and world.current is not None:
            return f"{text(request)} ends {world.current}"
        if request.kind == "add" and world.current not in (None, request.label):
            return f"{text(request)} joins {world.current}"
        return ""

    def _act(self, world: World, metadata: TransactionMetadata) -> Iterator[Step]:
        """Do what no request asks for."""
        coordinator = world.coordinator
        transaction = transaction_of(coordinator)
        name = ""
        if metadata.state in PREPARED:
            if not coordinator.has_markers:
                yield "markers are written", put(world, coordinator._replace(has_markers=True)), ""
                return
            name = "completion"
            transaction.prepare_complete(0)
        elif metadata.state is ONGOING and world.timeouts < self.bounds.timeouts:
            name = "time-out"
            world = world._replace(timeouts=world.timeouts + 1)
            taken: list[int] = []
            transaction.prepare_fence(0, lambda: taken.append(0) or world.next_id)  # type: ignore[func-returns-value]
            world = world._replace(next_id=world.next_id + len(taken))
        elif metadata.state is not ONGOING and world.timeouts < self.bounds.timeouts:
            name = "expiry"
            world = world._replace(timeouts=world.timeouts + 1)
            transaction.prepare_dead()
        if name:
            yield name, put(world, coordinator_of(transaction, coordinator, name)), ""

    def _end_append(self, world: World) -> Iterator[Step]:
        coordinator = world.coordinator
        appending = coordinator.appending
        name = appending if isinstance(appending, str) else text(appending)
        if appending == "expiry":
            yield f"{name} is written", put(world._replace(stored=None), Coordinator()), ""
        else:
            transaction = transaction_of(coordinator)
            before = transaction.metadata
            transaction.complete()
            after, wrong = written(world, before, transaction.metadata, appending)
            after = put(after, coordinator_of(transaction, coordinator, "")._replace(has_markers=False))
            yield from self._told(after, appending, ErrorCode.NONE, f"{name} is written", wrong)
        if world.failures < self.bounds.failures:
            transaction = transaction_of(coordinator)
            transaction.discard_pending()
            after = put(world, coordinator_of(transaction, coordinator, ""))._replace(failures=world.failures + 1)
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            yield from self._told(after, appending, error, f"{name} cannot be written", "")

    def _told(self, world: World, appending: Request | str, error: ErrorCode, name: str, wrong: str) -> Iterator[Step]:
        """Tell the producer, if there is one. One whose InitProducerId has fenced another asks again."""
        if isinstance(appending, str):
            yield name, world, wrong
            return
        metadata = world.coordinator.metadata
        if appending.kind == "init" and metadata is not None and metadata.state in PREPARED:
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        for step, after, also_wrong in self._answer(world, appending, error, name):
            yield step, after, wrong or also_wrong

    def _crash(self, world: World) -> Iterator[Step]:
        """Another coordinator loads what the log has; an append in hand is in it, or is not."""
        coordinator = world.coordinator
        crashed = world._replace(crashes=world.crashes + 1)
        if coordinator.pending is not None:
            appending = coordinator.appending
            if appending == "expiry":
                yield "a crash after the expiry", put(crashed._replace(stored=None), Coordinator()), ""
            else:
                assert coordinator.metadata is not None
                after, wrong = written(crashed, coordinator.metadata, coordinator.pending, appending)
                yield "a crash after the append", put(after, Coordinator(loaded(coordinator.pending))), wrong
        yield "a crash", put(crashed, Coordinator(None if world.stored is None else loaded(world.stored))), ""


def loaded(stored: TransactionMetadata) -> TransactionMetadata:
    """The state as the log has it: of the identity before only the id."""
    return stored._replace(last_producer_epoch=-1)


def written(
    world: World, before: TransactionMetadata, after: TransactionMetadata, appending: Request | str
) -> tuple[World, str]:
    """Note what the log has now."""
    wrong = ""
    stored = world.stored
    if stored is not None and after.producer_id == stored.producer_id and after.producer_epoch < stored.producer_epoch:
        wrong = f"epoch {after.producer_epoch} after {stored.producer_epoch}"
    current, outcomes = world.current, dict(world.outcomes)
    if after.state is ONGOING and isinstance(appending, Request):
        current = appending.label
    elif after.state in PREPARED and before.state not in PREPARED:
        if current is not None:
            is_commit = after.state is PREPARE_COMMIT
            if outcomes.setdefault(current, is_commit) is not is_commit:
                wrong = f"{current} has two outcomes"
        elif isinstance(appending, Request) and appending.kind == "abort":
            outcomes.setdefault(appending.label, False)
        current = None
    return world._replace(stored=after, current=current, outcomes=tuple(sorted(outcomes.items()))), wrong


def judge_identity(world: World, request: Request, is_done: bool) -> str:
    """Return what is wrong if a request was taken of a producer whose place another one has."""
    if request.kind == "init" or world.given is None or is_done:
        return ""
    newest_of, newest = world.given
    if newest_of != request.producer:
        return f"{text(request)} is taken, though {newest_of} has {tuple(newest)}"
    return ""


def transaction_of(coordinator: Coordinator) -> Transaction:
    assert coordinator.metadata is not None
    transaction = Transaction(ID, coordinator.metadata)
    transaction.pending = coordinator.pending
    transaction.has_failed_epoch_fence = coordinator.has_failed_epoch_fence
    return transaction


def coordinator_of(transaction: Transaction, before: Coordinator, appending: Request | str) -> Coordinator:
    return Coordinator(
        transaction.metadata,
        transaction.pending,
        appending if transaction.pending is not None else "",
        transaction.has_failed_epoch_fence,
        before.has_markers,
    )


def put(world: World, coordinator: Coordinator) -> World:
    return world._replace(coordinator=coordinator)


def with_client(world: World, number: int, client: Client) -> World:
    clients = list(world.clients)
    clients[number] = client
    return world._replace(clients=tuple(clients))


def text(request: Request) -> str:
    identity = "" if request.identity is None else f" as {tuple(request.identity)}"
    return f"{request.producer} asks {request.kind} of {request.label[1]}{identity}"


def explore(bounds: Bounds, most_states: int) -> Explored:
    """Visit the states of a transactional id."""
    scope = Scope(bounds)
    kept, rules.MAX_EPOCH = rules.MAX_EPOCH, bounds.max_epoch
    try:
        return visit(scope.first(), scope.steps, most_states)
    finally:
        rules.MAX_EPOCH = kept


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--states", type=int, default=1_000_000)
    options = parser.parse_args(argv)
    kinds = Bounds(V1), Bounds(V2), Bounds(V2, is_late=True)
    return max(told(f"{bounds}: ", partial(explore, bounds, options.states)) for bounds in kinds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
