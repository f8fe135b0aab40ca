"""Members at the handlers that come back, are given an id first, or are gone: static, pending, disconnected."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from minibroker.broker.pending import Pending
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import MakeBroker
from tests.broker.group_clients import GROUP, GroupClient

SETTINGS = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1}


@pytest.fixture
async def client(make_broker: MakeBroker, nursery: trio.Nursery) -> GroupClient:
    client = GroupClient(make_broker(**SETTINGS), nursery)
    await client.find()
    return client


def static(name: str, **body: Any) -> dict[str, Any]:
    return {"group_instance_id": name, "version": 5, **body}


async def two_static(client: GroupClient, **body: Any) -> tuple[Any, Any]:
    """A stable group of two static members, the leader first."""
    one = await client.stable(**static("one", **body))
    two = await client.start_join(**static("two", **body))
    one = await client.join(one.member_id, **static("one", **body))
    await trio.testing.wait_all_tasks_blocked()
    await client.sync(one, [(one.member_id, b"p0"), (two.answer.member_id, b"p1")])
    assert (await client.sync(two.answer)).assignment == b"p1"
    return one, two.answer


# -- members that are given an id first (KIP-394) -------------------------------------------------------------


async def test_from_v4_a_new_member_is_given_an_id_and_joins_with_it(client: GroupClient) -> None:
    asked = await client.join(version=4)
    joined = await client.join(asked.member_id, version=4)

    assert (asked.error_code, joined.error_code) == (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE)
    assert joined.member_id == asked.member_id
    assert (await client.describe()).members[0].member_id == asked.member_id


async def test_a_rebalance_waits_for_who_was_given_an_id(client: GroupClient, autojump_clock: MockClock) -> None:
    first = await client.stable()
    promised = await client.join(version=4)
    rejoining = await client.start_join(first.member_id)

    assert rejoining.waits
    joined = await client.join(promised.member_id, version=4)
    await trio.testing.wait_all_tasks_blocked()
    assert joined.generation_id == rejoining.answer.generation_id == 2


async def test_who_never_comes_is_waited_for_no_longer_than_its_session(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    first = await client.stable()
    await client.join(version=4, session_timeout_ms=6000)
    rejoining = await client.start_join(first.member_id)

    await trio.sleep(6.1)

    assert rejoining.answer.generation_id == 2


async def test_who_leaves_before_it_joined_is_not_waited_for(client: GroupClient, autojump_clock: MockClock) -> None:
    first = await client.stable()
    promised = await client.join(version=4)
    rejoining = await client.start_join(first.member_id)

    assert await client.leave(promised.member_id, version=3) == ErrorCode.NONE
    await trio.testing.wait_all_tasks_blocked()

    assert rejoining.answer.generation_id == 2


# -- static members (KIP-345) ---------------------------------------------------------------------------------


async def test_a_static_member_needs_no_id_and_is_named_after_itself(client: GroupClient) -> None:
    joined = await client.stable(**static("one"))

    assert joined.member_id.startswith("one-")
    assert [row.group_instance_id for row in joined.members] == ["one"]
    assert [row.group_instance_id for row in (await client.describe()).members] == ["one"]


async def test_a_static_member_that_comes_back_has_its_assignment_and_nobody_rebalances(client: GroupClient) -> None:
    one, two = await two_static(client)

    back = await client.join(**static("two"))
    synced = await client.sync(back)

    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, two.generation_id)
    assert back.member_id != two.member_id
    assert synced.assignment == b"p1"
    assert await client.heartbeat(one) == ErrorCode.NONE


async def test_a_static_leader_that_comes_back_is_told_of_a_leader_it_is_not(client: GroupClient) -> None:
    one, _ = await two_static(client)

    back = await client.join(**static("one"))

    assert back.leader == one.member_id != back.member_id
    assert back.members == []


async def test_whose_place_was_taken_is_fenced(client: GroupClient) -> None:
    _, two = await two_static(client)
    await client.broker.create_topic("a")
    await client.join(**static("two"))

    instance: dict[str, Any] = {"group_instance_id": "two"}
    assert await client.heartbeat(two, version=3, **instance) == ErrorCode.FENCED_INSTANCE_ID
    assert await client.heartbeat(two) == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await client.sync(two, version=3, **instance)).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert (await client.join(two.member_id, **static("two"))).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert await client.commit(("a", 0, 5), joined=two, **instance) == [ErrorCode.FENCED_INSTANCE_ID]
    leaving = await client.broker.call(ApiKey.LEAVE_GROUP, 3, group_id=GROUP, members=[(two.member_id, "two")])
    assert leaving.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_a_static_member_of_no_such_name_is_unknown(client: GroupClient) -> None:
    one, _ = await two_static(client)

    assert (await client.join(one.member_id, **static("three"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_an_administrator_removes_a_static_member_by_its_name(client: GroupClient) -> None:
    one, _ = await two_static(client)

    answer = await client.broker.call(ApiKey.LEAVE_GROUP, 3, group_id=GROUP, members=[("", "two"), ("", "three")])

    assert [row.error_code for row in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert await client.heartbeat(one) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_static_member_outlives_a_rebalance_it_did_not_join(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    patience = {"rebalance_timeout_ms": 2000, "session_timeout_ms": 30_000}
    one, two = await two_static(client, **patience)
    rejoining = await client.start_join(one.member_id, **static("one"))

    await trio.sleep(2.1)

    assert {row.member_id for row in rejoining.answer.members} == {one.member_id, two.member_id}


async def test_a_rebalance_that_nobody_joins_goes_on_until_the_sessions_end(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    one, _ = await two_static(client, rebalance_timeout_ms=2000)
    await client.broker.call(ApiKey.LEAVE_GROUP, 3, group_id=GROUP, members=[("", "two")])

    await trio.sleep(5)
    assert (await client.describe()).group_state == "PreparingRebalance"
    assert await client.heartbeat(one) == ErrorCode.REBALANCE_IN_PROGRESS
    await trio.sleep(10.1)

    assert (await client.describe()).group_state == "Empty"


async def test_a_static_member_is_removed_when_its_session_ends(client: GroupClient, autojump_clock: MockClock) -> None:
    await client.stable(**static("one"))

    await trio.sleep(10.1)

    assert (await client.describe()).group_state == "Empty"


async def test_a_static_member_with_another_protocol_sets_off_a_rebalance(client: GroupClient) -> None:
    one = await client.stable(**static("one"))

    back = await client.join(**static("one", protocols=[("range", b"metadata"), ("sticky", b"")]))
    changed = await client.join(**static("one", protocols=[("sticky", b""), ("range", b"")]))

    assert (back.generation_id, changed.generation_id) == (one.generation_id, one.generation_id + 1)
    assert changed.protocol_name == "sticky"


# -- clients that are gone, brokers that stop -----------------------------------------------------------------


async def test_a_client_that_disconnects_while_it_waits_breaks_nothing(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    first = await client.stable()
    with trio.move_on_after(1):
        await client.join(rebalance_timeout_ms=5000)

    again = await client.join(first.member_id)
    assert len(again.members) == 2
    await client.sync(again, [(again.member_id, b"all")])
    for _ in range(3):
        await trio.sleep(5)
        last = await client.heartbeat(again)

    assert last == ErrorCode.REBALANCE_IN_PROGRESS
    assert len((await client.join(first.member_id)).members) == 1


async def test_a_member_that_asks_again_on_a_new_connection_is_answered_there(client: GroupClient) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    lost = await client.start_sync(second.answer)

    again = await client.start_sync(second.answer)
    await client.sync(first, [(second.answer.member_id, b"all")])
    await trio.testing.wait_all_tasks_blocked()

    assert lost.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.answer.assignment == b"all"


async def test_when_the_broker_stops_who_waits_is_told_to_look_for_another(client: GroupClient) -> None:
    first = await client.stable()
    joining = await client.start_join()
    other = GroupClient(client.broker, client._nursery, "other")
    leader = await other.stable(session_timeout_ms=30_000)
    follower = await other.start_join()
    await other.join(leader.member_id)
    await trio.testing.wait_all_tasks_blocked()
    syncing = await other.start_sync(follower.answer)

    client.broker.parts.groups.stop()
    await trio.testing.wait_all_tasks_blocked()

    assert joining.answer.error_code == syncing.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert await client.heartbeat(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def restarted(make_broker: MakeBroker, nursery: trio.Nursery) -> tuple[GroupClient, Any]:
    """A stable group on a broker that was started again, and its member."""
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first, nursery)
    joined = await client.stable()
    await trio.sleep(9)
    first.close()
    return GroupClient(make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS), nursery), joined


async def test_members_are_there_after_a_restart(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client, joined = await restarted(make_broker, nursery)

    assert await client.heartbeat(joined) == ErrorCode.NONE
    assert (await client.sync(joined)).assignment == b"all"
    described = await client.describe()
    assert (described.group_state, described.members[0].client_host) == ("Stable", "/127.0.0.1")


async def test_after_a_restart_the_sessions_of_members_begin_anew(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    client, _ = await restarted(make_broker, nursery)

    await trio.sleep(9.9)
    assert (await client.describe()).group_state == "Stable"
    await trio.sleep(0.2)

    assert (await client.describe()).group_state == "Empty"


async def test_a_member_is_one_entry_in_the_timer_however_often_it_is_heard_of(
    client: GroupClient, autojump_clock: MockClock
) -> None:
    joined = await client.stable()
    timer = client.broker.timers.timer
    before = len(timer)

    for _ in range(50):
        await trio.sleep(1)
        await client.heartbeat(joined)

    assert len(timer) == before


# -- what cannot be written down, or only later ---------------------------------------------------------------


async def test_groups_work_the_same_where_each_append_waits_for_the_disk(
    make_broker: MakeBroker, nursery: trio.Nursery
) -> None:
    broker = make_broker(**SETTINGS, log_flush_interval_messages=1)
    await broker.create_topic("a")
    client = GroupClient(broker, nursery)

    joined = await client.stable()
    assert await client.commit(("a", 0, 5), joined=joined) == [ErrorCode.NONE]
    assert await client.leave(joined.member_id) == ErrorCode.NONE

    assert await client.offset("a") == 5
    assert (await client.describe()).group_state == "Empty"


def later(client: GroupClient, error: ErrorCode) -> Pending[ErrorCode]:
    """The outcome of an append that is acknowledged after a second."""

    async def acknowledge() -> ErrorCode:
        await trio.sleep(1)
        return error

    return client.broker.parts.background.promise(acknowledge)


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_assignment_that_cannot_be_stored_is_given_to_nobody(
    client: GroupClient, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, is_late: bool
) -> None:
    first = await client.stable()
    second = await client.start_join()
    first = await client.join(first.member_id)
    await trio.testing.wait_all_tasks_blocked()
    follower = await client.start_sync(second.answer)
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    store = client.broker.parts.groups._store
    monkeypatch.setattr(store, "store_group", lambda *_: later(client, error) if is_late else error)

    refused = await client.sync(first, [(first.member_id, b"all")])
    await trio.testing.wait_all_tasks_blocked()
    monkeypatch.undo()

    assert refused.error_code == follower.answer.error_code == error
    assert await client.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = await client.start_join(first.member_id)
    again = await client.join(second.answer.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert (again.generation_id, rejoined.answer.leader) == (3, first.member_id)


async def test_an_assignment_that_is_stored_too_late_is_given_to_nobody(
    client: GroupClient, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    first = await client.join()
    store = client.broker.parts.groups._store
    monkeypatch.setattr(store, "store_group", lambda *_: later(client, ErrorCode.NONE))
    syncing = await client.start_sync(first, [(first.member_id, b"all")])

    await client.start_join()
    await trio.sleep(2)

    assert syncing.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await client.describe()).group_state == "PreparingRebalance"


async def test_a_static_member_whose_return_cannot_be_stored_is_not_back(
    client: GroupClient, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    _, two = await two_static(client)
    store = client.broker.parts.groups._store
    monkeypatch.setattr(store, "store_group", lambda *_: later(client, ErrorCode.NOT_COORDINATOR))

    back = await client.join(**static("two"))
    monkeypatch.undo()

    assert (back.error_code, back.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert await client.heartbeat(two, version=3, group_instance_id="two") == ErrorCode.NONE
