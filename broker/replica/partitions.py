"""The partitions of this broker by name: each has a log and a role, `Leading` or `Following`.

Only the replica manager changes roles. Everything else asks for the leader of a partition (`led`), or for what is here
of it (`any`).
"""

from __future__ import annotations

from collections.abc import Mapping

from minibroker.broker.replica.following import Following
from minibroker.broker.replica.leading import Leading
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.data_dir.log_manager import LogManager

Role = Leading | Following
NONE: Mapping[TopicPartition, Role] = {}


class Partitions:
    """The roles of this broker. `log_manager` knows whether the disk below them has failed."""

    __slots__ = ("_log_manager", "_roles")

    def __init__(self, log_manager: LogManager) -> None:
        self._log_manager = log_manager
        self._roles: dict[TopicPartition, Role] = {}

    def led(self, topic_partition: TopicPartition) -> Leading:
        """Return the leader. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_FOR_PARTITION, or
        KAFKA_STORAGE_ERROR after its disk has failed."""
        role = self._roles.get(topic_partition)
        if role is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not on this broker")
        if self._log_manager.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline")
        if not isinstance(role, Leading):
            raise KafkaError(
                ErrorCode.NOT_LEADER_FOR_PARTITION, f"broker {role.leader_id} leads {topic_partition}, not this one"
            )
        return role

    def any(self, topic_partition: TopicPartition) -> Role | None:
        """Return the role in a partition, whichever it is; None if the partition is not on this broker."""
        return self._roles.get(topic_partition)

    def readable(self) -> Mapping[TopicPartition, Role]:
        """All roles; none after the disk has failed."""
        return NONE if self._log_manager.is_offline else self._roles

    def items(self) -> list[tuple[TopicPartition, Role]]:
        return list(self._roles.items())

    def leaders(self) -> list[Leading]:
        """The partitions that this broker leads."""
        return [role for role in self._roles.values() if isinstance(role, Leading)]

    def set(self, topic_partition: TopicPartition, role: Role) -> None:
        self._roles[topic_partition] = role

    def remove(self, topic_partition: TopicPartition) -> None:
        """Raises KeyError for a partition that is not on this broker."""
        del self._roles[topic_partition]
