"""Every state that a group can reach: the real coordinator on a log, with clients that take one step at a time.

    python -m tests.simulation.small_scope_groups --states 100000

A state is reached again by its steps from the start, so a state is what can be seen of it: the group, its clients, and
the deadlines that it waits for. Of the consumer protocol (KIP-848) two clients join, send heartbeats that report their
partitions or do not, whose answers may be lost, leave, or end without a word; the topic grows, and time passes; a
report comes late, of a time when a member had less. Of the classic protocol two clients join, one of them as a static
member or not, send SyncGroup and heartbeats, leave, or end; the coordinator starts again.

What must hold in each state: no step fails; no partition has two owners; the members of a generation have one leader,
who has joined, one protocol, and what that leader has assigned; no rebalance waits once all have joined; the log gives
the same group. And from each state clients that go on sending heartbeats come to rest, with all partitions, and no
request waits for ever.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.membership import JoinRequest, SyncRequest
from minibroker.broker.pending import Pending
from minibroker.protocol.errors import ErrorCode
from minibroker.purgatory.timing_wheel import LEVELS, Timer
from tests.broker.coordinated import GROUP, SESSION_MS, TOPIC_ID, Coordinated, state_of
from tests.broker.offset_stores import partition_of
from tests.simulation.small_scope import Explored, told, visit

CLIENTS = ("a", "b")
PARTITIONS, GROWN = 2, 3
ROUNDS_TO_REST = 8
ROUNDS_TO_REST_CLASSIC = 120  # a client that ends in its first JoinGroup is missed after five minutes
ROUND_MS = SESSION_MS // 3
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Step = tuple[str, Callable[[Any], object]]


class World(Protocol):
    """A coordinator with its clients."""

    def steps(self) -> Iterator[Step]:
        """Iterate over what may happen now: a name, and what does it to an equal world."""

    def seen(self) -> object:
        """Return what can be seen of it."""

    def check(self) -> None:
        """Raises AssertionError for what is wrong here."""

    def come_to_rest(self) -> None:
        """Let the clients go on for long. Raises AssertionError if they do not come to rest."""

    def close(self) -> None: ...


def deadlines(timer: Timer, now_ms: int) -> list[tuple[str, int]]:
    """The kinds of what waits, and for how long it does."""
    return sorted(
        (type(task).__name__, max(task.deadline_ms, getattr(task, "_expected_by_ms", 0)) - now_ms)
        for level in range(LEVELS)
        for _, tasks in timer.lit_slots(level)
        for task in tasks
    )


# -- the consumer protocol ------------------------------------------------------------------------------------------


class ConsumerWorld(Coordinated):
    """Members of the consumer protocol."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.partitions = PARTITIONS
        self.grow(PARTITIONS)

    def steps(self) -> Iterator[Step]:
        for client in CLIENTS:
            if client not in self.epochs:
                yield f"{client} joins", methodcaller("join", client, False)
                continue
            for reports in (True, False):
                how = "reports" if reports else "beats"
                yield f"{client} {how}", methodcaller("beat", client, reports)
            yield f"{client} reports in vain", methodcaller("beat", client, True, is_heard=False)
            yield f"{client} leaves", methodcaller("leave", client)
            yield f"{client} ends", methodcaller("forget", client)
        if self.partitions == PARTITIONS:
            yield "the topic grows", methodcaller("grow_once")
        yield "6 s pass", methodcaller("wait", 6000)

    def grow_once(self) -> None:
        self.partitions = GROWN
        self.grow(GROWN)

    def seen(self) -> object:
        group = self.groups.get(GROUP)
        owned = sorted((client, sorted(has)) for client, has in self.owned.items())
        clients = owned, sorted(self.epochs.items()), sorted(self.unheard), self.partitions
        return str(None if group is None else state_of(group)), clients, deadlines(self.timer, self.now_ms)

    def come_to_rest(self) -> None:
        members = list(self.epochs)
        for _ in range(ROUNDS_TO_REST):
            for client in members:
                if client in self.epochs:
                    self.beat(client, True)
                else:
                    self.join(client, False)
            self.check()
            self.wait(ROUND_MS)
        if members:
            owned = sorted(each for client in members for each in self.owned[client])
            assert owned == list(range(self.partitions)), f"in the end {self.owned} are owned"

    def close(self) -> None:
        self.disk.close()


