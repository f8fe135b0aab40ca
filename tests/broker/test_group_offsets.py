"""The offsets of groups at the handlers: commits, what is fetched, and when they go.

Which commits are refused, and what is fetched in each version, is in tests/conformance/scripts/groups.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.cluster import zookeeper
from minibroker.broker.group.member import MemberIdentity
from minibroker.broker.group.offsets import Commit
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import MakeBroker
from tests.broker.group_clients import SETTINGS, GroupClient

MINUTE_MS = 60_000


@pytest.fixture
async def client(make_broker: MakeBroker) -> GroupClient:
    broker = make_broker(**SETTINGS)
    client = GroupClient(broker)
    await broker.create_topic("a", 3)
    await client.find()
    return client


@pytest.mark.parametrize("version", range(1, 9))
async def test_every_version_can_commit(client: GroupClient, version: int) -> None:
    assert await client.commit(("a", 0, version), version=version) == [ErrorCode.NONE]
    assert await client.offset("a") == version


async def test_a_leader_epoch_is_kept_with_the_offset(client: GroupClient) -> None:
    await client.broker.call(ApiKey.OFFSET_COMMIT, 6, group_id=client.group_id, topics=[("a", [(0, 5, 42, -1, None)])])

    row = (await client.committed(("a", 0))).topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.metadata) == (5, 42, "")


async def test_a_commit_is_a_sign_of_life(client: GroupClient, autojump_clock: MockClock) -> None:
    joined = await client.stable()

    for offset in range(4):
        await trio.sleep(9)
        assert await client.commit(("a", 0, offset), joined=joined) == [ErrorCode.NONE]


async def test_offsets_expire_and_the_group_with_them(client: GroupClient) -> None:
    await client.commit(("a", 0, 5))

    client.broker.clock.wall_now_ms += 10_080 * MINUTE_MS
    client.broker.parts.groups.offsets.expire()
    assert await client.offset("a") == 5
    client.broker.clock.wall_now_ms += 1
    client.broker.parts.groups.offsets.expire()

    assert await client.offset("a") == -1
    assert (await client.broker.call(ApiKey.LIST_GROUPS, 0)).groups == []


@pytest.mark.parametrize("version", [2, 3, 4])
async def test_a_client_up_to_v4_may_say_how_long(client: GroupClient, version: int) -> None:
    await client.commit(("a", 0, 5), version=version, retention_time_ms=MINUTE_MS)
    await client.commit(("a", 1, 6), version=version, retention_time_ms=2**63 - 1)  # to the end of time

    client.broker.clock.wall_now_ms += MINUTE_MS + 1
    client.broker.parts.groups.offsets.expire()

    assert (await client.offset("a"), await client.offset("a", 1)) == (-1, 6)


async def test_offsets_of_a_deleted_topic_go_with_it(client: GroupClient) -> None:
    await client.broker.create_topic("b")
    await client.commit(("a", 0, 5), ("b", 0, 6))

    await client.broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["b"], timeout_ms=1000)

    assert (await client.offset("a"), await client.offset("b")) == (5, -1)


async def delete_offsets(client: GroupClient, *topics: str, group_id: str = "group", partition: int = 0) -> Any:
    rows = [(topic, [partition]) for topic in topics]
    return await client.broker.call(ApiKey.OFFSET_DELETE, 0, group_id=group_id, topics=rows)


async def test_offsets_of_an_empty_group_can_be_deleted(client: GroupClient) -> None:
    await client.commit(("a", 0, 5), ("a", 1, 6))

    answer = await delete_offsets(client, "a", "nowhere")

    rows = [(topic.name, topic.partitions[0].error_code) for topic in answer.topics]
    assert (answer.error_code, rows) == (0, [("a", 0), ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    assert (await client.offset("a", 0), await client.offset("a", 1)) == (-1, 6)


async def test_the_last_offset_takes_an_empty_group_with_it(client: GroupClient) -> None:
    await client.commit(("a", 0, 5), ("a", 1, 6))
    states = []

    for partition in (0, 99, 1):  # of 99 nothing can be deleted
        await delete_offsets(client, "a", partition=partition)
        states.append((await client.describe()).group_state)

    assert states == ["Empty", "Empty", "Dead"]
    assert (await client.broker.call(ApiKey.LIST_GROUPS, 0)).groups == []


@pytest.mark.parametrize("version", [0, 7])
async def test_metadata_are_as_long_as_java_counts_them(client: GroupClient, version: int) -> None:
    clef, umlaut = "\N{MUSICAL SYMBOL G CLEF}", "\N{LATIN SMALL LETTER A WITH DIAERESIS}"  # two characters, and one
    texts = [clef * 2048, clef * 2049, umlaut * 4096, umlaut * 4097]

    errors = [await client.commit(("a", 0, 5), version=version, metadata=text) for text in texts]

    assert errors == [[ErrorCode.NONE], [ErrorCode.OFFSET_METADATA_TOO_LARGE]] * 2


async def test_offsets_of_a_topic_that_is_consumed_now_cannot(client: GroupClient) -> None:
    await client.broker.create_topic("b")
    await client.commit(("a", 0, 5), ("b", 0, 6))
    await client.stable(protocols=[("range", b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff")])

    answer = await delete_offsets(client, "a", "b")

    assert [topic.partitions[0].error_code for topic in answer.topics] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0]
    assert (await client.offset("a"), await client.offset("b")) == (5, -1)


async def test_only_consumers_groups_may_lose_offsets_while_they_run(client: GroupClient) -> None:
    await client.stable(protocol_type="connect")

    assert (await delete_offsets(client, "a")).error_code == ErrorCode.NON_EMPTY_GROUP
    assert (await delete_offsets(client, "a", group_id="")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await delete_offsets(client, "a", group_id="other")).error_code == ErrorCode.GROUP_ID_NOT_FOUND


async def test_offsets_are_there_after_a_restart(make_broker: MakeBroker) -> None:
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first)
    await client.find()
    await client.commit(("a", 0, 5), metadata="why")
    await client.broker.call(ApiKey.OFFSET_COMMIT, 6, group_id="other", topics=[("a", [(0, 6, 3, -1, None)])])
    first.close()

    again = make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS)

    assert await GroupClient(again).offset("a") == 5
    row = (await GroupClient(again, "other").committed(("a", 0))).topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch) == (6, 3)


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


async def test_groups_work_the_same_where_each_append_waits_for_the_disk(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS, log_flush_interval_messages=1)
    await broker.create_topic("a")
    client = GroupClient(broker)

    joined = await client.stable()
    assert await client.commit(("a", 0, 5), joined=joined) == [ErrorCode.NONE]
    assert await client.leave(joined.member_id) == ErrorCode.NONE

    assert await client.offset("a") == 5
    assert (await client.describe()).group_state == "Empty"


# -- version 0, which Kafka keeps in ZooKeeper ------------------------------------------------------------------


async def offset_of_v0(client: GroupClient, partition: int = 0) -> tuple[int, ErrorCode]:
    row = (await client.committed(("a", partition), version=0)).topics[0].partitions[0]
    return row.committed_offset, ErrorCode(row.error_code)


MISSING = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_offsets_of_version_0_are_apart_from_those_of_groups(client: GroupClient) -> None:
    joined = await client.stable()
    await client.commit(("a", 0, 7), joined=joined)

    assert await offset_of_v0(client) == MISSING
    assert await client.commit(("a", 0, 5), version=0) == [ErrorCode.NONE]  # of no member

    assert (await offset_of_v0(client), await client.offset("a")) == ((5, ErrorCode.NONE), 7)


async def test_offsets_of_version_0_outlive_a_restart_and_their_topic(make_broker: MakeBroker, tmp_path: Path) -> None:
    first = make_broker(tmp_path / "data", **SETTINGS)
    await first.create_topic("a")
    await GroupClient(first).commit(("a", 0, 5), version=0)
    first.close()

    again = make_broker(tmp_path / "data", **SETTINGS)
    client = GroupClient(again)
    assert await offset_of_v0(client) == (5, ErrorCode.NONE)
    await again.call(ApiKey.DELETE_TOPICS, 1, topic_names=["a"], timeout_ms=1000)
    assert await offset_of_v0(client) == MISSING
    await again.create_topic("a")
    assert await offset_of_v0(client) == (5, ErrorCode.NONE)


@pytest.mark.parametrize("group_id", ["", ".", "a//b", "nul\0", "\N{MUSICAL SYMBOL G CLEF}"])
async def test_a_group_that_zookeeper_could_not_name_has_no_offsets_of_version_0(
    client: GroupClient, group_id: str
) -> None:
    other = GroupClient(client.broker, group_id)

    assert await other.commit(("a", 0, 5), version=0) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await offset_of_v0(other) == (-1, ErrorCode.UNKNOWN_SERVER_ERROR)


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

    monkeypatch.setattr("minibroker.broker.cluster.change_journal.os.fdatasync", fail)

    assert await client.commit(("a", 0, 6), version=0) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert await offset_of_v0(client) == (5, ErrorCode.NONE)


async def test_a_producer_without_an_epoch_commits_nothing(client: GroupClient) -> None:
    rows = [("a", [(0, 5, -1, "")]), ("nowhere", [(0, 5, -1, "")])]

    answer = await client.broker.call(
        ApiKey.TXN_OFFSET_COMMIT, 1, group_id="group", producer_id=5, producer_epoch=-1, topics=rows
    )

    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2
