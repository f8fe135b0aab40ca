"""Generated conversations in one group of the consumer protocol: members that join, answer an assignment or do not yet,
come back as static members, leave, use epochs that are not theirs, commit and fetch; and what administrators ask.

A member is named after its place; one that joins again has the same id, and is taken for the same member. There is one
topic, beside one that does not exist: of two, the order of their ids decides, which a broker draws. No move waits for
time: sessions and rebalance timeouts outlast every conversation.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minibroker.conformance.steps import IdOf, Script, Step, Told, call

GROUP = "@group"
JOINS, LEAVES, WILL_BE_BACK = 0, -1, -2
NOT_THERE_YET = (3, 5, 6)  # Apache Kafka's brokers learn of a topic some time after it was created
SETTLING_MS = 400  # and its coordinator still later
MOVES = 26
MEMBERS = ("m1", "m2", "m3", "m4")
SUBSCRIPTIONS = (["@t"], ["@t"], ["@t", "@none"], ["@none"])
WRONG_EPOCHS = (-3, 0, 1, 2, 3, 99)


def topics(*rows: tuple[str, int]) -> Script:
    """Create topics of so many partitions, and wait until the broker knows them."""
    made: list[Any] = [(name, partitions, 1, [], []) for name, partitions in rows]
    known = [[(name, [(0, -1, -1, 1)])] for name, _ in rows]
    return [
        call("CreateTopics", 7, topics=made, timeout_ms=10_000, validate_only=False),
        *(call("ListOffsets", 7, replica_id=-1, topics=each, retry=NOT_THERE_YET) for each in known),
        wait(SETTLING_MS, rows[0][0]),
    ]


def wait(milliseconds: int, topic: str = "@t") -> Step:
    """A fetch of what is not there."""
    row = (topic, [(0, -1, 0, -1, -1, 1)])
    return call("Fetch", 11, replica_id=-1, max_wait_ms=milliseconds, min_bytes=1, max_bytes=1, topics=[row])


def heartbeat(member: Any, epoch: Any, *, version: int = 1, name: str = "", **fields: Any) -> Step:
    """A heartbeat without what has not changed."""
    body: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return call("ConsumerGroupHeartbeat", version, name=name, **(body | fields))


def joins(member: Any, *subscribed: str, **fields: Any) -> Step:
    given: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": list(subscribed),
        "topic_partitions": [],
    }
    return heartbeat(member, JOINS, **(given | fields))


def beats(member: str, **fields: Any) -> Step:
    """A heartbeat in its epoch, of a member that owns what it was assigned."""
    owned: dict[str, Any] = {"topic_partitions": Told(member, "assignment")}
    return heartbeat(Told(member, "member_id"), Told(member, "member_epoch"), **(owned | fields))


def leaves(member: str, epoch: int = LEAVES, **fields: Any) -> Step:
    return heartbeat(Told(member, "member_id"), epoch, **fields)


def owning(*rows: tuple[str, list[int]]) -> dict[str, Any]:
    return {"topic_partitions": [(IdOf(topic), partitions) for topic, partitions in rows]}


def described(*groups: str, version: int = 1) -> Step:
    return call(
        "ConsumerGroupDescribe", version, group_ids=list(groups or [GROUP]), include_authorized_operations=False
    )


def committed(member: Any, epoch: Any, offset: int = 5, *, version: int = 9, **fields: Any) -> Step:
    rows = [("@t", [(0, offset, -1, -1, "")])]
    body: dict[str, Any] = {"group_id": GROUP, "generation_id": epoch, "member_id": member, "topics": rows}
    return call("OffsetCommit", version, **(body | fields))


def fetched(group: str = GROUP, *, member: Any = None, epoch: Any = -1, version: int = 9) -> Step:
    of_member = (member, epoch) if version >= 9 else (None, -1)
    return call("OffsetFetch", version, groups=[(group, *of_member, [("@t", [0, 1])])])


def listed(*types: str) -> Step:
    return call("ListGroups", 5, states_filter=[], types_filter=list(types))


class GeneratedConsumerGroup:
    """Draws moves of up to four members, of which some are static in a conversation."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._here: list[str] = []
        self._away: list[str] = []  # static members that will be back
        self._static = {each for each in MEMBERS if self._random.random() < 0.3}
        self._assignors = self._random.choice(((None,), (None, "range"), ("uniform", "range")))
        self._partitions = self._random.randint(1, 7)

    def script(self) -> Script:
        script = topics(("@t", self._partitions))
        moves: list[Callable[[], list[Step]]] = [self._beat] * 14 + [self._join] * 5 + [self._beat_silently] * 3
        moves += [self._own_less, self._change, self._leave, self._wrong_epoch, self._commit, self._commit, self._fetch]
        moves += [self._describe, self._administer]
        while len(script) < MOVES:
            script += self._random.choice(moves)()
        for _ in range(3):
            script += [beats(each) for each in self._here]
        return [*script, described()]

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _subscribed(self) -> list[str]:
        subscribed: list[str] = self._one_of(SUBSCRIPTIONS)
        return subscribed

    def _instance(self, member: str) -> dict[str, Any]:
        return {"instance_id": f"i-{member}"} if member in self._static else {}

    def _join(self) -> list[Step]:
        member = self._one_of(MEMBERS)
        if member in self._here and self._random.random() < 0.7:
            return self._beat()
        if member not in self._here:
            self._here.append(member)
        if member in self._away:
            self._away.remove(member)
        options = {"server_assignor": self._one_of(self._assignors), "rack_id": self._one_of((None, None, "rack"))}
        return [joins(member, *self._subscribed(), **self._instance(member), **options)]

    def _beat(self) -> list[Step]:
        return [beats(self._one_of(self._here))] if self._here else self._join()

    def _beat_silently(self) -> list[Step]:
        """Keep alive; what it owns is as in its last heartbeat."""
        if not self._here:
            return self._join()
        member = self._one_of(self._here)
        return [heartbeat(member, Told(member, "member_epoch"))]

    def _own_less(self) -> list[Step]:
        """Own one partition, or none, whatever was assigned."""
        if not self._here:
            return self._join()
        owned = owning(("@t", [0])) if self._random.random() < 0.5 else {"topic_partitions": []}
        return [beats(self._one_of(self._here), **owned)]

    def _change(self) -> list[Step]:
        if not self._here:
            return self._join()
        change = {"subscribed_topic_names": self._subscribed()}
        return [beats(self._one_of(self._here), **change)]

    def _leave(self) -> list[Step]:
        if not self._here:
            return self._describe()
        member = self._one_of(self._here)
        self._here.remove(member)
        if member in self._static and self._random.random() < 0.6:
            self._away.append(member)
            return [leaves(member, WILL_BE_BACK, **self._instance(member))]
        return [leaves(member, LEAVES, **self._instance(member))]

    def _wrong_epoch(self) -> list[Step]:
        member = self._one_of(MEMBERS)
        epoch = self._one_of([each for each in WRONG_EPOCHS if each])
        return [heartbeat(member, epoch, **self._one_of(({}, {"topic_partitions": []})))]

    def _commit(self) -> list[Step]:
        member = self._one_of(MEMBERS)
        epoch = Told(member, "member_epoch") if self._random.random() < 0.7 else self._one_of(WRONG_EPOCHS)
        return [committed(member, epoch, self._random.randint(0, 9), version=self._one_of((8, 9, 9)))]

    def _fetch(self) -> list[Step]:
        member = self._one_of((None, *MEMBERS))
        epoch = -1 if member is None else Told(member, "member_epoch")
        return [fetched(member=member, epoch=epoch, version=self._one_of((8, 9, 9)))]

    def _describe(self) -> list[Step]:
        return [described(version=self._one_of((0, 1)))]

    def _administer(self) -> list[Step]:
        if self._random.random() < 0.1:
            return [call("DeleteGroups", 2, group_names=[GROUP])]
        return [listed(), call("DescribeGroups", 6, groups=[GROUP])][: self._random.randint(1, 2)]


def generated_consumer_groups(seed: int) -> Script:
    return GeneratedConsumerGroup(seed).script()
