"""The sections of a cluster's state: all of it but the topics.

The owner of a section declares it, with its form in JSON: here those of the core, and each wing its own. A store reads
and writes any section that its broker declares. It keeps one that its broker does not declare as it was read: a broker
without a wing loses nothing of what the wing has stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from minibroker.protocol.primitives import TopicPartition

Value = TypeVar("Value")

Configs = Mapping[str, str]  # Kafka's names and spellings
OldOffsets = Mapping[str, Mapping[TopicPartition, int]]  # of OffsetCommit v0: by group and partition
Moves = Mapping[TopicPartition, tuple[int, ...]]  # the replicas that partitions are to have


class Section(Generic[Value]):
    """A section; `empty` is its value while nothing was stored.

    A secret one makes the file private. `from_json` raises ValueError, KeyError, TypeError or AttributeError.
    """

    def __init__(
        self,
        name: str,
        empty: Value,
        *,
        to_json: Callable[[Value], Any],
        from_json: Callable[[Any], Value],
        is_secret: bool = False,
    ) -> None:
        self.name = name
        self.empty = empty
        self.to_json = to_json
        self.from_json = from_json
        self.is_secret = is_secret

    def __repr__(self) -> str:
        return self.name

    def difference(self, before: Value, after: Value) -> Any:
        """The part of a change that a line of a journal has."""
        return self.to_json(after)

    def merged(self, before: Value, difference: Any) -> Value:
        """The value after a difference, as `difference` has made it."""
        return self.from_json(difference)


class OldOffsetsSection(Section[OldOffsets]):
    """Offsets, with only the groups that differ in a line, null for one that has gone."""

    def difference(self, before: OldOffsets, after: OldOffsets) -> Any:
        changed = {group_id: rows for group_id, rows in after.items() if rows is not before.get(group_id)}
        return {**self.to_json(changed), **dict.fromkeys(before.keys() - after.keys())}

    def merged(self, before: OldOffsets, difference: Any) -> OldOffsets:
        kept = {group_id: rows for group_id, rows in before.items() if difference.get(group_id, rows) is not None}
        return {**kept, **self.from_json({each: rows for each, rows in difference.items() if rows is not None})}


NO_SECTIONS: Mapping[Section[Any], Any] = {}


def undeclared(name: str) -> Section[Any]:
    """A section that no part of this broker has declared; it may be secret."""
    return Section(name, None, to_json=lambda value: value, from_json=lambda document: document, is_secret=True)


def text_pairs(document: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in document.items()}


def configs_by_name(document: Mapping[str, Any]) -> dict[str, Configs]:
    return {str(name): text_pairs(configs) for name, configs in document.items()}


def configs_section(name: str) -> Section[Mapping[str, Configs]]:
    return Section(name, {}, to_json=dict, from_json=configs_by_name)


def offsets_document(offsets: OldOffsets) -> dict[str, dict[str, dict[str, int]]]:
    document: dict[str, dict[str, dict[str, int]]] = {}
    for group_id, rows in offsets.items():
        topics = document[group_id] = {}
        for (topic, number), offset in rows.items():
            topics.setdefault(topic, {})[str(number)] = offset
    return document


def parse_offsets(document: Mapping[str, Any]) -> OldOffsets:
    return {
        str(group_id): {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, rows in topics.items()
            for number, offset in rows.items()
        }
        for group_id, topics in document.items()
    }


class FeatureLevels(NamedTuple):
    """The levels of features that were changed, and how often some were."""

    epoch: int = 0
    levels: Mapping[str, int] = {}


def parse_features(document: Mapping[str, Any]) -> FeatureLevels:
    levels = {str(name): int(level) for name, level in document.get("levels", {}).items()}
    return FeatureLevels(int(document.get("epoch", 0)), levels)


def names_section(name: str) -> Section[frozenset[str]]:
    return Section(name, frozenset(), to_json=sorted, from_json=lambda names: frozenset(map(str, names)))


# The topics that are gone, but of which directories may be left; in a state that is shared also those that wait for a
# broker which has replicas of them.
BEING_DELETED = names_section("being_deleted")
NEXT_PRODUCER_ID = Section("next_producer_id", 0, to_json=int, from_json=int)
OLD_OFFSETS: Section[OldOffsets] = OldOffsetsSection(
    "old_offsets", {}, to_json=offsets_document, from_json=parse_offsets
)
BROKER_CONFIGS = configs_section("broker_configs")  # by broker id; those of all brokers under the empty name
GROUP_CONFIGS = configs_section("group_configs")  # by group, those of groups that have some
CLIENT_METRICS = configs_section("client_metrics")  # by the name of the subscription
FEATURES = Section("features", FeatureLevels(), to_json=FeatureLevels._asdict, from_json=parse_features)
OF_CORE: tuple[Section[Any], ...] = (
    NEXT_PRODUCER_ID,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_METRICS,
    BEING_DELETED,
    OLD_OFFSETS,
    FEATURES,
)


def asked_in_zookeeper(name: str, empty: Value) -> Section[Value]:
    """A section by which Kafka's tools ask the controller for something, in ZooKeeper only."""

    def unwritten(value: Any) -> Any:
        raise TypeError(f"{name} is kept in ZooKeeper only")

    return Section(name, empty, to_json=unwritten, from_json=unwritten)


NO_PARTITIONS: frozenset[TopicPartition] = frozenset()
NO_MOVES: Moves = {}
# The partitions that their preferred replicas are to lead.
ASKED_ELECTIONS = asked_in_zookeeper("asked_elections", NO_PARTITIONS)
# The partitions that are to move, and those that do.
ASKED_MOVES = asked_in_zookeeper("asked_moves", NO_MOVES)