class LateWorld(ConsumerWorld):
    """Begins when b has been in the group twice, and a has all. What a reported the first time is still on its way.

    A report of the epoch before would be believed, as by Kafka 4.4, and then two may have a partition.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.late: tuple[int, list[int]] | None = None
        self.join("a", False)
        for _ in range(2):
            self.join("b", False)
            self.come_to_rest()
            self.late = self.late or (self.epochs["a"], sorted(self.owned["a"]))
            self.leave("b")
            self.come_to_rest()

    def steps(self) -> Iterator[Step]:
        yield from super().steps()
        if self.late is not None:
            yield "an old report of a comes", methodcaller("come_late")

    def come_late(self) -> None:
        """Nobody hears the answer."""
        assert self.late is not None
        (epoch, partitions), self.late = self.late, None
        before = dict(self.epochs), dict(self.owned), set(self.unheard)
        self._beat("a", epoch, owned={TOPIC_ID.bytes: partitions})
        self.epochs, self.owned, self.unheard = before

    def seen(self) -> object:
        return super().seen(), self.late


# -- the classic protocol -------------------------------------------------------------------------------------------


class Classic(NamedTuple):
    """A client: its ids, what it waits for, and its assignment."""

    member_id: str = ""
    generation: int = -1
    leader: str = ""
    members: Sequence[str] = ()
    assignment: bytes = b""
    joining: Pending[JoinResult] | None = None
    syncing: Pending[SyncResult] | None = None


class ClassicWorld(Coordinated):
    """Members of the classic protocol. A leader assigns each member the generation, and the member's own id."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.clients: dict[str, Classic] = {}
        self.leaders: dict[int, str] = {}  # by generation
        self.joined: dict[int, set[str]] = {}  # by generation, the members that were told of it
        self.instances: dict[str, str] = {}  # of static members
        self.has_restarted = False
        self.has_ended_joining = False  # a client, whose answer nobody takes

    def steps(self) -> Iterator[Step]:
        for name in CLIENTS:
            client = self.clients.get(name)
            if client is None or (client.joining is None and client.syncing is None):
                yield f"{name} joins", methodcaller("ask_join", name)
            if client is None:
                continue
            if client.generation >= 0 and client.joining is None and client.syncing is None:
                yield f"{name} syncs", methodcaller("ask_sync", name)
                yield f"{name} beats", methodcaller("ask_beat", name)
            if client.member_id:
                yield f"{name} leaves", methodcaller("ask_leave", name)
            yield f"{name} ends", methodcaller("end", name)
        yield "6 s pass", methodcaller("pass_time", 6000)
        if not self.has_restarted and self.groups.get(GROUP) is not None:
            yield "the coordinator moves away and back", methodcaller("move")

    def ask_join(self, name: str) -> None:
        before = self.clients.get(name, Classic())
        request = JoinRequest(
            GROUP, before.member_id, self.instances.get(name), False, False, name, "/h", 5000, SESSION_MS, "consumer",
            [("range", b"")],
        )  # fmt: skip
        outcome = self.groups.serving(GROUP).join(request)
        self.clients[name] = before._replace(joining=as_pending(outcome), generation=-1, assignment=b"")
        self.take_answers()

    def ask_sync(self, name: str) -> None:
        client = self.clients[name]
        assigned = {each: f"{client.generation} {each}".encode() for each in client.members}
        identity = MemberIdentity(client.member_id, None, client.generation)
        outcome = self.groups.serving(GROUP).sync(SyncRequest(GROUP, identity, None, None, assigned))
        self.clients[name] = client._replace(syncing=as_pending(outcome))
        self.take_answers()

    def ask_beat(self, name: str) -> None:
        client = self.clients[name]
        error = self.groups.serving(GROUP).heartbeat(GROUP, MemberIdentity(client.member_id, None, client.generation))
        self._on_error(name, error)
        self.take_answers()

    def ask_leave(self, name: str) -> None:
        self.groups.serving(GROUP).leave(GROUP, [MemberIdentity(self.clients[name].member_id)])
        self.clients.pop(name)
        self.take_answers()

    def end(self, name: str) -> None:
        client = self.clients.pop(name)
        self.has_ended_joining = self.has_ended_joining or client.joining is not None

    def pass_time(self, ms: int) -> None:
        self.wait(ms)
        self.take_answers()

    def move(self) -> None:
        """Another broker is the coordinator for a moment: the group is loaded again."""
        self.has_restarted = True
        self.groups.on_leadership(partition_of(0), False)
        self.groups.on_leadership(partition_of(0), True)
        self.leaders, self.joined = {}, {}  # a generation that was never stored comes again
        self.take_answers()

    def _on_error(self, name: str, error: ErrorCode) -> None:
        """As a client: join again, with another id if the old one is unknown."""
        client = self.clients[name]
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.clients[name] = Classic()
        elif error is not ErrorCode.NONE:
            self.clients[name] = Classic(client.member_id)

    def take_answers(self) -> None:
        for name, client in list(self.clients.items()):
            if client.joining is not None and client.joining.is_known:
                joined = client.joining.result()
                if joined.error is not ErrorCode.NONE:
                    self._on_error(name, joined.error)
                    continue
                leader = self.leaders.setdefault(joined.generation_id, joined.leader)
                assert leader == joined.leader, f"generation {joined.generation_id} has {leader} and {joined.leader}"
                self.joined.setdefault(joined.generation_id, set()).add(joined.member_id)
                ids = [each.member_id for each in joined.members]
                assert bool(ids) == (leader == joined.member_id), "others than the leader got the members"
                self.clients[name] = Classic(joined.member_id, joined.generation_id, leader, ids)
            elif client.syncing is not None and client.syncing.is_known:
                synced = client.syncing.result()
                if synced.error is not ErrorCode.NONE:
                    self._on_error(name, synced.error)
                    continue
                expected = f"{client.generation} {client.member_id}".encode()
                assert synced.assignment == expected, f"{synced.assignment!r} is assigned, not {expected!r}"
                self.clients[name] = client._replace(syncing=None, assignment=synced.assignment)

    def seen(self) -> object:
        group = self.groups.cache.find(Group, GROUP)
        shown: list[object] = []
        if group is not None:
            members = [
                (each.member_id, each.join_reply is None, each.sync_reply is None, each.is_new, each.assignment)
                for each in group.members.values()
            ]
            shown = [group.state.value, group.generation_id, group.leader_id, members]
        clients = [
            (name, each[:5], each.joining is not None, each.syncing is not None)
            for name, each in sorted(self.clients.items())
        ]
        flags = self.has_restarted, self.has_ended_joining, sorted(self.instances)
        text = str((shown, clients, deadlines(self.timer, self.now_ms), flags))
        numbers: dict[str, str] = {}
        return UUID.sub(lambda found: numbers.setdefault(found[0], str(len(numbers))), text)

    def check(self) -> None:
        assigned = [each for each in self.clients.values() if each.assignment]
        assert len({each.member_id for each in assigned}) == len(assigned), "two clients are one member"
        for generation, leader in self.leaders.items():
            is_known = leader in self.joined[generation] or self.has_ended_joining
            assert is_known, f"generation {generation} has a leader that has not joined"
        group = self.groups.cache.find(Group, GROUP)
        if group is not None and group.state is GroupState.PREPARING_REBALANCE:
            members = group.members.values()
            is_first = all(each.is_new for each in members)  # which waits for more of them
            awaited = [each for each in members if each.join_reply is None]
            assert is_first or awaited or group.pending_members, "a rebalance waits for nobody"

    def come_to_rest(self) -> None:
        for _ in range(ROUNDS_TO_REST_CLASSIC):
            if self._rests():
                return
            for name in list(self.clients):
                client = self.clients[name]
                if client.joining is not None or client.syncing is not None:
                    continue
                if client.generation < 0:
                    self.ask_join(name)
                elif not client.assignment:
                    self.ask_sync(name)
                else:
                    self.ask_beat(name)
            self.pass_time(ROUND_MS)
        raise AssertionError(f"in the end {self.clients}")

    def _rests(self) -> bool:
        generations = {each.generation for each in self.clients.values()}
        return len(generations) <= 1 and all(each.assignment for each in self.clients.values())

    def close(self) -> None:
        self.disk.close()


