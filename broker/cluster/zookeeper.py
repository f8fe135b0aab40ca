"""Names that clients choose and Kafka keeps in ZooKeeper: which ones it takes, and the offsets of version 0.

OffsetCommit and OffsetFetch v0 use a store of their own, apart from the offsets of groups: anyone may commit, and the
offsets outlive their topic. The state of the cluster holds them, so a commit is as durable as a new topic. Unlike
ZooKeeper's, the store is bounded.
"""

from __future__ import annotations

from minibroker.broker.cluster.sections import OLD_OFFSETS, OldOffsets
from minibroker.broker.cluster.state import Change, ClusterState, store
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition

MAX_NAMES_BYTES = 1 << 20  # of groups and topics: every commit writes the whole file
ROW_BYTES = 32  # of a partition and its offset
RELATIVE = "relative paths not allowed"
# The characters that ZooKeeper refuses, as UTF-16 has them.
INVALID_CHARACTERS = ((0x01, 0x1F), (0x7F, 0x9F), (0xD800, 0xF8FF), (0xFFF0, 0xFFFF))


def check_path(path: str) -> None:
    """Raises KafkaError(UNKNOWN_SERVER_ERROR) for a path that ZooKeeper refuses (as its PathUtils.validatePath)."""
    problem = path_problem(path)
    if problem is not None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, problem)


def path_problem(path: str) -> str | None:
    """Why ZooKeeper refuses a path that begins with a slash; None if it does not."""
    if path.endswith("/"):
        return "Path must not end with / character"
    position = 1  # in UTF-16, as Java counts
    for node in path[1:].split("/"):
        if not node:
            return invalid_path(path, "empty node name specified", position)
        if node in (".", ".."):
            return invalid_path(path, RELATIVE, position + len(node) - 1)
        for character in node:
            unit = ord(character)
            if unit == 0:
                return invalid_path(path, "null character not allowed", position)
            if unit > 0xFFFF or any(first <= unit <= last for first, last in INVALID_CHARACTERS):
                return invalid_path(path, "invalid character", position)
            position += 1
        position += 1
    return None


def invalid_path(path: str, reason: str, position: int) -> str:
    return f'Invalid path string "{path}" caused by {reason} @{position}'


def check_topic_path(topic: str) -> None:
    """Raises KafkaError(UNKNOWN_SERVER_ERROR) for a topic's name that Kafka cannot look for in ZooKeeper."""
    check_path(f"/brokers/topics/{topic}")


class ZooKeeperOffsets:
    """The offsets of OffsetCommit v0, by group and partition."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def get(self, group_id: str, topic_partition: TopicPartition) -> int | None:
        """Return the offset, None if there is none. Raises KafkaError(UNKNOWN_SERVER_ERROR) for a wrong group id."""
        check_group_path(group_id, topic_partition)
        return self._state.get(OLD_OFFSETS).get(group_id, {}).get(topic_partition)

    def commit(self, group_id: str, offsets: dict[TopicPartition, int]) -> None:
        """Store the offsets.

        Raises KafkaError, and stores none: UNKNOWN_SERVER_ERROR for a wrong group id or a failing disk,
        INVALID_COMMIT_OFFSET_SIZE if there is no room.
        """
        for topic_partition in offsets:
            check_group_path(group_id, topic_partition)
        try:
            store(self._state, "the offsets", lambda: Change(sections={OLD_OFFSETS: self._with(group_id, offsets)}))
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
                raise
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message) from error

    def _with(self, group_id: str, offsets: dict[TopicPartition, int]) -> OldOffsets:
        before = self._state.get(OLD_OFFSETS)
        after: OldOffsets = {**before, group_id: {**before.get(group_id, {}), **offsets}}
        if size_of(after) > MAX_NAMES_BYTES:
            after = self._without_deleted_topics(after)
        if size_of(after) > MAX_NAMES_BYTES:
            raise KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return after

    def _without_deleted_topics(self, offsets: OldOffsets) -> OldOffsets:
        kept = {
            group_id: {each: offset for each, offset in rows.items() if each.topic in self._state.topics}
            for group_id, rows in offsets.items()
        }
        return {group_id: rows for group_id, rows in kept.items() if rows}


def check_group_path(group_id: str, topic_partition: TopicPartition) -> None:
    check_path(f"/consumers/{group_id}/offsets/{topic_partition.topic}/{topic_partition.partition}")


def size_of(offsets: OldOffsets) -> int:
    """The bytes of the names in the file, at most."""
    return sum(
        len(group_id) * 6 + sum(len(each.topic) + ROW_BYTES for each in rows) for group_id, rows in offsets.items()
    )
