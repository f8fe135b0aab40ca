"""The topics of the cluster as groups of the consumer protocol see them: by id, with a hash that changes with them."""

from __future__ import annotations

import struct
from typing import TypeVar

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.replica.decisions import TopicMetadata
from minibroker.protocol.xxh3 import xxh3_64

HASH_VERSION = 0
MOST_REMEMBERED = 1000  # sets of topics

V = TypeVar("V")

_int32 = struct.Struct("<i").pack
_int64 = struct.Struct("<q").pack


class GroupTopics:
    """Reads the metadata cache. What is derived from it is kept until it changes."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._version = -1
        self._names: dict[bytes, str] = {}
        self._racks: dict[int, str] = {}  # of all brokers that have ever been seen: one that restarts is no change
        self._hashes: dict[str, tuple[TopicMetadata, int]] = {}
        self._ids: dict[frozenset[str], frozenset[bytes]] = {}  # of the names that members subscribe to
        self._group_hashes: dict[frozenset[str], int] = {}

    @property
    def version(self) -> int:
        """A number that grows with each change of the cluster."""
        return self._cache.version

    @property
    def version_of_names(self) -> int:
        """The version that brought the newest topic."""
        return self._cache.version_of_names

    @property
    def names(self) -> list[str]:
        return list(self._cache.topics)

    def id_of(self, name: str) -> bytes | None:
        topic = self._cache.topics.get(name)
        return None if topic is None else topic.topic_id.bytes

    def ids_of(self, names: frozenset[str]) -> frozenset[bytes]:
        """The ids of the topics that exist."""
        self._refresh()
        found = self._ids.get(names)
        if found is None:
            known = self._cache.topics
            found = frozenset(known[name].topic_id.bytes for name in names if name in known)
            remember(self._ids, names, found)
        return found

    def name_of(self, topic_id: bytes) -> str | None:
        self._refresh()
        return self._names.get(topic_id)

    def partition_count(self, topic_id: bytes) -> int:
        """The number of partitions of a topic that exists."""
        name = self.name_of(topic_id)
        return 0 if name is None else len(self._cache.topics[name].partitions)

    def hash_of(self, names: frozenset[str]) -> int:
        """A hash that changes with what an assignment depends on (as kafka 4.4 Utils.computeGroupHash)."""
        self._refresh()
        found = self._group_hashes.get(names)
        if found is None:
            known = self._cache.topics
            hashes = b"".join(_int64(self._hash_of(known[name])) for name in sorted(names, key=utf16) if name in known)
            found = xxh3_64(hashes) if hashes else 0
            remember(self._group_hashes, names, found)
        return found

    def _hash_of(self, topic: TopicMetadata) -> int:
        kept = self._hashes.get(topic.name)
        if kept is not None and kept[0] is topic:
            return kept[1]
        found = topic_hash(topic, self._racks)
        self._hashes[topic.name] = topic, found
        return found

    def _refresh(self) -> None:
        if self._version == self._cache.version:
            return
        self._version = self._cache.version
        self._ids.clear()
        self._group_hashes.clear()
        self._names = {topic.topic_id.bytes: name for name, topic in self._cache.topics.items()}
        racks = {number: broker.rack for number, broker in self._cache.brokers.items() if broker.rack is not None}
        if not racks.items() <= self._racks.items():
            self._racks |= racks
            self._hashes.clear()
        for name in self._hashes.keys() - self._cache.topics.keys():
            del self._hashes[name]


def remember(found: dict[frozenset[str], V], names: frozenset[str], value: V) -> None:
    if len(found) >= MOST_REMEMBERED:
        found.clear()
    found[names] = value


def topic_hash(topic: TopicMetadata, racks: dict[int, str]) -> int:
    """The hash of a topic's id, name, partitions, and the racks of their replicas (as kafka 4.4 computeTopicHash)."""
    most, least = topic.topic_id.int >> 64, topic.topic_id.int & (1 << 64) - 1
    data = bytearray((HASH_VERSION,))
    data += most.to_bytes(8, "little") + least.to_bytes(8, "little")
    data += hashed_text(topic.name) + _int32(len(topic.partitions))
    for number in sorted(topic.partitions):
        data += _int32(number)
        for rack in sorted(racks[each] for each in topic.partitions[number].replicas if each in racks):
            data += _int32(len(rack)) + hashed_text(rack)
    return xxh3_64(bytes(data))


def hashed_text(text: str) -> bytes:
    """Text as it is hashed: its UTF-16 units, and their number."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units + _int32(len(units) // 2)


def utf16(text: str) -> bytes:
    """The key by which Java orders text."""
    return text.encode("utf-16-be", "surrogatepass")