class StaticWorld(ClassicWorld):
    """The same with a as a static member. Once it has ended, it does not come back."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.instances = {"a": "a"}

    def steps(self) -> Iterator[Step]:
        for name, act in super().steps():
            if name != "a joins" or self.instances:
                yield name, act

    def end(self, name: str) -> None:
        super().end(name)
        self.instances.pop(name, None)


def as_pending(outcome: Any) -> Pending[Any]:
    if isinstance(outcome, Pending):
        return outcome
    known: Pending[Any] = Pending()
    known.resolve(outcome)
    return known


# -- all states -----------------------------------------------------------------------------------------------------


class Reached:
    """A state, and the steps that lead there."""

    def __init__(self, seen: object, path: tuple[int, ...]) -> None:
        self._hash = hash(str(seen))
        self.path = path

    def __hash__(self) -> int:
        return self._hash


def explore(make: Callable[[Path], World], most_states: int) -> Explored:
    """Visit the states of a group."""
    with tempfile.TemporaryDirectory(prefix="minibroker-scope-") as directory:
        numbers = iter(range(sys.maxsize))

        def fresh(path: Sequence[int]) -> World:
            place = Path(directory) / str(next(numbers))
            place.mkdir()
            world = make(place)
            for number in path:
                list(world.steps())[number][1](world)
            return world

        def steps(reached: Reached) -> Iterator[tuple[str, Reached, str]]:
            here = fresh(reached.path)
            names = [name for name, _ in here.steps()]
            here.close()
            for number, name in enumerate(names):
                world, path, wrong = fresh(reached.path), (*reached.path, number), ""
                after = Reached(path, path)
                try:
                    list(world.steps())[number][1](world)
                    world.check()
                    after = Reached(world.seen(), path)
                    world.come_to_rest()
                except Exception as error:
                    wrong = f"{type(error).__name__}: {error}"
                world.close()
                yield name, after, wrong

        first = fresh(())
        seen = first.seen()
        first.close()
        return visit(Reached(seen, ()), steps, most_states)


WORLDS: dict[str, Callable[[Path], World]] = {
    "consumer": ConsumerWorld,
    "late reports": LateWorld,
    "classic": ClassicWorld,
    "static": StaticWorld,
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--states", type=int, default=100_000)
    options = parser.parse_args(argv)
    return max(told(f"{name}: ", partial(explore, make, options.states)) for name, make in WORLDS.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
