"""Groups in a generated conversation: joins and syncs in odd orders, and everything else a member or an admin asks.

A member asks on a connection of its own, which is given up before it joins or syncs again: what waited there is looked
at first. What differs on purpose stays out (docs/differences.md): a member that leaves, or joins again, is known, so
that there are no more than two members, and the order of a hash map does not choose the next leader; nor a protocol,
for all prefer the same one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from minibroker.conformance.asking import create
from minibroker.conformance.steps import Script, Step, Told, call, drop, look

GROUPS = ("@group", "@other")
PROTOCOLS = {
    "range": (("range", b"r"),),
    "both": (("range", b"r"), ("roundrobin", b"rr")),
    "changed": (("range", b"changed"),),
    "strange": (("sticky", b"s"),),
}
NO_MEMBER = "nobody"
TOPIC_EXISTS = (36,)  # Apache Kafka deletes it in ZooKeeper after it has answered


@dataclass
class GeneratedMember:
    """A place for a member. `joins` are the names of its JoinGroups, of which the latest answered has its id."""

    connection: str
    joins: list[str] = field(default_factory=list)
    is_first_waiting: bool = False  # its id is not known yet

    @property
    def identity(self) -> dict[str, Any]:
        name = self.joins[-1]
        return {"member_id": Told(name), "generation_id": Told(name, "generation_id")}


class GeneratedGroups:
    """Draws moves in one group of two members, and requests of groups that have none."""

    def __init__(self, rng: random.Random, group: str = GROUPS[0]) -> None:
        self._random = rng
        self._group = group
        self._members = [GeneratedMember(f"{group[1:]}-{number}") for number in range(2)]
        self._count = 0
        self._has_topic = True

    def move(self) -> list[Step]:
        moves = [self._join] * 6 + [self._sync] * 6 + [self._heartbeat] * 3 + [self._commit] * 3 + [self._look] * 2
        return self._random.choice([*moves, self._leave, self._administer, self._administer])()

    def end(self) -> list[Step]:
        """Look at what waits, and leave."""
        return [*(look(each.connection) for each in self._members), *(drop(each.connection) for each in self._members)]

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _anew(self, member: GeneratedMember) -> list[Step]:
        return [look(member.connection), drop(member.connection)]

    def _join(self) -> list[Step]:
        member = self._one_of(self._members)
        if member.is_first_waiting:
            return self._look()
        name = f"{member.connection}-{self._count}"
        self._count += 1
        version = self._random.randint(0, 3)
        luck = self._random.random()
        known: Any = Told(member.joins[0]) if member.joins else ""
        if luck < 0.05:
            known, name = NO_MEMBER, f"lost{self._count}"
        # Alone it is always answered, by Apache Kafka in a thread that may take its time.
        is_alone = not any(each.joins for each in self._members if each is not member)
        options: dict[str, Any] = {"rebalance_timeout_ms": 60_000} if version else {}
        step = call(
            "JoinGroup",
            version,
            name=name,
            client_id=member.connection,
            connection=member.connection,
            kind="call" if is_alone else "park",
            group_id=self._group,
            session_timeout_ms=60_000,
            member_id=known,
            protocol_type="consumer" if luck < 0.97 else "connect",
            protocols=PROTOCOLS[self._one_of(("range", "range", "range", "both", "changed", "strange"))],
            **options,
        )
        steps = [*self._anew(member), step]
        if known != NO_MEMBER and luck < 0.97:
            member.is_first_waiting = not member.joins and any(each.joins for each in self._members)
            member.joins.append(name)
            for other in self._members:
                if other is not member:
                    other.is_first_waiting = False
        return steps

    def _sync(self) -> list[Step]:
        member = self._one_of([each for each in self._members if each.joins] or [None])
        if member is None:
            return self._join()
        identity = self._somewhat_wrong(member.identity)
        assignments = [(Told(each.joins[-1]), each.connection.encode()) for each in self._members if each.joins]
        if self._random.random() < 0.2:
            assignments = assignments[:1]
        step = call(
            "SyncGroup",
            self._random.randint(0, 2),
            connection=member.connection,
            kind="park",
            group_id=self._group,
            assignments=assignments,
            **identity,
        )
        return [*self._anew(member), step]

    def _somewhat_wrong(self, identity: dict[str, Any]) -> dict[str, Any]:
        luck = self._random.random()
        if luck < 0.05:
            return identity | {"generation_id": self._one_of((-1, 0, 99))}
        return identity | {"member_id": self._one_of(("", NO_MEMBER))} if luck < 0.1 else identity

    def _of_anyone(self) -> dict[str, Any]:
        known = [each.identity for each in self._members if each.joins]
        return self._somewhat_wrong(self._one_of(known)) if known else {"member_id": NO_MEMBER, "generation_id": 1}

    def _heartbeat(self) -> list[Step]:
        return [call("Heartbeat", self._random.randint(0, 2), group_id=self._group, **self._of_anyone())]

    def _commit(self) -> list[Step]:
        identity = self._of_anyone() if self._random.random() < 0.8 else {"member_id": "", "generation_id": -1}
        metadata = self._one_of(("", "m", None, "x" * 4097))
        rows = [("@offsets", [(self._random.randint(0, 2), self._random.randint(0, 9), -1, -1, metadata)])]
        if self._random.random() < 0.2:
            rows.append(("@nowhere", [(0, 1, -1, -1, "")]))
        version = self._random.randint(0, 4)
        group = self._one_of(GROUPS) if self._random.random() < 0.2 else self._group
        return [call("OffsetCommit", version, group_id=group, topics=rows, **(identity if version else {}))]

    def _look(self) -> list[Step]:
        return [look(self._one_of(self._members).connection)]

    def _leave(self) -> list[Step]:
        """Of the member that joined first it takes all: the one that is left leads."""
        member = self._one_of(self._members)
        if not member.joins or member.is_first_waiting:
            return self._look()
        steps = [
            *self._anew(member),
            call("LeaveGroup", self._random.randint(0, 2), group_id=self._group, member_id=Told(member.joins[0])),
        ]
        member.joins.clear()
        return steps

    def _administer(self) -> list[Step]:
        group = self._one_of((self._group, *GROUPS))
        version = self._random.randint(0, 1)
        partitions = [("@offsets", [0, 1, 2])]
        if self._random.random() < 0.2:
            return [self._take_or_bring_topic()]
        asked = (
            call("DescribeGroups", self._random.randint(0, 2), groups=[group]),
            call("ListGroups", self._random.randint(0, 2)),
            call("DeleteGroups", version, group_names=[group]),
            call("OffsetFetch", self._random.randint(0, 4), group_id=group, topics=partitions),
        )
        return [self._one_of(asked)]

    def _take_or_bring_topic(self) -> Step:
        self._has_topic = not self._has_topic
        if self._has_topic:
            return replace(create("@offsets", 3), retry=TOPIC_EXISTS)
        return call("DeleteTopics", 1, topic_names=["@offsets"], timeout_ms=20_000)


def generated_groups(seed: int, moves: int) -> Script:
    """A conversation of groups alone."""
    groups = GeneratedGroups(random.Random(seed))
    script: Script = [create("@offsets", 3), call("FindCoordinator", 0, key=GROUPS[0])]
    while len(script) < moves:
        script += groups.move()
    return [*script, *groups.end()]
