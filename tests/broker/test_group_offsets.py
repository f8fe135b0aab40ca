"""The offsets of groups at the handlers: commits, what is fetched, and when they go."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.group_records import OffsetRecord
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log
from tests.broker.conftest import MakeBroker
from tests.broker.group_clients import GroupClient

SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1}
MINUTE_MS = 60_000


@pytest.fixture
async def client(make_broker: MakeBroker, nursery: trio.Nursery) -> GroupClient:
    broker = make_broker(**SETTINGS)
    client = GroupClient(broker, nursery)
    await broker.create_topic("a", 3)
    await client.find()
    return client


async def test_what_was_committed_is_fetched(client: GroupClient) -> None:
    errors = await client.commit(("a", 0, 5), ("a", 2, 7), metadata="why")

    answer = await client.committed(("a", 0), ("a", 1), ("a", 2))

    assert errors == [ErrorCode.NONE, ErrorCode.NONE]
    rows = [(row.partition, row.committed_offset, row.metadata, row.error_code) for t in answer.topics for row in t[1]]
    assert rows == [(0, 5, "why", 0), (1, -1, "", 0), (2, 7, "why", 0)]


async def test_the_last_commit_counts(client: GroupClient) -> None:
    for offset in (5, 9, 3):
        await client.commit(("a", 0, offset))

    assert await client.offset("a") == 3


@pytest.mark.parametrize("version", range(9))
async def test_every_version_can_commit(client: GroupClient, version: int) -> None:
    assert await client.commit(("a", 0, version), version=version) == [ErrorCode.NONE]
    assert await client.offset("a") == version


async def test_a_leader_epoch_is_kept_with_the_offset(client: GroupClient) -> None:
    await client.broker.call(ApiKey.OFFSET_COMMIT, 6, group_id=client.group_id, topics=[("a", [(0, 5, 42, -1, None)])])

    row = (await client.committed(("a", 0))).topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch, row.metadata) == (5, 42, "")


@pytest.mark.parametrize("version", range(1, 8))
async def test_an_unknown_group_has_no_offsets_and_that_is_no_error(client: GroupClient, version: int) -> None:
    answer = await client.committed(("a", 0), ("nowhere", 1), version=version)

    rows = [(row.committed_offset, row.metadata, row.error_code) for t in answer.topics for row in t.partitions]
    assert (answer.error_code, rows) == (ErrorCode.NONE, [(-1, "", 0), (-1, "", 0)])


async def test_in_v0_an_offset_that_is_not_there_is_an_error_and_metadata_is_not_told(client: GroupClient) -> None:
    await client.commit(("a", 0, 5), metadata="why")

    answer = await client.committed(("a", 0), ("a", 1), ("nowhere", 0), version=0)

    rows = [(row.committed_offset, row.metadata, row.error_code) for t in answer.topics for row in t.partitions]
    unknown = (-1, "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert rows == [(5, "", 0), unknown, unknown]


async def test_all_offsets_are_fetched_at_once_from_v2(client: GroupClient) -> None:
    await client.commit(("a", 0, 5), ("a", 1, 6))

    answer = await client.committed(version=2)

    (topic,) = answer.topics
    assert (topic.name, [(row.partition, row.committed_offset) for row in topic.partitions]) == ("a", [(0, 5), (1, 6)])
    with pytest.raises(KafkaProtocolError):
        await client.committed(version=1)


async def test_an_offset_of_a_topic_that_is_not_there_is_refused_and_the_others_are_kept(client: GroupClient) -> None:
    errors = await client.commit(("a", 0, 5), ("nowhere", 0, 5), ("a", 3, 5))

    assert sorted(errors) == [ErrorCode.NONE, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2]
    assert await client.offset("a") == 5


async def test_metadata_has_a_limit(client: GroupClient) -> None:
    assert await client.commit(("a", 0, 5), metadata="x" * 4096) == [ErrorCode.NONE]
    assert await client.commit(("a", 0, 6), metadata="x" * 4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert await client.offset("a") == 5


async def test_the_empty_group_id_may_keep_offsets(client: GroupClient) -> None:
    unnamed = GroupClient(client.broker, None, "")

    assert await unnamed.commit(("a", 0, 5)) == [ErrorCode.NONE]
    assert await unnamed.offset("a") == 5


async def test_a_generation_of_an_unknown_group_is_refused(client: GroupClient) -> None:
    assert await client.commit(("a", 0, 5), generation_id=3, member_id="x") == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": -1, "member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
async def test_only_members_of_the_generation_commit_while_there_are_members(
    client: GroupClient, body: dict[str, Any], error: ErrorCode
) -> None:
    joined = await client.stable()
    identity = {"generation_id": joined.generation_id, "member_id": joined.member_id}

    assert await client.commit(("a", 0, 5), **identity | body) == [error]


async def test_before_the_assignment_a_commit_is_told_of_the_rebalance(client: GroupClient) -> None:
    joined = await client.join()

    assert await client.commit(("a", 0, 5), joined=joined) == [ErrorCode.REBALANCE_IN_PROGRESS]


async def test_while_members_join_again_the_last_generation_may_still_commit(client: GroupClient) -> None:
    joined = await client.stable()
    await client.start_join()

    assert await client.commit(("a", 0, 5), joined=joined) == [ErrorCode.NONE]


async def test_a_commit_is_a_sign_of_life(client: GroupClient, autojump_clock: MockClock) -> None:
    joined = await client.stable()

    for offset in range(4):
        await trio.sleep(9)
        assert await client.commit(("a", 0, offset), joined=joined) == [ErrorCode.NONE]


async def test_a_commit_is_one_append(client: GroupClient) -> None:
    log = client.broker.log_of("__consumer_offsets")
    before = log.log_end_offset

    await client.commit(("a", 0, 5), ("a", 1, 5), ("a", 2, 5))

    assert log.log_end_offset == before + 3
    assert len(log_batches(log, before)) == 1


def log_batches(log: Log, offset: int) -> list[BatchView]:
    records = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_message=True).records
    data = records if isinstance(records, bytes) else records.read()
    return [view for view in scan_batches(data, 0, len(data)) if view.next_offset > offset]


# -- how they go ----------------------------------------------------------------------------------------------


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

    client.broker.clock.wall_now_ms += MINUTE_MS + 1
    client.broker.parts.groups.offsets.expire()

    assert await client.offset("a") == -1


async def test_a_time_beyond_all_times_is_the_last_there_is(client: GroupClient) -> None:
    assert await client.commit(("a", 0, 5), version=2, retention_time_ms=2**63 - 1) == [ErrorCode.NONE]

    client.broker.parts.groups.offsets.expire()

    assert await client.offset("a") == 5


async def test_offsets_of_a_deleted_topic_go_with_it(client: GroupClient) -> None:
    await client.broker.create_topic("b")
    await client.commit(("a", 0, 5), ("b", 0, 6))

    await client.broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["b"], timeout_ms=1000)

    assert (await client.offset("a"), await client.offset("b")) == (5, -1)


async def delete_offsets(client: GroupClient, *topics: str, group_id: str | None = None) -> Any:
    return await client.broker.call(
        ApiKey.OFFSET_DELETE,
        0,
        group_id=client.group_id if group_id is None else group_id,
        topics=[(topic, [0]) for topic in topics],
    )


async def test_offsets_of_an_empty_group_can_be_deleted(client: GroupClient) -> None:
    await client.commit(("a", 0, 5), ("a", 1, 6))

    answer = await delete_offsets(client, "a", "nowhere")

    rows = [(topic.name, topic.partitions[0].error_code) for topic in answer.topics]
    assert (answer.error_code, rows) == (0, [("a", 0), ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    assert (await client.offset("a", 0), await client.offset("a", 1)) == (-1, 6)


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


# -- what is there after a restart ----------------------------------------------------------------------------


async def test_offsets_are_there_after_a_restart(make_broker: MakeBroker, nursery: trio.Nursery) -> None:
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first, nursery)
    await client.find()
    await client.commit(("a", 0, 5), metadata="why")
    await client.broker.call(ApiKey.OFFSET_COMMIT, 6, group_id="other", topics=[("a", [(0, 6, 3, -1, None)])])
    first.close()

    again = make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS)

    assert await GroupClient(again, nursery).offset("a") == 5
    row = (await GroupClient(again, nursery, "other").committed(("a", 0))).topics[0].partitions[0]
    assert (row.committed_offset, row.committed_leader_epoch) == (6, 3)


async def test_transactional_offsets_count_once_the_transaction_is_committed(client: GroupClient) -> None:
    groups = client.broker.parts.groups
    commits = {TopicPartition("a", 0): OffsetRecord(5, -1, "", client.broker.clock.wall_ms(), None)}
    errors = groups.commit_transactional_offsets("group", producer_id=7, producer_epoch=0, commits=commits)
    before = await client.offset("a")
    unstable = await client.broker.call(
        ApiKey.OFFSET_FETCH, 7, group_id="group", topics=[("a", [0])], require_stable=True
    )

    groups.on_transaction_completed(7, [groups.partition_for("group")], is_commit=True)

    assert (errors, before) == ({TopicPartition("a", 0): ErrorCode.NONE}, -1)
    assert unstable.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert await client.offset("a") == 5
