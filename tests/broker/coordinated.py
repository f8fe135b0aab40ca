"""A coordinator of groups on a log of its own, and clients of both protocols, whose steps a test chooses.

A member has what it was last answered, and reports that or less; partitions are its own until it reports without them.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.group_configs import GroupConfigs
from minibroker.broker.group.group_kind import AnyGroup
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.membership import JoinRequest, SyncRequest
from minibroker.broker.group.offset_store import OffsetStore
from minibroker.broker.replica.decisions import PartitionState, TopicMetadata, UpdateMetadata
from minibroker.broker.wings.consumer.consumer_groups import ConsumerGroups
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.heartbeats import HeartbeatRequest, HeartbeatResult
from minibroker.protocol.consumer_protocol import read_assignment, write_assignment
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.purgatory.timing_wheel import Timer
from tests.broker.group_clients import subscription
from tests.broker.offset_stores import StoreOnDisk, finished, partition_of

GROUP = "g"
TOPIC_ID = uuid.UUID(int=7)
SESSION_MS = 10_000


class Coordinated:
    """A coordinator on a log of its own, and its clients: what each has, and its epoch or generation."""

    def __init__(self, directory: Path) -> None:
        self.disk = StoreOnDisk(
            directory,
            group_consumer_assignment_interval_ms=0,
            group_consumer_session_timeout_ms=SESSION_MS,
            group_initial_rebalance_delay_ms=0,
        )
        self.timer = Timer(start_ms=0)
        self.now_ms = 0
        self.disk.clock.monotonic_ms = lambda: self.now_ms  # type: ignore[method-assign]
        self.cache = MetadataCache("")
        self.grow(3)
        self.groups = GroupCoordinator(
            self.disk.store,
            self.disk.log,
            config=self.disk.config,
            clock=self.disk.clock,
            timer=self.timer,
            run_steps=self.disk.background.run_steps,
        )
        self.consumer_groups = ConsumerGroups(
            self.groups,
            GroupTopics(self.cache),
            config=self.disk.config,
            group_configs=GroupConfigs(self.disk.config, dict),
            clock=self.disk.clock,
            timer=self.timer,
            run_steps=self.disk.background.run_steps,
            afterwards=lambda action: action(),
        )
        self.groups.cache.add_kind(self.consumer_groups)
        self.groups.on_leadership(partition_of(0), True)
        self.owned: dict[str, set[int]] = {}
        self.epochs: dict[str, int] = {}
        self.classic: dict[str, str] = {}  # member ids by client
        self.unheard: set[str] = set()  # those whose last answer was lost

    # -- steps ------------------------------------------------------------------------------------------------

    def grow(self, partitions: int) -> None:
        roles = {number: PartitionState(0, 0, (0,), (0,)) for number in range(partitions)}
        topic = TopicMetadata("t", TOPIC_ID, roles)
        self.cache.update(UpdateMetadata(0, 0, {}, {"t": topic}))

    def join(self, client: str, regex: bool) -> None:
        if client not in self.epochs:
            self.owned[client] = set()
            names, expression = (None, "t.*") if regex else (["t"], None)
            self._beat(client, 0, topic_names=names, topic_regex=expression, owned={}, rebalance_timeout_ms=5000)

    def beat(self, client: str, reports: bool, is_heard: bool = True) -> None:
        """Send a heartbeat; its answer is heard, or lost. The one after that says all, so that all is answered."""
        if client in self.epochs:
            before = self.epochs[client], self.owned[client]
            says_all = client in self.unheard
            owned = {TOPIC_ID.bytes: sorted(self.owned[client])} if reports or says_all else None
            given: dict[str, Any] = {"topic_names": ["t"], "rebalance_timeout_ms": 5000} if says_all else {}
            self._beat(client, self.epochs[client], owned=owned, **given)
            self.unheard.discard(client)
            if not is_heard:
                self.epochs[client], self.owned[client] = before
                self.unheard.add(client)

    def leave(self, client: str) -> None:
        if client in self.epochs:
            self._beat(client, -1)
            self.forget(client)

    def join_classic(self, client: str) -> None:
        """Join, or join again, and ask for the assignment; a classic group's leader gives itself all."""
        request = JoinRequest(
            GROUP, self.classic.get(client, ""), None, False, False, client, "/h", 5000, SESSION_MS, "consumer",
            [("range", subscription(*sorted(self.owned.get(client, ()))))],
        )  # fmt: skip
        joined = self.groups.serving(GROUP).join(request)
        if not isinstance(joined, JoinResult) or joined.error is not ErrorCode.NONE:
            self.forget(client)
            return
        self.classic[client] = joined.member_id
        assigned = {each.member_id: write_assignment(1, []) for each in joined.members}
        if joined.leader == joined.member_id:
            assigned[joined.member_id] = write_assignment(1, [("t", [0, 1, 2])])
        identity = MemberIdentity(joined.member_id, None, joined.generation_id)
        synced = self.groups.serving(GROUP).sync(SyncRequest(GROUP, identity, None, None, assigned))
        if isinstance(synced, SyncResult) and synced.error is ErrorCode.NONE:
            rows = read_assignment(synced.assignment).assigned_partitions
            self.owned[client] = {each for _, partitions in rows for each in partitions}

    def leave_classic(self, client: str) -> None:
        if client in self.classic:
            self.groups.serving(GROUP).leave(GROUP, [MemberIdentity(self.classic[client])])
            self.forget(client)

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.disk.clock.now_ms += ms
        self.timer.advance(self.now_ms)

    # -- what is there ----------------------------------------------------------------------------------------

    def _beat(self, client: str, epoch: int, **given: Any) -> None:
        defaults: dict[str, Any] = {"topic_names": None, "topic_regex": None, "owned": None, "rebalance_timeout_ms": -1}
        request = HeartbeatRequest(
            group_id=GROUP, member_id=client, member_epoch=epoch, instance_id=None, rack_id=None, server_assignor=None,
            client_id=client, client_host="/h", must_bring_member_id=True, may_describe=lambda _: True,
            **defaults | given,
        )  # fmt: skip
        try:
            result = self.consumer_groups.heartbeats.heartbeat(request)
        except KafkaError:
            self.forget(client)
            return
        assert isinstance(result, HeartbeatResult)
        self.epochs[client] = result.member_epoch
        if result.assignment is not None:
            self.owned[client] = {each for _, partitions in result.assignment for each in partitions}

    def forget(self, client: str) -> None:
        """Give up all partitions, as a client does that is no longer a member."""
        for kept in (self.owned, self.epochs, self.classic):
            kept.pop(client, None)
        self.unheard.discard(client)

    def check(self) -> None:
        group = self.groups.get(GROUP)
        live = {} if group is None else state_of(group)
        stored = finished(OffsetStore(self.disk.log, self.disk.config).load(0, [self.consumer_groups]))
        loaded = [each for each in stored if isinstance(each, ConsumerGroup)]
        assert [state_of(each) for each in loaded] == ([live] if live else []), "the log gives another group"
        if live:
            held = [each for member in live["members"].values() for each in (*member.assigned.get(TOPIC_ID.bytes, ()),)]
            assert len(held) == len(set(held)), f"members have {sorted(held)}"
            members = {client: self.classic.get(client, client) for client in self.owned}
            owned = [each for client, has in self.owned.items() if members[client] in live["members"] for each in has]
            assert len(owned) == len(set(owned)), f"{self.owned} are owned"


def state_of(group: AnyGroup) -> dict[str, Any]:
    """All that is stored of a group of the consumer protocol; nothing of a classic one."""
    names = ("epoch", "metadata_hash", "members", "assignment_epoch", "targets", "resolved")
    return {name: getattr(group, name) for name in names} if hasattr(group, "targets") else {}
