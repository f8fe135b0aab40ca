"""The control calls `cluster.*`: what a test sees of this broker in its cluster, and what it does to that.

Each acts on this broker alone: the controller moves leaders, a follower holds back, a leader shrinks its in-sync
replicas. Who asks knows which broker to ask.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minibroker.broker.cluster.controller import choose_leader
from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.sections import BEING_DELETED
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.replica.leading import Leading
from minibroker.broker.replica.partitions import Role
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.several.fetcher_manager import FetcherManager
from minibroker.broker.wings.several.holds import Hold, Place
from minibroker.broker.wings.several.member import ClusterMember
from minibroker.broker.wings.several.peers import Peers
from minibroker.broker.wings.several.shared_state import SharedState
from minibroker.broker.wings.testing.control.control_server import ControlError
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC
from minibroker.protocol.primitives import TopicPartition

SECONDS_MAX = 86_400.0
RECORDS_MAX = 2**62

Json = dict[str, Any]


class ClusterCalls:
    """`by_name` has the calls."""

    def __init__(
        self,
        *,
        broker_id: int,
        state: SharedState,
        member: ClusterMember,
        peers: Peers,
        fetchers: FetcherManager,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        controller_loop: ControllerLoop,
        topic_admin: TopicAdmin,
        groups: GroupCoordinator,
        clock: Clock,
        session_timeout_ms: int,
        control: Path,
    ) -> None:
        show_control(state.directory, broker_id, control)
        self._broker_id = broker_id
        self._session_timeout_ms = session_timeout_ms
        self._state = state
        self._member = member
        self._peers = peers
        self._fetchers = fetchers
        self._replicas = replica_manager
        self._metadata = metadata_cache
        self._controller_loop = controller_loop
        self._topic_admin = topic_admin
        self._groups = groups
        self._clock = clock
        calls: tuple[Callable[..., object], ...] = (
            *(self.status, self.partitions, self.coordinator, self.group),
            *(self.move_leader, self.move_controller, self.shrink_isr),
            *(self.hold, self.release, self.cut_off, self.heal),
        )
        self.by_name = {f"cluster.{call.__name__}": call for call in calls}

    # -- what is ----------------------------------------------------------------------------------------------

    def status(self) -> Json:
        """This broker, the live ones, and the controller, as the state of the cluster has them by now."""
        state = self._state
        return {
            "broker_id": self._broker_id,
            "cluster_id": state.cluster_id,
            "controller_id": state.controller_id,
            "controller_epoch": state.controller_epoch,
            "brokers": [
                {
                    "broker_id": broker_id,
                    "rack": broker.rack,
                    "address": "{}:{}".format(*next(iter(broker.endpoints.values()))),
                    "control": control_of(state.directory, broker_id),
                }
                for broker_id, broker in state.brokers.items()
            ],
            "being_deleted": BEING_DELETED.to_json(state.get(BEING_DELETED)),
            "cut_off": self._peers.cut_off_brokers,
            "session_timeout_ms": self._session_timeout_ms,
        }

    def partitions(self, topic: str | None = None, partition: int | None = None) -> Json:
        """Partitions as the state has them, as clients of this broker see their leaders, and what is here of them."""
        rows = [
            {
                "topic": name,
                "partition": number,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "in_sync_replicas": state.in_sync_replicas,
                "replicas": state.replicas,
                "leader_seen": self._metadata.leader_of(TopicPartition(name, number)),
                "replica": self._replica(TopicPartition(name, number)),
            }
            for name, its_topic in self._state.topics.items()
            for number, state in its_topic.partitions.items()
            if topic in (None, name) and partition in (None, number) and name not in self._state.get(BEING_DELETED)
        ]
        return {"partitions": rows}

    def _replica(self, topic_partition: TopicPartition) -> Json | None:
        role = self._replicas.partitions.any(topic_partition)
        if role is None:
            return None
        seen = self._metadata.topics.get(topic_partition.topic)
        state = None if seen is None else seen.partitions.get(topic_partition.partition)
        known = () if state is None else state.in_sync_replicas
        hold = self._fetchers.hold_of(topic_partition)
        return {
            "role": "leader" if isinstance(role, Leading) else "follower",
            "leader": self._broker_id if isinstance(role, Leading) else role.leader_id,
            "leader_epoch": role.leader_epoch,
            "in_sync_replicas": role.in_sync_replicas if isinstance(role, Leading) else known,
            "high_watermark": role.log.high_watermark,
            "log_end_offset": role.log.log_end_offset,
            "log_start_offset": role.log.log_start_offset,
            "hold": None if hold is None or isinstance(role, Leading) else str(hold),
            "followers": followers_of(role),
        }

    def coordinator(self, group: str) -> Json:
        """The partition of a group's offsets, which has its coordinator as leader. Raises ControlError."""
        try:
            self._topic_admin.ensure_internal_topic(GROUP_METADATA_TOPIC)
        except KafkaError as error:
            raise ControlError(error.message) from error
        return {"topic": GROUP_METADATA_TOPIC, "partition": self._groups.partition_for(group)}

    def group(self, group: str) -> Json:
        """A group as this broker has it, as its coordinator."""
        found = self._groups.get(group)
        if found is None:
            return {"state": None, "members": 0}
        return {"state": found.state.value, "members": len(found.members)}

    # -- what is done -----------------------------------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, broker_id: int, is_unclean: bool = False) -> None:
        """Have a replica lead, if this broker is the controller. Raises ControlError."""
        topic_partition = TopicPartition(topic, partition)
        try:
            failures = self._controller_loop.perform(
                "the leader",
                lambda image: choose_leader(image, topic_partition, broker_id, is_unclean=is_unclean),
            )
        except KafkaError as error:
            raise ControlError(error.message) from error
        for failed in failures.values():
            raise ControlError(failed.message)

    def move_controller(self) -> None:
        """Have another broker elected as the controller. Raises ControlError if this one is not it."""
        try:
            self._member.hand_over_control()
        except KafkaError as error:
            raise ControlError(error.message) from error

    def shrink_isr(self, topic: str, partition: int, broker_id: int) -> None:
        """Remove a follower from the in-sync replicas, as their leader. Raises ControlError."""
        try:
            leading = self._replicas.partitions.led(TopicPartition(topic, partition))
        except KafkaError as error:
            raise ControlError(error.message) from error
        if broker_id not in leading.remote_replicas:
            followers = ", ".join(map(str, sorted(leading.remote_replicas))) or "none"
            raise ControlError(f"broker {broker_id} does not follow {leading.topic_partition}; followers: {followers}")
        self._replicas.followers.drop(leading, broker_id, self._clock.monotonic_ms())

    def hold(
        self,
        topic: str | None = None,
        partition: int | None = None,
        records: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Follow no more, or with `records` or `seconds` late. Raises ControlError."""
        if records is not None and seconds is not None:
            raise ControlError("a follower lags by records or by seconds; leave one of them out")
        if records is not None and not (type(records) is int and 0 < records <= RECORDS_MAX):
            raise ControlError(f"records is a whole number above 0, not {records!r}")
        if seconds is not None and not (type(seconds) in (int, float) and 0 < seconds <= SECONDS_MAX):
            raise ControlError(f"seconds is a number above 0 and at most {SECONDS_MAX:.0f}, not {seconds!r}")
        self._fetchers.hold(Hold(place_of(topic, partition), records=records, seconds=seconds))

    def release(self, topic: str | None = None, partition: int | None = None) -> None:
        """Follow as usual again. Raises ControlError."""
        self._fetchers.release(place_of(topic, partition))

    def cut_off(self, broker_id: int) -> None:
        """Reach another broker no more. Raises ControlError."""
        if broker_id == self._broker_id:
            raise ControlError(f"broker {broker_id} always reaches itself; name two brokers")
        self._peers.cut_off(broker_id)

    def heal(self) -> None:
        """Reach all brokers again."""
        self._peers.heal()


def show_control(directory: Path, broker_id: int, control: Path) -> None:
    """Link a broker's control socket from the cluster's directory, unless it is there."""
    link = directory / f"{broker_id}.control"
    if link != control:
        new = link.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.symlink_to(control)
        new.replace(link)  # while commands ask other brokers where it is


def control_of(directory: Path, broker_id: int) -> str | None:
    """Return where a broker's control socket is; None for a broker without one."""
    link = directory / f"{broker_id}.control"
    return os.path.realpath(link) if link.exists() else None


def followers_of(role: Role) -> Json:
    """The log end offsets of a leader's followers as it knows them, by broker id; -1 before the first fetch."""
    if not isinstance(role, Leading):
        return {}
    return {str(each.broker_id): each.log_end_offset.message_offset for each in role.remote_replicas.values()}


def place_of(topic: str | None, partition: int | None) -> Place:
    """Raises ControlError."""
    if topic is None and partition is not None:
        raise ControlError("a partition is one of a topic; name the topic")
    return Place(topic, partition)
