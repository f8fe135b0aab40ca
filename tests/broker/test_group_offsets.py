"""The offsets of groups at the handlers: commits, what is fetched, and when they go.

Which commits are refused, and what is fetched in each version, is in tests/golden/conversations/kafka-2.0.1/groups.txt.
"""

from __future__ import annotations

import pytest

from minibroker.broker.cluster import zookeeper
from minibroker.broker.group.member import MemberIdentity
from minibroker.broker.group.offsets import Commit
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import SETTINGS, GroupClient


@pytest.fixture
async def client(make_broker: MakeBroker) -> GroupClient:
    broker = make_broker(**SETTINGS)
    client = GroupClient(broker)
    await broker.create_topic("a", 3)
    await client.find()
    return client


async def test_transactional_offsets_count_once_the_transaction_is_committed(client: GroupClient) -> None:
    groups = client.broker.parts.groups
    commits = {TopicPartition("a", 0): OffsetRecord(5, -1, "", client.broker.clock.wall_ms(), None)}
    errors = groups.offsets.commit_transactional(Commit("group", MemberIdentity(""), commits, {}, 7, 0))
    before = await client.offset("a")
    unstable = await client.broker.call(
        ApiKey.OFFSET_FETCH, 7, group_id="group", topics=[("a", [0])], require_stable=True
    )

    groups.on_transaction_completed(7, [groups.partition_for("group")], is_commit=True)

    assert (errors, before) == ({TopicPartition("a", 0): ErrorCode.NONE}, -1)
    assert unstable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await client.offset("a") == 5


async def test_a_group_has_its_partition_before_there_is_a_topic(broker: InMemoryBroker) -> None:
    names, partition_for = "abc", broker.parts.groups.partition_for
    before = list(map(partition_for, names))

    await GroupClient(broker).find()

    assert before == list(map(partition_for, names))
    assert len(set(before)) == len(names)


# -- version 0, which Kafka keeps in ZooKeeper ------------------------------------------------------------------


async def offset_of_v0(client: GroupClient, partition: int = 0) -> tuple[int, ErrorCode]:
    row = (await client.committed(("a", partition), version=0)).topics[0].partitions[0]
    return row.committed_offset, ErrorCode(row.error_code)


MISSING = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_offsets_of_version_0_have_a_bound_and_those_of_deleted_topics_make_room(
    client: GroupClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "MAX_NAMES_BYTES", 200)
    await client.broker.create_topic("b")
    assert await client.commit(("b", 0, 5), version=0) == [ErrorCode.NONE]
    full = GroupClient(client.broker, "x" * 20)

    assert await full.commit(("a", 0, 5), version=0) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE]
    assert await offset_of_v0(full) == MISSING
    await client.broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["b"], timeout_ms=1000)
    assert await full.commit(("a", 0, 5), version=0) == [ErrorCode.NONE]


async def test_a_failing_disk_keeps_the_offsets_of_version_0(
    client: GroupClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.commit(("a", 0, 5), version=0)

    def fail(*_: object, **options: object) -> None:
        raise OSError("full")

    monkeypatch.setattr("minibroker.storage.files.disk.fdatasync", fail)

    assert await client.commit(("a", 0, 6), version=0) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await offset_of_v0(client) == (5, ErrorCode.NONE)
