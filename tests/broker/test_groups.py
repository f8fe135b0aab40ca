"""Groups at the handlers: joining, syncing, staying alive, leaving, and what administrators ask of them.

Whole lives of groups, and every refusal of Apache Kafka 2.0.1, are in tests/conformance/scripts/groups.py.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name
from tests.broker.group_clients import SETTINGS, GroupClient

pytestmark = pytest.mark.time_jumps


@pytest.fixture
async def client(make_broker: MakeBroker) -> GroupClient:
    client = GroupClient(make_broker(**SETTINGS))
    await client.find()
    return client


async def test_the_coordinator_is_this_broker_and_its_topic_is_made_when_first_wanted(broker: InMemoryBroker) -> None:
    answer = await GroupClient(broker).find()

    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (0, 0, "127.0.0.1", 9092)
    metadata = await broker.call(ApiKey.METADATA, 1, topics=by_name("__consumer_offsets"))
    assert (metadata.topics[0].is_internal, len(metadata.topics[0].partitions)) == (True, 50)


async def test_many_coordinators_are_found_at_once(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["a", "b"])

    assert [(row.key, row.error_code, row.port) for row in answer.coordinators] == [("a", 0, 9092), ("b", 0, 9092)]


async def test_without_a_topic_no_group_has_a_coordinator(broker: InMemoryBroker) -> None:
    client = GroupClient(broker)

    joined, described = await client.join(), await client.describe()

    assert joined.error_code == described.error_code == ErrorCode.NOT_COORDINATOR
    assert described.group_state == ""


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


async def test_a_new_group_waits_for_more_members_and_longer_when_one_comes(make_broker: MakeBroker) -> None:
    client = GroupClient(make_broker(**SETTINGS | {"group_initial_rebalance_delay_ms": 3000}))
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


async def test_the_initial_wait_ends_with_the_rebalance_timeout(make_broker: MakeBroker) -> None:
    client = GroupClient(make_broker(**SETTINGS | {"group_initial_rebalance_delay_ms": 3000}))
    await client.find()

    joins = []
    for _ in range(5):
        joins.append(await client.start_join(rebalance_timeout_ms=7000))
        await trio.sleep(2)

    assert trio.current_time() < 20
    assert [each.answer.generation_id for each in joins[:4]] == [1, 1, 1, 1]


async def test_in_v0_the_session_timeout_bounds_the_rebalance(client: GroupClient) -> None:
    first = await client.stable(version=0, session_timeout_ms=7000)
    second = await client.start_join(version=0, session_timeout_ms=6000)

    await trio.sleep(4)
    assert await client.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    await trio.sleep(3.1)

    assert second.answer.generation_id == 2


@pytest.mark.parametrize("body", [{"group_instance_id": "x" * 32_731, "version": 6}, {"client_id": "x" * 32_767}])
async def test_a_join_whose_member_id_would_be_too_long_is_refused(client: GroupClient, body: dict[str, Any]) -> None:
    joined = await client.join(**body)

    assert (joined.error_code, joined.generation_id) == (ErrorCode.INVALID_REQUEST, 0)
    assert (joined.leader, joined.members) == ("", [])


@pytest.mark.parametrize("name", ["group_id", "protocol_type", "group_instance_id", "member_id"])
async def test_a_name_that_is_longer_than_a_string_can_be_is_malformed(client: GroupClient, name: str) -> None:
    with pytest.raises(KafkaProtocolError, match="string too long"):
        await client.join(**{name: "x" * 32_768}, version=6)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"protocol_type": "consumer", "protocol_name": "range"}, ErrorCode.NONE),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "roundrobin"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
async def test_a_sync_of_v5_has_the_protocol(client: GroupClient, body: dict[str, Any], error: ErrorCode) -> None:
    synced = await client.sync(await client.join(), version=5, **body)

    protocol = (None, None) if error else ("consumer", "range")
    assert (synced.error_code, synced.protocol_type, synced.protocol_name) == (error, *protocol)


async def test_a_heartbeat_is_of_the_generation_that_there_is(client: GroupClient) -> None:
    first = await client.stable()
    joined = await client.join(first.member_id)
    await client.sync(joined, [(joined.member_id, b"all")])
    assert (first.generation_id, joined.generation_id) == (1, 2)

    for generation_id in (1, 3):
        assert await client.heartbeat(joined, generation_id=generation_id) == ErrorCode.ILLEGAL_GENERATION
    assert await client.heartbeat(joined) == ErrorCode.NONE


async def test_heartbeats_keep_a_member(client: GroupClient) -> None:
    joined = await client.stable()

    for _ in range(10):
        await trio.sleep(9.9)
        assert await client.heartbeat(joined) == ErrorCode.NONE

    await trio.sleep(10.1)
    assert (await client.describe()).group_state == "Empty"


@pytest.mark.parametrize(
    ("version", "answer", "state"),
    [(2, ErrorCode.REBALANCE_IN_PROGRESS, "Empty"), (3, ErrorCode.NONE, "Stable"), (4, ErrorCode.NONE, "Stable")],
)
async def test_a_leader_that_takes_longer_than_its_session_to_assign(
    client: GroupClient, version: int, answer: ErrorCode, state: str
) -> None:
    """Kafka 2.0.1 expels it, however it heartbeats; 3.9.1 does not."""
    joined = await client.join()

    for _ in range(2):
        await trio.sleep(6)
        assert await client.heartbeat(joined, version=version) in (answer, ErrorCode.UNKNOWN_MEMBER_ID)
    await client.sync(joined, [(joined.member_id, b"all")])

    assert (await client.describe()).group_state == state


async def test_who_waits_is_alive(client: GroupClient) -> None:
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


async def test_many_leave_at_once_and_each_has_its_error(client: GroupClient) -> None:
    joined = await client.stable()

    answer = await client.broker.call(
        ApiKey.LEAVE_GROUP, 4, group_id=client.group_id, members=[(joined.member_id, None), ("nobody", None)]
    )

    assert answer.error_code == ErrorCode.NONE
    assert [row.error_code for row in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]


async def delete(client: GroupClient, *group_ids: str) -> list[tuple[str, int]]:
    answer = await client.broker.call(ApiKey.DELETE_GROUPS, 2, group_names=group_ids)
    return [(row.group_id, row.error_code) for row in answer.results]


async def test_groups_are_listed_by_state_from_v4(client: GroupClient) -> None:
    await client.stable()
    await client.broker.create_topic("a")
    await GroupClient(client.broker, "offsets").commit(("a", 0, 5))

    everything = await client.broker.call(ApiKey.LIST_GROUPS, 4)
    stable = await client.broker.call(ApiKey.LIST_GROUPS, 4, states_filter=["Stable", "Dead"])
    old = await client.broker.call(ApiKey.LIST_GROUPS, 0)

    assert everything.groups == [("group", "consumer", "Stable"), ("offsets", "", "Empty")]
    assert [row.group_id for row in stable.groups] == ["group"]
    assert [row[:2] for row in old.groups] == [("group", "consumer"), ("offsets", "")]


async def test_a_deleted_group_stays_deleted_after_a_restart(make_broker: MakeBroker) -> None:
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first)
    joined = await client.stable()
    await client.commit(("a", 0, 5), joined=joined)
    await client.leave(joined.member_id)
    await delete(client, "group")
    first.close()

    again = make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS)

    client = GroupClient(again)
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
