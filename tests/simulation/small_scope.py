"""Every state a small partition can reach: the real rules of leaders, followers and controllers, a log in memory.

    python -m tests.simulation.small_scope --states 1000000

A step is what one of them does at one moment: a record is appended, a follower asks, takes an answer or never gets it,
a leader asks for other in-sync replicas and hears of them, a broker crashes, its session expires, it comes back, a
leader is elected, a broker hears what the controller has decided last. Any step may come at any time, so messages may
be late, and decisions may never be heard of. A crashed broker keeps its log, and forgets its high watermark.

What must hold: what one leader has shown below its high watermark, no other leader of the newest epoch lacks, and no
leader contradicts. After an unclean election, what the new leader lacks is lost, and nothing else.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from minibroker.broker.cluster.controller import Image, brokers_changed, change_isr, choose_leader
from minibroker.broker.cluster.controller import Plan as ControllerPlan
from minibroker.broker.cluster.state import TopicState
from minibroker.broker.replica.decisions import NO_TOPIC_ID, Broker, PartitionState
from minibroker.broker.replica.fetched_partition import NO_RECORDS, FetchedPartition
from minibroker.broker.replica.isr import IsrChange
from minibroker.broker.replica.leading import ACKS_ALL, Leadership, Leading
from minibroker.broker.replica.replica import NEVER_MS, Replica
from minibroker.broker.wings.several.following import (
    Append,
    AskEpochEnd,
    AskOffset,
    AskRecords,
    Change,
    Following,
    Request,
    StartAt,
    State,
    TruncateTo,
)
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.config import LogConfig
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from minibroker.storage.index.leader_epochs import EpochEntry, LeaderEpochCache

TOPIC = "t"
PLACE = TopicPartition(TOPIC, 0)
NO_FETCH = -1  # the end of a follower that has not fetched
Records = tuple[tuple[int, int], ...]  # the epoch and the number of each


class Bounds(NamedTuple):
    brokers: int = 3
    records: int = 4
    epochs: int = 3
    crashes: int = 2  # also sessions that expire while their broker lives
    is_unclean: bool = False


class Lead(NamedTuple):
    """A leader. Its change of in-sync replicas is on its way, or its outcome is."""

    leadership: Leadership
    start_offset: int
    followers: tuple[tuple[int, int, bool], ...]  # id, end, whether it is caught up
    asked: IsrChange | None = None
    outcome: tuple[int | None] | None = None


class Follow(NamedTuple):
    leader: int
    epoch: int
    state: State
    asked: Request | None = None
    answer: Any = None


class Node(NamedTuple):
    """A broker."""

    records: Records = ()
    high_watermark: int = 0
    epochs: tuple[EpochEntry, ...] = ()
    role: Lead | Follow | None = None
    is_alive: bool = True


class World(NamedTuple):
    """All there is. `shown` is what leaders showed below their high watermarks, less what unclean elections lost."""

    decided: PartitionState
    sessions: tuple[int, ...]
    nodes: tuple[Node, ...]  # broker 1 first
    shown: Records = ()
    appended: int = 0
    crashes: int = 0


class Epochs(LeaderEpochCache):
    """Epochs without their file."""

    def __init__(self, entries: tuple[EpochEntry, ...]) -> None:
        self.path = Path("epochs")
        self._entries = list(entries)

    def _write(self, entries: list[EpochEntry]) -> None:
        self._entries = entries


class ModelLog:
    """A log in memory, as far as roles use it."""

    topic_partition = PLACE
    config = LogConfig(min_insync_replicas=1)
    log_start_offset = 0

    def __init__(self, node: Node) -> None:
        self.records, self.high_watermark = node.records, node.high_watermark
        self.leader_epochs = Epochs(node.epochs)

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return LogOffsetMetadata(len(self.records))

    durable_end_metadata = log_end_offset_metadata

    def move_high_watermark(self, offset: LogOffsetMetadata) -> bool:
        is_moved = offset.message_offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, offset.message_offset)
        return is_moved

    def append_as_leader(self, records: int, *, leader_epoch: int, **_: object) -> None:
        self.append(((leader_epoch, records),))

    def append(self, records: Records) -> None:
        for record in records:
            self.leader_epochs.assign(record[0], len(self.records))
            self.records = (*self.records, record)

    def perform(self, change: Change | None) -> None:
        """As the fetcher, and `Log.truncate_to`."""
        match change:
            case Append():
                self.append(change.records)  # type: ignore[arg-type]
                self.move_high_watermark(LogOffsetMetadata(min(change.high_watermark, len(self.records))))
            case TruncateTo(offset) | StartAt(offset):
                self.records = self.records[:offset]
                self.high_watermark = min(self.high_watermark, len(self.records))
                self.leader_epochs.truncate_from_end(len(self.records))

    def as_node(self, role: Lead | Follow) -> Node:
        return Node(self.records, self.high_watermark, self.leader_epochs.entries, role)


# -- roles, from values and back ------------------------------------------------------------------------------------


def leading_of(broker_id: int, lead: Lead, log: Any, replicas: tuple[int, ...]) -> Leading:
    known = {}
    for replica_id, end, is_caught_up in lead.followers:
        replica = known[replica_id] = Replica(replica_id, last_caught_up_ms=0 if is_caught_up else NEVER_MS)
        if end != NO_FETCH:
            replica.log_end_offset, replica.log_start_offset = LogOffsetMetadata(end), 0
    leading = Leading(
        log,
        broker_id=broker_id,
        leadership=lead.leadership,
        replicas=replicas,
        max_lag_ms=0,
        now_ms=0,
        known=known,
    )
    for replica_id, replica in known.items():
        leading.remote_replicas[replica_id] = replica  # also those that are not in sync
    leading.leader_epoch_start_offset = lead.start_offset
    return leading


def lead_of(leading: Leading, before: Lead | None = None) -> Lead:
    followers = tuple(
        (each.broker_id, each.log_end_offset.message_offset, each.is_caught_up(0, 0))
        for each in leading.remote_replicas.values()
    )
    if before is None:
        return Lead(leading.leadership, leading.leader_epoch_start_offset, followers)
    return before._replace(leadership=leading.leadership, followers=followers)


def following_of(follow: Follow, log: Any) -> Following:
    following = Following(log, leader_id=follow.leader, leader_epoch=follow.epoch)
    following.state, following._asked = follow.state, follow.asked
    return following


def ask_for(leading: Leading, lead: Lead, in_sync: tuple[int, ...] | None) -> Lead:
    """As `Followers._change`: a leader that waits for an answer asks for nothing more."""
    if in_sync is not None and not leading.leadership.asked_in_sync_replicas:
        lead = lead._replace(asked=leading.ask_for_isr(in_sync))
    return lead


# -- steps ----------------------------------------------------------------------------------------------------------


class Scope:
    """The steps within bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._replicas = tuple(range(1, bounds.brokers + 1))

    def first(self) -> World:
        decided = PartitionState(1, 0, self._replicas, self._replicas)
        return World(decided, self._replicas, tuple(Node() for _ in self._replicas))

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Each step from here, and where it leads."""
        for broker_id, node in enumerate(world.nodes, 1):
            if node.is_alive:
                if broker_id in world.sessions and (
                    node.role is None or epoch_of(node.role) < world.decided.leader_epoch
                ):
                    yield f"{broker_id} hears of epoch {world.decided.leader_epoch}", self._hear(world, broker_id)
                if isinstance(node.role, Lead):
                    yield from self._steps_of_leader(world, broker_id, node, node.role)
                elif isinstance(node.role, Follow):
                    yield from self._steps_of_follower(world, broker_id, node, node.role)
                if world.crashes < self.bounds.crashes:
                    crashed = Node(node.records, 0, node.epochs, None, is_alive=False)
                    yield f"{broker_id} crashes", put(world, broker_id, crashed)._replace(crashes=world.crashes + 1)
            yield from self._decisions(world, broker_id, node)

    def _decisions(self, world: World, broker_id: int, node: Node) -> Iterator[tuple[str, World]]:
        sessions = world.sessions
        if broker_id in sessions and (not node.is_alive or world.crashes < self.bounds.crashes):
            gone = world._replace(
                sessions=tuple(each for each in sessions if each != broker_id), crashes=world.crashes + node.is_alive
            )
            yield from self._decide(
                f"the session of {broker_id} expires", gone, lambda image: brokers_changed(image, gone=(broker_id,))
            )
        if broker_id not in sessions or not node.is_alive:
            back = put(world, broker_id, node._replace(is_alive=True))
            back = back._replace(sessions=tuple(sorted({*sessions, broker_id})))
            yield from self._decide(
                f"{broker_id} returns", back, lambda image: brokers_changed(image, returned=(broker_id,))
            )
        decided = world.decided
        if broker_id != decided.leader != NO_LEADER and broker_id in decided.in_sync_replicas and broker_id in sessions:
            yield from self._decide(
                f"{broker_id} is elected",
                world,
                lambda image: choose_leader(image, PLACE, broker_id, is_unclean=False),
            )

    def _image(self, world: World) -> Image:
        topic = TopicState(TOPIC, {0: world.decided}, {}, NO_TOPIC_ID)
        brokers = {each: Broker({}) for each in world.sessions}
        return Image(1, 1, brokers, {TOPIC: topic}, is_unclean=self.bounds.is_unclean)

    def _decide(self, name: str, world: World, decide: Any) -> Iterator[tuple[str, World]]:
        after = decided_by(decide(self._image(world)), world.decided)
        if after.leader_epoch < self.bounds.epochs:
            yield name, world._replace(decided=after)

    def _hear(self, world: World, broker_id: int) -> World:
        """As `Partitions._take_role`."""
        node, decided = world.nodes[broker_id - 1], world.decided
        log: Any = ModelLog(node)
        role = node.role
        if decided.leader != broker_id:
            if isinstance(role, Follow):
                following = following_of(role, log)
                if not following.follow(decided.leader, decided.leader_epoch):
                    return put(world, broker_id, node._replace(role=role._replace(epoch=decided.leader_epoch)))
            return put(
                world, broker_id, node._replace(role=Follow(decided.leader, decided.leader_epoch, State.TRUNCATING))
            )
        if log.leader_epochs.latest_epoch < 0:
            log.leader_epochs.assign(decided.leader_epoch, log.log_end_offset)
        known: Mapping[int, Replica] = {}
        if isinstance(role, Lead) and epoch_of(role) + 1 == decided.leader_epoch:
            known = leading_of(broker_id, role, log, self._replicas).remote_replicas
        leading = Leading(
            log,
            broker_id=broker_id,
            leadership=Leadership(decided.leader_epoch, decided.in_sync_replicas, decided.state_version),
            replicas=decided.replicas,
            max_lag_ms=0,
            now_ms=0,
            known=known,
        )
        leading.maybe_increment_high_watermark(0)
        return put(world, broker_id, log.as_node(lead_of(leading)))

    def _steps_of_leader(self, world: World, broker_id: int, node: Node, lead: Lead) -> Iterator[tuple[str, World]]:
        def leading() -> tuple[Leading, Any]:
            log: Any = ModelLog(node)
            return leading_of(broker_id, lead, log, self._replicas), log

        if world.appended < self.bounds.records:
            role, log = leading()
            role.append_as_leader(world.appended, required_acks=ACKS_ALL, now_ms=0)  # type: ignore[arg-type]
            role.maybe_increment_high_watermark(0)
            after = put(world, broker_id, log.as_node(lead_of(role, lead)))
            yield f"{broker_id} appends record {world.appended}", after._replace(appended=world.appended + 1)
        if lead.outcome is not None:
            role, log = leading()
            role.end_isr_change(lead.outcome[0])
            role.maybe_increment_high_watermark(0)
            after = put(world, broker_id, log.as_node(lead_of(role, lead._replace(outcome=None))))
            yield f"{broker_id} hears of its in-sync replicas", after
        elif lead.asked is not None:
            image = self._image(world)
            plan, outcomes = change_isr(image, {PLACE: lead.asked})
            saved = put(world, broker_id, node._replace(role=lead._replace(asked=None, outcome=(outcomes[PLACE],))))
            name = f"the controller is asked for {list(lead.asked.in_sync_replicas)} in sync by {broker_id}"
            yield name, saved._replace(decided=decided_by(plan, world.decided))
            role, log = leading()
            role.end_isr_change(None)
            failed = log.as_node(lead_of(role, lead._replace(asked=None)))
            yield f"{broker_id} cannot ask for in-sync replicas", put(world, broker_id, failed)
        for replica_id, _, is_caught_up in lead.followers:
            if is_caught_up:
                role, log = leading()
                role.remote_replicas[replica_id].last_caught_up_ms = NEVER_MS
                asked = ask_for(role, lead, role.isr_without_laggards(0))
                role.maybe_increment_high_watermark(0)
                yield f"{replica_id} lags behind {broker_id}", put(world, broker_id, log.as_node(lead_of(role, asked)))

    def _steps_of_follower(
        self, world: World, broker_id: int, node: Node, follow: Follow
    ) -> Iterator[tuple[str, World]]:
        if follow.asked is None:
            leader = world.nodes[follow.leader - 1] if follow.leader != NO_LEADER else None
            if leader is not None and leader.is_alive and isinstance(leader.role, Lead):
                yield self._ask(world, broker_id, node, follow)
            return
        waits_no_more = follow._replace(asked=None, answer=None)
        yield f"the answer to {broker_id} is lost", put(world, broker_id, node._replace(role=waits_no_more))
        log: Any = ModelLog(node)
        following = following_of(follow, log)
        request, answer = follow.asked, follow.answer
        if isinstance(request, AskEpochEnd):
            log.perform(following.on_epoch_end(request, answer))
        elif isinstance(request, AskOffset):
            log.perform(following.on_offset(request, answer))
        elif answer is None:
            following.on_error(request, ErrorCode.OFFSET_OUT_OF_RANGE)
        else:
            records, high_watermark = answer
            log.perform(following.on_records(request, records, high_watermark=high_watermark, log_start_offset=0))
        taken = log.as_node(waits_no_more._replace(state=following.state))
        yield f"{broker_id} takes the answer to {type(request).__name__}", put(world, broker_id, taken)

    def _ask(self, world: World, broker_id: int, node: Node, follow: Follow) -> tuple[str, World]:
        """A request reaches the leader, whatever becomes of the answer."""
        log: Any = ModelLog(node)
        following = following_of(follow, log)
        request = following.next_request()
        leader = world.nodes[follow.leader - 1]
        lead = leader.role
        assert isinstance(lead, Lead)
        leaders_log: Any = ModelLog(leader)
        leading = leading_of(follow.leader, lead, leaders_log, self._replicas)
        answer: Any
        if isinstance(request, AskEpochEnd):
            answer = leading.end_offset_of_epoch(request.leader_epoch)
        elif isinstance(request, AskOffset):
            answer = leaders_log.log_end_offset if request.is_end else 0
        else:
            answer = self._fetch(leading, leaders_log, broker_id, request)
            lead = ask_for(leading, lead, leading.isr_with(broker_id))
            leading.maybe_increment_high_watermark(0)
        world = put(world, follow.leader, leaders_log.as_node(lead_of(leading, lead)))
        asked = node._replace(role=follow._replace(asked=request, answer=answer))
        return f"{broker_id} asks {follow.leader}: {request}", put(world, broker_id, asked)

    def _fetch(self, leading: Leading, log: Any, replica_id: int, request: AskRecords) -> Any:
        """One record at most, and the high watermark before; None for an offset that is out of range."""
        offset = request.fetch_offset
        is_there = offset <= log.log_end_offset
        start = LogOffsetMetadata(offset) if is_there else None
        error = ErrorCode.NONE if is_there else ErrorCode.OFFSET_OUT_OF_RANGE
        result = FetchedPartition(PLACE, error, log.high_watermark, -1, 0, None, NO_RECORDS, start)
        answer = (log.records[offset : offset + 1], log.high_watermark) if is_there else None
        leading.note_follower_fetch(replica_id, result, 0, 0)
        return answer


def epoch_of(role: Lead | Follow) -> int:
    return role.leadership.leader_epoch if isinstance(role, Lead) else role.epoch


def put(world: World, broker_id: int, node: Node) -> World:
    nodes = list(world.nodes)
    nodes[broker_id - 1] = node
    return world._replace(nodes=tuple(nodes))


def decided_by(plan: ControllerPlan, before: PartitionState) -> PartitionState:
    topic = plan.change.topics.get(TOPIC) if plan.change is not None else None
    return before if topic is None else topic.partitions[0]


# -- what must hold -------------------------------------------------------------------------------------------------


def judge(world: World, *, is_unclean: bool) -> tuple[str, World]:
    """Return what is wrong here, empty for nothing; and the world with what its leaders show."""
    for broker_id, node in enumerate(world.nodes, 1):
        lead = node.role
        if node.high_watermark > len(node.records):
            return f"the high watermark of {broker_id} is above its end", world
        if not isinstance(lead, Lead):
            continue
        is_newest = epoch_of(lead) == world.decided.leader_epoch
        if is_newest and node.records[: len(world.shown)] != world.shown:
            if not is_unclean:
                return f"{broker_id} leads without what was acknowledged: {node.records}, not {world.shown}", world
            world = world._replace(shown=common(node.records, world.shown))
        visible = node.records[: node.high_watermark]
        if common(visible, world.shown) != (visible if len(visible) < len(world.shown) else world.shown):
            if is_newest or not is_unclean:
                return f"{broker_id} shows {visible}, others have shown {world.shown}", world
        elif len(visible) > len(world.shown) and (is_newest or not is_unclean):
            world = world._replace(shown=visible)
    return "", world


def common(one: Records, other: Records) -> Records:
    length = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:length]


class Explored(NamedTuple):
    states: int
    is_whole: bool  # no state within the bounds is left
    wrong: str
    steps: list[str]  # the fewest that lead to what is wrong


def explore(bounds: Bounds, most_states: int) -> Explored:
    """Visit the states of a partition."""
    scope = Scope(bounds)

    def judged(world: World) -> Iterator[tuple[str, World, str]]:
        for name, stepped in scope.steps(world):
            wrong, after = judge(stepped, is_unclean=bounds.is_unclean)
            yield name, after, wrong

    return visit(scope.first(), judged, most_states)


W = TypeVar("W", bound=Hashable)


def visit(first: W, steps: Callable[[W], Iterator[tuple[str, W, str]]], most_states: int) -> Explored:
    """Visit states, those of the fewest steps first, until one is wrong, all are visited, or so many are.

    `steps` has the name of each step from a state, where it leads, and what is wrong there.
    """
    reached: dict[int, tuple[int, str]] = {hash(first): (0, "")}
    waiting = deque([first])
    while waiting:
        world = waiting.popleft()
        for name, after, wrong in steps(world):
            key = hash(after)
            if key in reached:
                continue
            reached[key] = hash(world), name
            if wrong:
                return Explored(len(reached), False, wrong, steps_to(reached, key))
            waiting.append(after)
        if len(reached) >= most_states:
            return Explored(len(reached), not waiting, "", [])
    return Explored(len(reached), True, "", [])


def steps_to(reached: Mapping[int, tuple[int, str]], key: int) -> list[str]:
    steps = []
    while reached[key][1]:
        key, name = reached[key]
        steps.append(name)
    return steps[::-1]


def told(name: str, search: Callable[[], Explored]) -> int:
    """Search, and print what was found, behind `name`; return the exit status."""
    began = time.monotonic()
    explored = search()
    all_of_them = ", which are all" if explored.is_whole else ""
    print(f"{name}{explored.states} states in {time.monotonic() - began:.0f} s{all_of_them}")
    for step in explored.steps:
        print(f"  {step}")
    print(explored.wrong or "nothing is wrong", flush=True)
    return 1 if explored.wrong else 0


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.small_scope", description=__doc__.split("\n")[0])
    parser.add_argument("--states", type=int, default=1_000_000)
    for name, value in Bounds()._asdict().items():
        if isinstance(value, bool):
            parser.add_argument("--unclean", dest=name, action="store_true")
        else:
            parser.add_argument(f"--{name}", type=int, default=value)
    options = vars(parser.parse_args(argv))
    most_states = options.pop("states")
    gc.disable()  # states have no cycles, and a collection looks at all of them: a fifth of the time
    return told("", lambda: explore(Bounds(**options), most_states))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
