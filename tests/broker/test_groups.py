"""Groups at the handlers: joining, syncing, staying alive, leaving."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name
from tests.broker.group_clients import GroupClient


@pytest.fixture
async def client(make_broker: MakeBroker, nursery: trio.Nursery) -> GroupClient:
    client = GroupClient(make_broker(group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1), nursery)
    await client.find()
    return client


# -- FindCoordinator ------------------------------------------------------------------------------------------


async def test_the_coordinator_is_this_broker_and_its_topic_is_made_when_first_wanted(
    broker: InMemoryBroker, nursery: trio.Nursery
) -> None:
    answer = await GroupClient(broker, nursery).find()

    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 0, "127.0.0.1", 9092)
    metadata = await broker.call(ApiKey.METADATA, 1, topics=by_name("__consumer_offsets"))
    assert (metadata.topics[0].is_internal, len(metadata.topics[0].partitions)) == (True, 50)


async def test_many_coordinators_are_found_at_once(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["a", "b"])

    assert [(row.key, row.error_code, row.port) for row in answer.coordinators] == [("a", 0, 9092), ("b", 0, 9092)]


async def test_an_unknown_kind_of_coordinator_closes_the_connection(broker: InMemoryBroker) -> None:
    with pytest.raises(KafkaProtocolError):
        await broker.call(ApiKey.FIND_COORDINATOR, 1, key="a", key_type=2)


async def test_before_there_is_a_topic_nobody_coordinates(broker: InMemoryBroker, nursery: trio.Nursery) -> None:
    answer = await GroupClient(broker, nursery).join()

    assert answer.error_code == ErrorCode.NOT_COORDINATOR


# -- JoinGroup ------------------------------------------------------------------------------------------------


async def test_the_first_member_leads_and_is_told_the_members(client: GroupClient) -> None:
    joined = await client.join()

    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [(row.member_id, row.metadata) for row in joined.members] == [(joined.member_id, b"metadata")]


async def test_a_member_id_is_the_client_id_and_a_uuid(client: GroupClient) -> None:
    joined = await client.join()

    name, _, suffix = joined.member_id.partition("-")
    assert (name, str(uuid.UUID(suffix))) == ("test", suffix)


@pytest.mark.parametrize("version", range(8))
async def test_every_version_can_join(client: GroupClient, version: int) -> None:
    joined = await client.join(version=version)
    if version >= 4:
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        joined = await client.join(joined.member_id, version=version)

    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.NONE, 1, joined.member_id)
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


async def test_a_new_group_waits_for_more_members_and_longer_when_one_comes(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client = GroupClient(make_broker(group_initial_rebalance_delay_ms=3000, offsets_topic_num_partitions=1), nursery)
    await client.find()
    begun = trio.current_time()

    first = await client.start_join(rebalance_timeout_ms=10_000)
    await trio.sleep(2)
    second = await client.start_join(rebalance_timeout_ms=10_000)
    await trio.sleep(1.5)

    assert first.waits and second.waits
    await trio.sleep(3)
    assert trio.current_time() - begun == pytest.approx(6.5)
    assert {first.answer.generation_id, second.answer.generation_id} == {1}
    assert len(first.answer.members) == 2 and not second.answer.members


async def test_the_initial_wait_ends_with_the_rebalance_timeout(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client = GroupClient(make_broker(group_initial_rebalance_delay_ms=3000, offsets_topic_num_partitions=1), nursery)
    await client.find()

    joins = []
    for _ in range(5):
        joins.append(await client.start_join(rebalance_timeout_ms=7000))
        await trio.sleep(2)

    assert trio.current_time() < 20
    assert [each.answer.generation_id for each in joins[:4]] == [1, 1, 1, 1]


async def test_a_second_member_makes_the_first_join_again(client: GroupClient) -> None:
    first = await client.stable()

    second = await client.start_join()

    assert second.waits
    assert await client.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    again = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert (again.generation_id, second.answer.generation_id) == (2, 2)
    assert again.leader == second.answer.leader == first.member_id
    assert {row.member_id for row in again.members} == {first.member_id, second.answer.member_id}


async def test_who_does_not_join_again_in_time_is_no_member_any_more(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    first = await client.stable(rebalance_timeout_ms=5000, session_timeout_ms=30_000)
    second = await client.start_join(rebalance_timeout_ms=5000)

    await trio.sleep(5.1)

    assert second.answer.leader == second.answer.member_id
    assert await client.heartbeat(first) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_in_v0_the_session_timeout_bounds_the_rebalance(client: GroupClient, autojump_clock: MockClock) -> None:
    first = await client.stable(version=0, session_timeout_ms=7000)
    second = await client.start_join(version=0, session_timeout_ms=6000)

    await trio.sleep(4)
    assert await client.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    await trio.sleep(3.1)

    assert second.answer.generation_id == 2


async def test_a_follower_that_joins_again_unchanged_is_told_its_generation(client: GroupClient) -> None:
    first = await client.stable()
    second = await client.start_join()
    await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()

    again = await client.join(second.answer.member_id)

    assert (again.error_code, again.generation_id, again.members) == (ErrorCode.NONE, 2, [])


async def test_a_leader_that_joins_again_sets_off_a_rebalance(client: GroupClient) -> None:
    first = await client.stable()

    again = await client.join(first.member_id)

    assert (again.error_code, again.generation_id) == (ErrorCode.NONE, 2)


async def test_a_member_with_other_metadata_sets_off_a_rebalance(client: GroupClient) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()

    changed = await client.start_join(second.answer.member_id, protocols=[("range", b"other")])

    assert changed.waits
    assert (await client.join(first.member_id)).generation_id == 3


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 300_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "x" * 32_731, "version": 6}, ErrorCode.INVALID_REQUEST),
        ({"client_id": "x" * 32_767}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_join_that_is_refused(client: GroupClient, body: dict[str, Any], error: ErrorCode) -> None:
    joined = await client.join(**body)

    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (error, 0, "", [])


@pytest.mark.parametrize("name", ["group_id", "protocol_type", "group_instance_id", "member_id"])
async def test_a_name_that_is_longer_than_a_string_can_be_is_malformed(client: GroupClient, name: str) -> None:
    with pytest.raises(KafkaProtocolError, match="string too long"):
        await client.join(**{name: "x" * 32_768}, version=6)


@pytest.mark.parametrize("body", [{"protocol_type": "connect"}, {"protocols": [("roundrobin", b"")]}])
async def test_a_member_that_speaks_another_protocol_is_refused(client: GroupClient, body: dict[str, Any]) -> None:
    await client.stable()

    assert (await client.join(**body)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# -- SyncGroup ------------------------------------------------------------------------------------------------


async def test_followers_wait_for_the_assignment_of_the_leader(client: GroupClient) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    follower = await client.start_sync(second.answer)

    assert follower.waits
    own = await client.sync(first, [(first.member_id, b"one"), (follower_id := second.answer.member_id, b"two")])
    await trio.testing.wait_all_tasks_blocked()
    assert (own.assignment, follower.answer.assignment) == (b"one", b"two")
    assert (await client.sync(second.answer)).assignment == b"two"
    assert follower_id in {row.member_id for row in (await client.describe()).members}


async def test_a_member_the_leader_forgot_has_nothing_assigned(client: GroupClient) -> None:
    joined = await client.join()

    synced = await client.sync(joined, [("nobody", b"all")])

    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"")


async def test_who_waits_for_an_assignment_is_told_of_the_next_rebalance(client: GroupClient) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    follower = await client.start_sync(second.answer)

    await client.start_join()

    assert follower.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect", "version": 5}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "roundrobin", "version": 5}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_a_sync_that_is_refused(client: GroupClient, body: dict[str, Any], error: ErrorCode) -> None:
    joined = await client.join()

    assert (await client.sync(joined, **body)).error_code == error


async def test_v5_tells_the_protocol_again(client: GroupClient) -> None:
    joined = await client.join()

    synced = await client.sync(joined, version=5, protocol_type="consumer", protocol_name="range")

    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (ErrorCode.NONE, "consumer", "range")


# -- Heartbeat ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
    ],
)
async def test_what_a_heartbeat_is_answered(client: GroupClient, body: dict[str, Any], error: ErrorCode) -> None:
    joined = await client.stable()

    assert await client.heartbeat(joined, **body) == error


async def test_before_the_assignment_is_there_a_heartbeat_is_told_of_the_rebalance(client: GroupClient) -> None:
    joined = await client.join()

    assert await client.heartbeat(joined) == ErrorCode.REBALANCE_IN_PROGRESS
    assert await client.heartbeat(joined, generation_id=7) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_member_that_falls_silent_is_removed_and_the_others_rebalance(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    follower = await client.start_sync(second.answer)
    await client.sync(first)
    await trio.testing.wait_all_tasks_blocked()
    assert not follower.waits

    for _ in range(3):
        await trio.sleep(4)
        last = await client.heartbeat(first)

    assert last == ErrorCode.REBALANCE_IN_PROGRESS
    again = await client.join(first.member_id)
    assert [row.member_id for row in again.members] == [first.member_id]


async def test_heartbeats_keep_a_member(client: GroupClient, autojump_clock: MockClock) -> None:
    joined = await client.stable()

    for _ in range(10):
        await trio.sleep(9.9)
        assert await client.heartbeat(joined) == ErrorCode.NONE

    await trio.sleep(10.1)
    assert (await client.describe()).group_state == "Empty"


async def test_who_waits_is_alive(client: GroupClient, autojump_clock: MockClock) -> None:
    first = await client.stable(session_timeout_ms=60_000)
    second = await client.start_join(session_timeout_ms=6000)
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()

    again = await client.start_join(second.answer.member_id, protocols=[("range", b"new")])
    newcomer = await client.start_join(session_timeout_ms=6000)
    await trio.sleep(30)
    await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()

    assert again.answer.generation_id == newcomer.answer.generation_id == 3


# -- LeaveGroup -----------------------------------------------------------------------------------------------


async def test_when_the_last_member_leaves_the_group_is_empty(client: GroupClient) -> None:
    joined = await client.stable()

    assert await client.leave(joined.member_id) == ErrorCode.NONE

    described = await client.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
    assert await client.heartbeat(joined) == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_rest_rebalances_when_one_leaves(client: GroupClient) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()

    await client.leave(first.member_id)

    again = await client.join(second.answer.member_id)
    assert (again.generation_id, again.leader) == (3, second.answer.member_id)


async def test_a_stranger_cannot_leave(client: GroupClient) -> None:
    await client.stable()

    assert await client.leave("nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await client.leave("") == ErrorCode.UNKNOWN_MEMBER_ID


async def test_many_leave_at_once_and_each_has_its_error(client: GroupClient) -> None:
    joined = await client.stable()

    answer = await client.broker.call(
        ApiKey.LEAVE_GROUP, 4, group_id=client.group_id, members=[(joined.member_id, None), ("nobody", None)]
    )

    assert answer.error_code == ErrorCode.NONE
    assert [row.error_code for row in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
