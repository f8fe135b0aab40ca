"""The offsets of OffsetCommit v0, in ZooKeeper as consumers of old kept them: /consumers/GROUP/offsets/TOPIC/PARTITION.

They are read when they are asked for, since others change them without notice; a commit writes those that differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minibroker.broker.cluster.sections import OldOffsets
from minibroker.broker.wings.zookeeper_nodes import nodes
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.zookeeper.messages import (
    Answer,
    Create,
    GetChildren,
    GetData,
    NodeData,
    Operation,
    SetData,
    Write,
    ZooKeeperError,
)
from minibroker.zookeeper.session import ConnectionLost, ZooKeeperClient


class OffsetNodes(Mapping[str, Mapping[TopicPartition, int]]):
    """The offsets by group and partition. Raises KafkaError(KAFKA_STORAGE_ERROR) without a connection."""

    def __init__(self, client: ZooKeeperClient) -> None:
        self._client = client

    def __getitem__(self, group_id: str) -> Mapping[TopicPartition, int]:
        root = offsets_path(group_id)
        topics = self._children([root])[0]
        if topics is None:
            raise KeyError(group_id)
        numbers = self._children([f"{root}/{topic}" for topic in topics])
        wanted = [(topic, number) for topic, each in zip(topics, numbers, strict=True) for number in each or ()]
        answers = self._ask_all([GetData(f"{root}/{topic}/{number}") for topic, number in wanted])
        return {
            TopicPartition(topic, int(number)): int(answer.data)
            for (topic, number), answer in zip(wanted, answers, strict=True)
            if isinstance(answer, NodeData)
        }

    def __iter__(self) -> Iterator[str]:
        groups = self._children([nodes.CONSUMERS])[0] or ()
        found = self._children([offsets_path(group_id) for group_id in groups])
        return (group_id for group_id, topics in zip(groups, found, strict=True) if topics is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def writes(self, wanted: OldOffsets) -> Iterator[Write]:
        """The writes of the offsets that differ from the stored ones."""
        for group_id, rows in wanted.items():
            before = self.get(group_id, {})
            changed = {
                f"{offsets_path(group_id)}/{topic}/{number}": offset
                for (topic, number), offset in rows.items()
                if before.get(TopicPartition(topic, number)) != offset
            }
            paths = dict.fromkeys(above for path in changed for above in nodes.parents(path)) | dict.fromkeys(changed)
            missing = set(self._client.missing(paths))
            yield from (Create(path) for path in paths if path in missing and path not in changed)
            for path, offset in changed.items():
                data = str(offset).encode()
                yield Create(path, data) if path in missing else SetData(path, data)

    def _children(self, paths: list[str]) -> list[list[str] | None]:
        answers = self._ask_all([GetChildren(path) for path in paths])
        return [[str(name) for name in each] if isinstance(each, list) else None for each in answers]

    def _ask_all(self, operations: Sequence[Operation]) -> list[Answer | ZooKeeperError]:
        try:
            return self._client.ask_all(operations)
        except ConnectionLost as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot read the offsets: {error}") from error


def offsets_path(group_id: str) -> str:
    return f"{nodes.CONSUMERS}/{group_id}/offsets"
