"""The way of a group from the classic protocol to the consumer protocol, and back, while its members go on.

The first member of the consumer protocol takes a classic group of consumers along: its members stay, each with what it
has, and speak the classic protocol to the group of the new one (`classic_members`). When the last member of the
consumer protocol leaves, the group is a classic one again. `group.consumer.migration.policy` allows both, one or none.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.member import Member
from minibroker.broker.group.membership import Membership
from minibroker.broker.group.rebalance import Rebalances
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.broker.wings.consumer.member import ClassicMetadata, ConsumerMember, rows_of
from minibroker.protocol.consumer_protocol import read_assignment, read_subscription, version_of, write_assignment
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.message_values import CONSUMER_PROTOCOL_TYPE

logger = logging.getLogger(__name__)

UPGRADES = ("bidirectional", "upgrade")
DOWNGRADES = ("bidirectional", "downgrade")
DISABLED = "disabled"


class Migration:
    """Converts groups. `membership` and `rebalances` are those of classic groups."""

    def __init__(
        self,
        topics: GroupTopics,
        membership: Membership,
        rebalances: Rebalances,
        *,
        config: KafkaConfig,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._membership = membership
        self._rebalances = rebalances
        self._policy = config.group_consumer_migration_policy.lower()
        self._most_members = config.group_consumer_max_size
        self._clock = clock

    @property
    def is_disabled(self) -> bool:
        return self._policy == DISABLED

    # -- to the consumer protocol -----------------------------------------------------------------------------

    def consumer_group_of(self, classic: Group) -> ConsumerGroup:
        """Make the group of the consumer protocol that a classic one becomes, without its metadata's hash.

        Raises KafkaError(GROUP_ID_NOT_FOUND) with the reason if it cannot become one; COORDINATOR_LOAD_IN_PROGRESS in
        its first rebalance, before which its members have no protocol: the client tries again.
        """
        group_id = classic.group_id
        why = None
        if self._policy not in UPGRADES:
            why = "online upgrade is disabled"
        elif not classic.is_consumer_group:
            why = "the group does not use the consumer embedded protocol"
        elif len(classic.members) > self._most_members:
            why = "the group size exceeds the consumer group maximum size"
        if why is not None:
            raise self._cannot_upgrade(group_id, why)
        if classic.protocol is None:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"Group {group_id} is in its first rebalance.")
        group = ConsumerGroup(group_id, classic.offsets)
        group.epoch = group.assignment_epoch = classic.generation_id
        try:
            for each in classic.members.values():
                member = self._consumer_member_of(each, classic.protocol, classic.generation_id, group_id)
                group.put(member)
                group.targets[member.member_id] = {
                    topic_id: frozenset(partitions) for topic_id, partitions in member.assigned.items()
                }
        except (KafkaProtocolError, KeyError):
            raise self._cannot_upgrade(group_id, "the embedded consumer protocol is malformed") from None
        group.metadata_hash = self._topics.hash_of(group.topics)
        return group

    def _consumer_member_of(self, member: Member, protocol: str, generation_id: int, group_id: str) -> ConsumerMember:
        assigned: dict[bytes, dict[int, int]] = {}
        if member.assignment:
            assignment = read_assignment(member.assignment)
            if assignment.user_data:
                raise self._cannot_upgrade(
                    group_id,
                    "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                    "default assignor before re-attempting the upgrade",
                )
            for topic, partitions in assignment.assigned_partitions:
                topic_id = self._topics.id_of(topic)
                if topic_id is not None:
                    assigned[topic_id] = dict.fromkeys(partitions, generation_id)
        subscription = read_subscription(member.metadata(protocol))
        return ConsumerMember(
            member.member_id,
            member_epoch=generation_id,
            previous_member_epoch=generation_id,
            instance_id=member.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            assigned=assigned,
            classic=ClassicMetadata(member.session_timeout_ms, tuple((name, data) for name, data in member.protocols)),
        )

    @staticmethod
    def _cannot_upgrade(group_id: str, why: str) -> KafkaError:
        message = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
        logger.info("%s", message)
        return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def end_classic(self, classic: Group) -> None:
        """Answer the requests that wait for a classic group which has become one of the consumer protocol."""
        classic.die(self._clock.wall_ms())
        self._rebalances.unload(classic, ErrorCode.REBALANCE_IN_PROGRESS)

    # -- back to the classic one ------------------------------------------------------------------------------

    def may_be_classic(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Whether only members of the classic protocol stay once these leave, and the group may follow."""
        staying = [member for member_id, member in group.members.items() if member_id not in leaving]
        if not staying or any(member.classic is None for member in staying):
            return False
        return self._policy in DOWNGRADES

    def classic_of(self, group: ConsumerGroup, leaving: Collection[str]) -> Group:
        """Make the classic group that one of the consumer protocol becomes, in its epoch, with its target assignment.

        As kafka 4.4 ClassicGroup.fromConsumerGroup.
        """
        classic = Group(group.group_id, group.offsets)
        classic.generation_id = group.epoch
        staying = [member for member_id, member in group.members.items() if member_id not in leaving]
        for member in staying:
            assert member.classic is not None
            classic.add(
                Member(
                    member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.classic.session_timeout_ms,
                    protocols=member.classic.protocols,
                ),
                CONSUMER_PROTOCOL_TYPE,
            )
        protocol = classic.select_protocol()
        classic.restore(GroupState.STABLE, protocol, self._clock.wall_ms())
        for each in classic.members.values():
            each.assign(self.written(each.metadata(protocol), group.target_of(each.member_id)))
        return classic

    def written(self, metadata: bytes, assignment: Mapping[bytes, Iterable[int]]) -> bytes:
        """An assignment as a member with this metadata reads it. Raises KafkaProtocolError."""
        name_of, rows = self._topics.name_of, rows_of(assignment)
        named = [(name, partitions) for topic_id, partitions in rows if (name := name_of(topic_id)) is not None]
        return write_assignment(version_of(metadata), named)

    def begin_classic(self, classic: Group, why: str | None) -> None:
        """Watch the members of a group that has become a classic one; with `why`, rebalance."""
        now_ms = self._clock.monotonic_ms()
        for member in classic.members.values():
            self._membership.watch(classic, member)
            member.expect_heartbeat(now_ms)
        if why is not None:
            self._rebalances.maybe_prepare(classic, why)
