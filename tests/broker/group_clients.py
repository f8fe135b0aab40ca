"""Members of a group, played by a test: what they ask of a broker in memory, and what waits for an answer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from minibroker.protocol.api import ApiKey
from tests.broker.conftest import InMemoryBroker, Parked

GROUP = "group"
PROTOCOLS = (("range", b"metadata"),)
SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1}


def subscription(*owned: int) -> bytes:
    """The metadata of a classic member that subscribes to t and still has these partitions of it."""
    rows = struct.pack(f">i2s1si{len(owned)}i", 1, b"\0\1", b"t", len(owned), *owned) if owned else bytes(4)
    return struct.pack(">hi2s1si", 1, 1, b"\0\1", b"t", -1) + rows


class GroupClient:
    """Asks in the newest versions, unless told otherwise."""

    def __init__(self, broker: InMemoryBroker, group_id: str = GROUP) -> None:
        self.broker = broker
        self.group_id = group_id

    async def find(self) -> Any:
        """Have `__consumer_offsets` made."""
        return await self.broker.call(ApiKey.FIND_COORDINATOR, 1, key=self.group_id)

    async def join(self, member_id: str = "", version: int = 3, **body: Any) -> Any:
        given: dict[str, Any] = {"group_id": self.group_id, "member_id": member_id, "session_timeout_ms": 10_000}
        given |= {"rebalance_timeout_ms": 60_000, "protocol_type": "consumer", "protocols": PROTOCOLS}
        return await self.broker.call(ApiKey.JOIN_GROUP, version, **given | body)

    async def start_join(self, member_id: str = "", version: int = 3, **body: Any) -> Parked:
        return await self.broker.start(self.join, member_id, version, **body)

    async def sync(self, joined: Any, assignments: Sequence[Any] = (), version: int = 2, **body: Any) -> Any:
        given = self._identity(joined) | {"group_id": self.group_id, "assignments": assignments}
        return await self.broker.call(ApiKey.SYNC_GROUP, version, **given | body)

    async def start_sync(self, joined: Any, assignments: Sequence[Any] = (), version: int = 2, **body: Any) -> Parked:
        return await self.broker.start(self.sync, joined, assignments, version, **body)

    def _identity(self, joined: Any) -> dict[str, Any]:
        return {"generation_id": joined.generation_id, "member_id": joined.member_id}

    async def heartbeat(self, joined: Any, version: int = 2, **body: Any) -> int:
        given = {"group_id": self.group_id, **self._identity(joined)}
        return int((await self.broker.call(ApiKey.HEARTBEAT, version, **given | body)).error_code)

    async def leave(self, *member_ids: str, version: int = 2) -> int:
        body: dict[str, Any] = (
            {"member_id": member_ids[0]} if version < 3 else {"members": [(m, None) for m in member_ids]}
        )
        return int((await self.broker.call(ApiKey.LEAVE_GROUP, version, group_id=self.group_id, **body)).error_code)

    async def commit(
        self, *rows: tuple[str, int, int], joined: Any = None, version: int = 7, metadata: str = "", **body: Any
    ) -> list[int]:
        """Rows of (topic, partition, offset); the error of each."""
        topics = [(topic, [(partition, offset, -1, -1, metadata)]) for topic, partition, offset in rows]
        given: dict[str, Any] = {
            "group_id": self.group_id,
            "topics": topics,
            **(self._identity(joined) if joined else {}),
        }
        answer = await self.broker.call(ApiKey.OFFSET_COMMIT, version, **given | body)
        return [row.error_code for topic in answer.topics for row in topic.partitions]

    async def committed(self, *partitions: tuple[str, int], version: int = 5) -> Any:
        """The whole answer of OffsetFetch; without partitions for all."""
        topics = [(topic, [partition]) for topic, partition in partitions] or None
        return await self.broker.call(ApiKey.OFFSET_FETCH, version, group_id=self.group_id, topics=topics)

    async def offset(self, topic: str, partition: int = 0) -> int:
        offset: int = (await self.committed((topic, partition))).topics[0].partitions[0].committed_offset
        return offset

    async def describe(self, version: int = 4) -> Any:
        return (await self.broker.call(ApiKey.DESCRIBE_GROUPS, version, groups=[self.group_id])).groups[0]

    async def stable(self, **body: Any) -> Any:
        """Make a group of one member; what it was told when it joined."""
        await self.find()
        joined = await self.join(**body)
        synced = await self.sync(joined, [(joined.member_id, b"all")])
        assert (joined.error_code, synced.error_code, synced.assignment) == (0, 0, b"all")
        return joined

    async def two_members(self) -> tuple[Any, Any]:
        """Have a second member join a stable group; what both were told, the leader first. None has its assignment."""
        first = await self.stable()
        second = await self.start_join()
        first = await self.join(first.member_id)
        return first, await second.seen()
