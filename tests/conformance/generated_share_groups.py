"""Generated conversations in one share group: members that join, fetch in sessions, acknowledge rightly and wrongly,
leave, hang up; foreign members, unknown epochs, odd ranges; and what administrators ask and change.

Each member has a connection of its own, which ends its session with the conversation. Nothing waits for time: locks and
sessions outlast a conversation. A first heartbeat that names a topic is followed by a wait, in which Apache Kafka makes
the state of its partitions.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from minibroker.conformance.asking import produce, records
from minibroker.conformance.steps import Batch, IdOf, Script, Step, Told, call, drop
from tests.conformance.generated_consumer_groups import topics, wait

GROUP = "@group"
JOINS, LEAVES = 0, -1
FIRST, FINAL = 0, -1  # epochs of a share session
INITIALIZING_MS = 600
BEATS_TO_BEGIN = 3  # behind the first one of all
MOVES = 24
MEMBERS = ("m1", "m2", "m3")
TOPIC, NOWHERE = "@t", "@none"
QUIET = "@quiet"  # a topic without records, of which a fetch waits
WRONG_EPOCHS = (-3, -2, 99, 2**31 - 1)
KINDS = (1, 1, 1, 2, 2, 3, 0, 4, 5, -1)
MOST_RANGES = 3


def heartbeat(member: str, epoch: Any, **fields: Any) -> Step:
    body = {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "rack_id": None}
    return call("ShareGroupHeartbeat", 1, **(body | {"subscribed_topic_names": None} | fields))


class GeneratedShareGroup:
    """Draws moves of up to three members."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._partitions = 1
        self._here: list[str] = []
        self._fetching: list[str] = []
        self._renews = True  # in a ShareFetch; it shows a partition again later, if that was forgotten
        self._written = [0] * self._partitions

    def script(self) -> Script:
        configs = [("share.auto.offset.reset", 0, "earliest")]
        if self._chance(0.3):
            configs.append(("share.delivery.count.limit", 0, "2"))
        if self._chance(0.2):
            configs.append(("share.renew.acknowledge.enable", 0, self._one_of(("true", "false"))))
        script = topics((QUIET, 1), (TOPIC, self._partitions))
        script.append(call("IncrementalAlterConfigs", 1, resources=[(32, GROUP, configs)], validate_only=False))
        for number in range(self._partitions):
            script += self._produce(number)
        script += self._join("m1")
        for _ in range(BEATS_TO_BEGIN):
            script += [wait(INITIALIZING_MS, QUIET), self._beaten("m1")]
        moves: list[Callable[[], list[Step]]] = (
            [self._fetch] * 9 + [self._acknowledge] * 8 + [self._fetch_with_acks] * 3
        )
        moves += [self._beat, self._join, self._join, self._leave, self._hang_up, self._write, self._write]
        moves += [self._wrong_heartbeat, self._wrong_session, self._wrong_fetch, self._foreign, self._administer]
        moves += [self._administer, self._describe]
        while len(script) < MOVES + 12:
            script += self._one_of(moves)()
        return [*script, *self._end()]

    def _one_of(self, choices: Any) -> Any:
        return self._random.choice(choices)

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    # -- records ----------------------------------------------------------------------------------------------

    def _produce(self, partition: int) -> list[Step]:
        count = self._random.randint(1, 8)
        self._written[partition] += count
        return [produce(TOPIC, Batch(records(count)), partition)]

    def _write(self) -> list[Step]:
        return self._produce(self._random.randrange(self._partitions))

    # -- membership -------------------------------------------------------------------------------------------

    def _join(self, member: str = "") -> list[Step]:
        member = member or self._one_of(MEMBERS)
        if member not in self._here:
            self._here.append(member)
        return [heartbeat(member, JOINS, subscribed_topic_names=[TOPIC])]

    def _beaten(self, member: str, **fields: Any) -> Step:
        return heartbeat(member, Told(member, "member_epoch"), **fields)

    def _beat(self) -> list[Step]:
        if not self._here:
            return self._join()
        return [self._beaten(self._one_of(self._here), **self._one_of(({}, {"subscribed_topic_names": [TOPIC]})))]

    def _leave(self) -> list[Step]:
        if not self._here:
            return self._describe()
        member = self._one_of(self._here)
        self._here.remove(member)
        closes = [self._session(member, FINAL)] if member in self._fetching else []
        if closes:
            self._fetching.remove(member)
        return [*closes, heartbeat(member, LEAVES), *([wait(INITIALIZING_MS // 3, QUIET)] if closes else [])]

    def _wrong_heartbeat(self) -> list[Step]:
        odd: dict[str, Any] = self._one_of(
            (
                {"member_epoch": self._one_of(WRONG_EPOCHS)},
                {"member_id": "", "subscribed_topic_names": [TOPIC]},
                {"group_id": ""},
                {"rack_id": ""},
                {"member_id": "m9", "member_epoch": self._one_of((1, -1))},
                {"group_id": "@other", "member_epoch": self._one_of((1, 7, -1))},
            )
        )
        return [heartbeat(self._one_of(MEMBERS), 0, **odd)]

    # -- sessions ---------------------------------------------------------------------------------------------

    def _session(self, member: str, epoch: Any = None, *, version: int = 2, **fields: Any) -> Step:
        """A ShareFetch; by default in the session's next epoch."""
        body: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member,
            "share_session_epoch": Told(member, "share_epoch") if epoch is None else epoch,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": [],
            "forgotten_topics": [],
        }
        return call("ShareFetch", version, connection=f"of {member}", **(body | fields))

    def _all(self) -> list[Any]:
        return [(IdOf(TOPIC), [(number, []) for number in range(self._partitions)])]

    def _fetch(self) -> list[Step]:
        if not self._here:
            return self._join()
        member = self._one_of(self._here)
        limits: dict[str, Any] = {
            "max_records": self._one_of((1, 2, 3, 500, 500)),
            "batch_size": self._one_of((1, 2, 500)),
        }
        limits["share_acquire_mode"] = self._one_of((0, 0, 1))
        version = self._one_of((1, 2, 2))
        if version == 1:
            limits = {"max_records": 500}
        if member not in self._fetching:
            self._fetching.append(member)
            waits = {"max_wait_ms": INITIALIZING_MS, "min_bytes": 1}  # until Apache Kafka has read its state
            return [self._session(member, FIRST, version=version, topics=self._all(), **limits, **waits)]
        forgets = {"forgotten_topics": [(IdOf(TOPIC), [0])]} if self._chance(0.1) else {}
        self._renews &= not forgets
        again = {"topics": self._all()} if self._chance(0.2) and not forgets else {}
        return [self._session(member, version=version, **limits, **forgets, **again)]

    def _hang_up(self) -> list[Step]:
        """Close the session, or the connection, and with it the session."""
        if not self._fetching:
            return self._fetch()
        member = self._one_of(self._fetching)
        self._fetching.remove(member)
        ends = self._session(member, FINAL) if self._chance(0.7) else drop(f"of {member}")
        return [ends, wait(INITIALIZING_MS // 3, QUIET)]  # what it held is given back meanwhile

    # -- acknowledgements -------------------------------------------------------------------------------------

    def _ranges(self, partition: int, releases: bool = True) -> list[Any]:
        """Acknowledgements of a partition: most of them in order, some of what was not delivered, some odd."""
        end = self._written[partition]
        if self._chance(0.03):
            return [(0, 0, [1])] * 12_000
        rows, first = [], self._random.randint(0, max(0, end - 1))
        for _ in range(self._random.randint(1, MOST_RANGES)):
            last = min(first + self._random.randint(0, 3), end - 1 + self._chance(0.08))
            size = last - first + 1
            if self._chance(0.06):
                last, size = first - 1, 1
            kinds = [self._one_of(KINDS[:6])]
            if self._chance(0.4) and size > 0:
                kinds = [self._one_of(KINDS[:7]) for _ in range(size)]
            if self._chance(0.05):
                kinds = self._one_of(([], [1, 1], [1] * (size + 1), [self._one_of(KINDS[7:])]))
            if not releases:  # what an answer releases may be in it, by chance
                kinds = [1 if each == 2 else each for each in kinds]
            rows.append((first, last, kinds))
            first = last + 1 if self._chance(0.95) else first
            if first >= end:
                break
        return rows

    def _acknowledged(self, *, releases: bool = True) -> list[Any]:
        number = self._random.randrange(self._partitions)
        return [(IdOf(TOPIC), [(number, self._ranges(number, releases))])]

    def _said(self, member: str, epoch: Any = None, **fields: Any) -> Step:
        """A ShareAcknowledge; by default in the session's next epoch."""
        body: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member,
            "share_session_epoch": Told(member, "share_epoch") if epoch is None else epoch,
            "is_renew_ack": False,
            "topics": [],
        }
        return call("ShareAcknowledge", 2, connection=f"of {member}", **(body | fields))

    def _acknowledge(self) -> list[Step]:
        if not self._fetching:
            return self._fetch()
        member = self._one_of(self._fetching)
        if self._chance(0.12):
            renews = [(IdOf(TOPIC), [(0, [(0, self._random.randint(0, 2), [self._one_of((4, 4, 1))])])])]
            return [self._said(member, is_renew_ack=True, topics=renews)]
        if self._chance(0.1):
            odd = self._one_of(([(IdOf(TOPIC), [(9, [(0, 0, [1])])])], [(b"\1" * 16, [(0, [(0, 0, [1])])])], []))
            return [self._said(member, topics=odd)]
        return [self._said(member, topics=self._acknowledged())]

    def _fetch_with_acks(self) -> list[Step]:
        if not self._fetching:
            return self._fetch()
        member = self._one_of(self._fetching)
        if self._renews and self._chance(0.15):
            renews: dict[str, Any] = {"topics": [(IdOf(TOPIC), [(0, [(0, 0, [4])])])], "is_renew_ack": True}
            none = (
                {} if self._chance(0.4) else dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
            )
            return [self._session(member, **renews, **none)]
        return [self._session(member, topics=self._acknowledged(releases=False))]

    # -- what makes no sense ----------------------------------------------------------------------------------

    def _wrong_session(self) -> list[Step]:
        member = self._one_of(MEMBERS)
        epoch = self._one_of((*WRONG_EPOCHS, 0 if member in self._fetching else 5))
        acknowledges = {"topics": self._acknowledged()} if self._chance(0.5) else {}
        if epoch == FIRST and member in self._fetching and not acknowledges:
            acknowledges = {"topics": self._all()}
        return [self._one_of((self._session, self._said))(member, epoch, **acknowledges)]

    def _wrong_fetch(self) -> list[Step]:
        if not self._fetching:
            return self._wrong_session()
        odd: dict[str, Any] = self._one_of(
            (
                {"topics": [(IdOf(TOPIC), [(7, [])])], "forgotten_topics": []},
                {"topics": [(b"\1" * 16, [(0, [])])]},
                {"forgotten_topics": [(IdOf(TOPIC), [5]), (b"\2" * 16, [0])]},
                {"max_records": self._one_of((0, -1))},
                {"max_bytes": self._one_of((0, -1, 1))},
                {"share_acquire_mode": self._one_of((2, -1))},
                {"is_renew_ack": True},
            )
        )
        member = self._one_of(self._fetching)
        later = []
        if odd.get("topics"):
            topic_id, rows = odd["topics"][0]
            later = [self._session(member, forgotten_topics=[(topic_id, [number for number, _ in rows])])]
        return [self._session(member, **odd), *later]

    def _foreign(self) -> list[Step]:
        """A member of no group, one of another group, no member; requests of other protocols."""
        rows = [(TOPIC, [(0, 5, -1, -1, "")])]
        commit = {"generation_id": self._one_of((-1, 2)), "member_id": self._one_of(("", "m1"))}
        return [
            self._one_of(
                (
                    self._session("", FIRST, topics=self._all()),
                    self._session("m1", FIRST, group_id="", topics=self._all()),
                    self._session("m1", FIRST, group_id=None, topics=self._all()),
                    self._said("stranger", 1, topics=self._acknowledged()),
                    self._said("stranger", self._one_of((0, -1)), topics=self._acknowledged()),
                    call("OffsetCommit", 7, group_id=GROUP, **commit, group_instance_id=None, topics=rows),
                    call("OffsetFetch", 7, group_id=GROUP, topics=[(TOPIC, [0])], require_stable=False),
                    call("Heartbeat", 4, group_id=GROUP, generation_id=1, member_id="m1", group_instance_id=None),
                    call("DescribeGroups", 6, groups=[GROUP], include_authorized_operations=False),
                    call("ConsumerGroupDescribe", 1, group_ids=[GROUP], include_authorized_operations=False),
                )
            )
        ]

    # -- administrators ---------------------------------------------------------------------------------------

    def _describe(self) -> list[Step]:
        groups = [GROUP] if self._chance(0.8) else [GROUP, "@other", ""]
        return [call("ShareGroupDescribe", 1, group_ids=groups, include_authorized_operations=False)]

    def _end(self) -> list[Step]:
        """All leave; then the group is changed as only an empty one may be."""
        script = self._describe()
        for member in list(self._here):
            script += [self._session(member, FINAL)] * (member in self._fetching) + [heartbeat(member, LEAVES)]
        offsets = call("DescribeShareGroupOffsets", 1, groups=[(GROUP, None)])
        script += [offsets, *self._describe()]
        for _ in range(2):
            script += [*self._administer(is_empty=True), offsets]
        return [*script, call("DeleteGroups", 2, group_names=[GROUP]), *self._describe(), offsets]

    def _administer(self, *, is_empty: bool = False) -> list[Step]:
        if not self._here and not is_empty:  # what is deleted is made anew, later in Apache Kafka
            return self._join()
        offset = self._one_of((0, 1, 3, 99, -1, -2))
        partition = self._one_of((0, 0, 9))
        asked = self._one_of((None, [(TOPIC, [0])], [(NOWHERE, [0])], []))
        version = self._one_of((0, 1))
        return [
            self._one_of(
                (
                    call("ListGroups", 5, states_filter=[], types_filter=[self._one_of(("share", "classic"))]),
                    call("DescribeShareGroupOffsets", version, groups=[(self._one_of((GROUP, "@other")), asked)]),
                    call("AlterShareGroupOffsets", 0, group_id=GROUP, topics=[(TOPIC, [(partition, offset)])]),
                    call("AlterShareGroupOffsets", 0, group_id=GROUP, topics=[(NOWHERE, [(0, 0)])]),
                    call("DeleteShareGroupOffsets", 0, group_id=GROUP, topics=[(self._one_of((TOPIC, NOWHERE)),)]),
                    call("DeleteShareGroupOffsets", 0, group_id="@other", topics=[(TOPIC,)]),
                    *[call("DeleteGroups", 2, group_names=[GROUP])] * (not is_empty),
                )
            )
        ]


def generated_share_group(seed: int) -> Script:
    return GeneratedShareGroup(seed).script()
