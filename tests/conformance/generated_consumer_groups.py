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

from tests.conformance.scripts.consumer_groups import (
    GROUP,
    LEAVES,
    WILL_BE_BACK,
    beats,
    committed,
    described,
    fetched,
    heartbeat,
    joins,
    leaves,
    listed,
    owning,
    topics,
)
from tests.conformance.steps import Script, Step, Told, call

MOVES = 26
MEMBERS = ("m1", "m2", "m3", "m4")
SUBSCRIPTIONS = (["@t"], ["@t"], ["@t", "@none"], ["@none"])
WRONG_EPOCHS = (-3, 0, 1, 2, 3, 99)


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
