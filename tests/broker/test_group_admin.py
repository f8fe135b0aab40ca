"""What administrators ask of groups: describe, list, delete; and when their topic is gone."""

from __future__ import annotations

import pytest
import trio

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import GroupClient

SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1}


@pytest.fixture
async def client(make_broker: MakeBroker, nursery: trio.Nursery) -> GroupClient:
    client = GroupClient(make_broker(**SETTINGS), nursery)
    await client.find()
    return client


async def delete(client: GroupClient, *group_ids: str) -> list[tuple[str, int]]:
    answer = await client.broker.call(ApiKey.DELETE_GROUPS, 2, group_names=group_ids)
    return [(row.group_id, row.error_code) for row in answer.results]


async def test_a_stable_group_is_described_with_what_its_members_have(client: GroupClient) -> None:
    joined = await client.stable()

    group = await client.describe()

    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"metadata", b"all")


async def test_while_it_rebalances_only_the_members_are_told(client: GroupClient) -> None:
    await client.join()

    group = await client.describe()

    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [(member.member_metadata, member.member_assignment) for member in group.members] == [(b"", b"")]


async def test_a_group_that_is_not_there_is_dead(client: GroupClient) -> None:
    group = await client.describe()

    assert (group.error_code, group.group_state, group.protocol_type, group.members) == (0, "Dead", "", [])


async def test_without_a_topic_nothing_can_be_told(broker: InMemoryBroker, nursery: trio.Nursery) -> None:
    group = await GroupClient(broker, nursery).describe()

    assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")


async def test_groups_are_listed_by_state_from_v4(client: GroupClient) -> None:
    await client.stable()
    await client.broker.create_topic("a")
    await GroupClient(client.broker, None, "offsets").commit(("a", 0, 5))

    everything = await client.broker.call(ApiKey.LIST_GROUPS, 4)
    stable = await client.broker.call(ApiKey.LIST_GROUPS, 4, states_filter=["Stable", "Dead"])
    old = await client.broker.call(ApiKey.LIST_GROUPS, 0)

    assert everything.groups == [("group", "consumer", "Stable"), ("offsets", "", "Empty")]
    assert [row.group_id for row in stable.groups] == ["group"]
    assert [row[:2] for row in old.groups] == [("group", "consumer"), ("offsets", "")]


async def test_only_an_empty_group_can_be_deleted(client: GroupClient) -> None:
    joined = await client.stable()

    refused = await delete(client, "group", "nowhere")
    await client.leave(joined.member_id)
    done = await delete(client, "group", "group")

    assert refused == [("group", ErrorCode.NON_EMPTY_GROUP), ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND)]
    assert done == [("group", ErrorCode.NONE)]
    assert (await client.describe()).group_state == "Dead"


async def test_a_group_that_rebalances_cannot_be_deleted(client: GroupClient) -> None:
    await client.join()

    assert await delete(client, "group") == [("group", ErrorCode.NON_EMPTY_GROUP)]


async def test_a_deleted_group_stays_deleted_after_a_restart(make_broker: MakeBroker, nursery: trio.Nursery) -> None:
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first, nursery)
    joined = await client.stable()
    await client.commit(("a", 0, 5), joined=joined)
    await client.leave(joined.member_id)
    await delete(client, "group")
    first.close()

    again = make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS)

    client = GroupClient(again, nursery)
    assert (await client.describe()).group_state == "Dead"
    assert await client.offset("a") == -1


async def test_when_the_topic_of_groups_is_deleted_they_are_forgotten(client: GroupClient) -> None:
    first = await client.stable()
    waiting = await client.start_join()

    await client.broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["__consumer_offsets"], timeout_ms=1000)
    await trio.testing.wait_all_tasks_blocked()

    assert waiting.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert await client.heartbeat(first) == ErrorCode.NOT_COORDINATOR
    assert (await client.stable()).generation_id == 1
