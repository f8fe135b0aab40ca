"""Clients that are members of groups: of the classic protocol, and of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

import trio

from minibroker.protocol.api import ApiKey
from minibroker.protocol.consumer_protocol import ConsumerProtocolSubscription, read_assignment, write_assignment
from minibroker.protocol.errors import ErrorCode
from minibroker.simulation.clients import COORDINATOR_GROUP, Book, Client, Place, Reader, by_topic

NEW_MEMBER, LEAVES = 0, -1


class Member(Reader):
    """A member of a classic group, which commits what it has read."""

    group = "group"
    instance_id: str | None = None
    join_version, sync_version, heartbeat_version, commit_version = 2, 1, 1, 2

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.member_id = ""
        self.generation = -1

    async def run(self) -> None:
        await Client.run(self)

    async def work(self) -> None:
        if not await self._join():
            await self.pause()
            return
        for _ in range(self.random.randint(3, 20)):
            if self.book.is_finishing:
                break
            if self.positions:
                await self.poll()
            if self.random.random() < 0.5 and not await self._commit():
                return
            _, error = await self._ask(ApiKey.HEARTBEAT, self.heartbeat_version, **self._identity())
            if error != ErrorCode.NONE:
                return
            await trio.sleep(self.random.choice((0.05, 0.2)))
        if self.random.random() < 0.2:
            await self._leave()

    async def finish(self) -> None:
        if self.member_id:
            await self._leave()

    async def _leave(self) -> None:
        self.doing = "leaves its group"
        await self._ask(ApiKey.LEAVE_GROUP, 1, group_id=self.group, member_id=self.member_id)
        self.member_id = ""

    def _identity(self) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
        }

    async def _ask(self, api: ApiKey, version: int, **values: Any) -> Any:
        return await self.ask_coordinator(COORDINATOR_GROUP, self.group, api, version, **values)

    async def _join(self) -> bool:
        self.doing = "joins its group"
        topics = sorted(self.book.topics)
        subscription = b"\0\0" + b"".join(
            ConsumerProtocolSubscription.encode(0, ConsumerProtocolSubscription(topics=topics, user_data=None))
        )
        answer, error = await self._ask(
            ApiKey.JOIN_GROUP,
            self.join_version,
            group_id=self.group,
            session_timeout_ms=3000,
            rebalance_timeout_ms=1500,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[("range", subscription)],
        )
        if error != ErrorCode.NONE:
            is_known = error not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)
            self.member_id = self.member_id if is_known else ""
            return False
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == self.member_id:
            members = sorted(each.member_id for each in answer.members)
            shares: dict[str, dict[str, list[int]]] = {each: {} for each in members}
            for index, (topic, number) in enumerate(self.book.places()):
                shares[members[index % len(members)]].setdefault(topic, []).append(number)
            assignments = [(each, write_assignment(0, list(share.items()))) for each, share in shares.items()]
        self.doing = "syncs with its group"
        answer, error = await self._ask(
            ApiKey.SYNC_GROUP, self.sync_version, **self._identity(), assignments=assignments
        )
        if error != ErrorCode.NONE:
            return False
        given = read_assignment(answer.assignment).assigned_partitions if answer.assignment else []
        return await self._begin([(each.topic, number) for each in given for number in each.partitions])

    async def _fetch_offsets(self, topics: list[Any]) -> tuple[list[Any], ErrorCode]:
        answer, error = await self._ask(ApiKey.OFFSET_FETCH, 3, group_id=self.group, topics=topics)
        return answer.topics, error

    async def _begin(self, places: list[Place]) -> bool:
        self.doing = "fetches its offsets"
        before = {each: self.book.commits.get((self.group, *each), -1) for each in places}
        topics, error = await self._fetch_offsets(by_topic((each, each[1]) for each in places))
        if error != ErrorCode.NONE:
            return False
        positions = {}
        for topic in topics:
            for row in topic.partitions:
                place = topic.name, row.partition
                positions[place] = max(0, row.committed_offset)
                if row.committed_offset < before[place]:
                    text = f"{self.group} had committed {before[place]} of {place[0]}-{place[1]}"
                    self.book.wrong("lost-commit", f"{text}, and found {row.committed_offset}", place)
        self.place_at(positions)
        return True

    async def _commit(self) -> bool:
        if not self.positions:
            return True
        self.doing = "commits"
        asked = dict(self.positions)
        _, error = await self._ask(
            ApiKey.OFFSET_COMMIT,
            self.commit_version,
            **self._identity(),
            retention_time_ms=-1,
            topics=by_topic((each, (each[1], offset, -1, -1, None)) for each, offset in asked.items()),
        )
        if error != ErrorCode.NONE:
            return False
        for place, offset in asked.items():
            key = self.group, *place
            self.book.commits[key] = max(self.book.commits.get(key, -1), offset)
        return True


class StaticMember(Member):
    """A static member of the same group, which comes back without having left."""

    join_version, sync_version, heartbeat_version, commit_version = 5, 3, 3, 7

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.instance_id = name

    async def _leave(self) -> None:
        self.member_id = ""


class ConsumerMember(Member):
    """A member of a group of the consumer protocol; `generation` is its epoch. It lets go of a partition at once."""

    group = "consumer-group"
    commit_version = 9

    def __init__(self, name: str, book: Book, seed: object) -> None:
        super().__init__(name, book, seed)
        self.generation = NEW_MEMBER
        self._owned: list[Place] = []

    async def work(self) -> None:
        if await self._beat():
            if self.positions:
                await self.poll()
            if self.random.random() < 0.5:
                await self._commit()
        if self.random.random() < 0.03:
            await self._leave()
        await trio.sleep(self.random.choice((0.05, 0.2, 0.4)))

    async def _beat(self) -> bool:
        """Send a heartbeat, and take what it assigns; return whether this is a member."""
        self.doing = "sends a heartbeat"
        is_new = self.generation == NEW_MEMBER
        ids = await self._topic_ids()
        owned = [(ids[topic], numbers) for topic, numbers in by_topic((each, each[1]) for each in self._owned)]
        beat = self._heartbeat(self.generation)
        if is_new:
            beat |= {"rebalance_timeout_ms": 1500, "subscribed_topic_names": sorted(self.book.topics)}
        beat["topic_partitions"] = [] if is_new else owned
        answer, error = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **beat)
        if error != ErrorCode.NONE:
            self._begin_as_new()
            return False
        self.member_id, self.generation = answer.member_id, answer.member_epoch
        if answer.assignment is None:
            return True
        names = {topic_id: name for name, topic_id in ids.items()}
        assigned = [
            (names[each.topic_id], number)
            for each in answer.assignment.topic_partitions
            for number in each.partitions
            if each.topic_id in names
        ]
        self._owned, is_begun = assigned, not assigned or await self._begin(assigned)
        if not is_begun:
            self._owned = []
            self.place_at({})
        return is_begun

    def _begin_as_new(self) -> None:
        self.generation, self.member_id, self._owned = NEW_MEMBER, "", []
        self.place_at({})

    def _heartbeat(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None,
            "server_assignor": None,
            "topic_partitions": None,
        }

    async def _topic_ids(self) -> dict[str, Any]:
        answer = await self.any_broker(ApiKey.METADATA, 10, topics=None, allow_auto_topic_creation=False)
        return {each.name: each.topic_id for each in answer.topics}

    async def _leave(self) -> None:
        self.doing = "leaves its group"
        await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **self._heartbeat(LEAVES))
        self._begin_as_new()

    async def _fetch_offsets(self, topics: list[Any]) -> tuple[list[Any], ErrorCode]:
        groups = [(self.group, self.member_id, self.generation, topics)]
        answer, error = await self._ask(ApiKey.OFFSET_FETCH, 9, groups=groups, require_stable=True)
        return answer.groups[0].topics, error
