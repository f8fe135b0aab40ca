"""Members at the handlers that come back, are given an id first, or are gone: static, pending, disconnected."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import MakeBroker
from tests.broker.group_clients import GROUP, SETTINGS, GroupClient

pytestmark = pytest.mark.time_jumps


@pytest.fixture
async def client(make_broker: MakeBroker) -> GroupClient:
    client = GroupClient(make_broker(**SETTINGS))
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


async def test_from_v4_a_new_member_is_given_an_id_and_joins_with_it(client: GroupClient) -> None:
    asked = await client.join(version=4)
    joined = await client.join(asked.member_id, version=4)

    assert (asked.error_code, joined.error_code) == (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.NONE)
    assert joined.member_id == asked.member_id
    assert (await client.describe()).members[0].member_id == asked.member_id


async def test_a_rebalance_waits_for_who_was_given_an_id(client: GroupClient) -> None:
    first = await client.stable()
    promised = await client.join(version=4)
    rejoining = await client.start_join(first.member_id)
    assert rejoining.waits

    joined = await client.join(promised.member_id, version=4)

    assert joined.generation_id == (await rejoining.seen()).generation_id == 2


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_promised_member_is_waited_for_until_it_leaves_or_times_out(client: GroupClient, leaves: bool) -> None:
    first = await client.stable()
    promised = await client.join(version=4, session_timeout_ms=6000)
    rejoining = await client.start_join(first.member_id)

    if leaves:
        assert await client.leave(promised.member_id, version=3) == ErrorCode.NONE
    else:
        await trio.sleep(6.1)

    assert (await rejoining.seen()).generation_id == 2


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
    assert (await client.join(one.member_id, **static("three"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leader_again = await client.join(**static("one"))
    assert leader_again.leader == one.member_id != leader_again.member_id
    assert leader_again.members == []


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


async def test_an_administrator_removes_a_static_member_by_its_name(client: GroupClient) -> None:
    one, _ = await two_static(client)

    answer = await client.broker.call(ApiKey.LEAVE_GROUP, 3, group_id=GROUP, members=[("", "two"), ("", "three")])

    assert [row.error_code for row in answer.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert await client.heartbeat(one) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_static_member_outlives_a_rebalance_it_did_not_join(client: GroupClient) -> None:
    patience = {"rebalance_timeout_ms": 2000, "session_timeout_ms": 30_000}
    one, two = await two_static(client, **patience)
    rejoining = await client.start_join(one.member_id, **static("one", **patience))

    await trio.sleep(2.1)

    assert {row.member_id for row in rejoining.answer.members} == {one.member_id, two.member_id}


async def test_a_rebalance_that_nobody_joins_goes_on_until_the_sessions_end(client: GroupClient) -> None:
    one, _ = await two_static(client, rebalance_timeout_ms=2000)
    await client.broker.call(ApiKey.LEAVE_GROUP, 3, group_id=GROUP, members=[("", "two")])

    await trio.sleep(5)
    assert (await client.describe()).group_state == "PreparingRebalance"
    assert await client.heartbeat(one) == ErrorCode.REBALANCE_IN_PROGRESS
    await trio.sleep(10.1)

    assert (await client.describe()).group_state == "Empty"


async def test_a_static_member_with_another_protocol_sets_off_a_rebalance(client: GroupClient) -> None:
    one = await client.stable(**static("one"))

    back = await client.join(**static("one", protocols=[("range", b"metadata"), ("sticky", b"")]))
    changed = await client.join(**static("one", protocols=[("sticky", b""), ("range", b"")]))

    assert (back.generation_id, changed.generation_id) == (one.generation_id, one.generation_id + 1)
    assert changed.protocol_name == "sticky"


async def test_a_client_that_disconnects_while_it_waits_breaks_nothing(client: GroupClient) -> None:
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
    first, second = await client.two_members()
    lost = await client.start_sync(second)

    again = await client.start_sync(second)
    await client.sync(first, [(second.member_id, b"all")])

    assert (await lost.seen()).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert again.answer.assignment == b"all"


async def test_when_the_broker_stops_who_waits_is_told_to_look_for_another(client: GroupClient) -> None:
    first = await client.stable()
    joining = await client.start_join()
    other = GroupClient(client.broker, "other")
    leader = await other.stable(session_timeout_ms=30_000)
    follower = await other.start_join()
    await other.join(leader.member_id)
    await trio.testing.wait_all_tasks_blocked()
    syncing = await other.start_sync(follower.answer)

    client.broker.parts.groups.stop()
    await trio.testing.wait_all_tasks_blocked()

    assert joining.answer.error_code == syncing.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert await client.heartbeat(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def restarted(make_broker: MakeBroker) -> tuple[GroupClient, Any]:
    """A stable group on a broker that was started again, and its member."""
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first)
    joined = await client.stable()
    await trio.sleep(9)
    first.close()
    return GroupClient(make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS)), joined


async def test_members_are_there_after_a_restart_and_their_sessions_begin_anew(make_broker: MakeBroker) -> None:
    client, joined = await restarted(make_broker)

    assert await client.heartbeat(joined) == ErrorCode.NONE
    assert (await client.sync(joined)).assignment == b"all"
    described = await client.describe()
    assert (described.group_state, described.members[0].client_host) == ("Stable", "/127.0.0.1")
    await trio.sleep(9.9)
    assert (await client.describe()).group_state == "Stable"
    await trio.sleep(0.2)
    assert (await client.describe()).group_state == "Empty"


@pytest.mark.parametrize("is_static", [True, False])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_member_that_joins_again_has_its_new_timeouts(
    make_broker: MakeBroker, is_static: bool, restarts: bool
) -> None:
    """As kafka 3.9.1; before KAFKA-14009 it kept those of its first join."""
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first)
    await client.find()
    who: dict[str, Any] = static("one") if is_static else {}
    joined = await client.stable(**who)
    timeouts = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 5000}
    again = await client.join("" if is_static else joined.member_id, **who, **timeouts)
    await client.sync(again, [(again.member_id, b"all")])
    if restarts:
        first.close()
        client = GroupClient(make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS))

    await trio.sleep(10.1)
    assert (await client.describe()).group_state == "Stable"
    other = await client.start_join(rebalance_timeout_ms=1000)
    await trio.sleep(4.9)
    assert other.waits
    await trio.sleep(0.2)
    assert not other.waits


@pytest.mark.parametrize("how", ["heartbeat", "join"])
async def test_after_a_restart_a_static_member_is_fenced_once_its_client_is_heard_from(
    make_broker: MakeBroker, how: str
) -> None:
    """librdkafka forgets its id when the session ends without a broker, and commits before it joins again."""
    first = make_broker(**SETTINGS)
    await first.create_topic("a")
    client = GroupClient(first)
    await client.find()
    joined = await client.stable(**static("one"))
    first.close()
    client = GroupClient(make_broker(data_dir=first.log_of("a").directory.parent, **SETTINGS))

    async def answers(**identity: Any) -> tuple[int, int]:
        who: dict[str, Any] = {"member_id": "", "group_instance_id": "one", "generation_id": 1, **identity}
        (committed,) = await client.commit(("a", 0, 5), **who)
        return await client.heartbeat(joined, version=3, **who), committed

    loading, fenced = [(code, code) for code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID)]
    assert [await answers(), await answers(member_id="other"), await answers(generation_id=-1)] == [
        *[loading] * 2,
        fenced,
    ]
    if how == "heartbeat":
        assert await client.heartbeat(joined, version=3, group_instance_id="one") == ErrorCode.NONE
    else:
        assert (await client.join(**static("one"))).error_code == ErrorCode.NONE
    assert [await answers(), await answers(member_id="other")] == [fenced] * 2


async def test_a_member_that_is_not_heard_of_after_a_restart_has_failed(make_broker: MakeBroker) -> None:
    client, _ = await restarted(make_broker)

    await trio.sleep(9.9)
    assert (await client.describe()).group_state == "Stable"
    await trio.sleep(0.2)
    assert (await client.describe()).group_state == "Empty"


async def test_a_member_is_one_entry_in_the_timer_however_often_it_is_heard_of(client: GroupClient) -> None:
    joined = await client.stable()
    timer = client.broker.timers.timer
    before = len(timer)

    for _ in range(50):
        await trio.sleep(1)
        await client.heartbeat(joined)

    assert len(timer) == before


def storing_ends_in(monkeypatch: pytest.MonkeyPatch, client: GroupClient, error: ErrorCode, *, is_late: bool) -> None:
    """From now on groups are stored with this outcome, at once or after a second."""

    async def acknowledge() -> ErrorCode:
        await trio.sleep(1)
        return error

    promise = client.broker.parts.background.promise
    store = client.broker.parts.groups._store
    monkeypatch.setattr(store, "store_group", lambda *_: promise(acknowledge) if is_late else error)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.pure
async def test_an_assignment_that_cannot_be_stored_is_given_to_nobody(
    client: GroupClient, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    first, second = await client.two_members()
    follower = await client.start_sync(second)
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    storing_ends_in(monkeypatch, client, error, is_late=is_late)

    refused = await client.sync(first, [(first.member_id, b"all")])
    await trio.testing.wait_all_tasks_blocked()
    monkeypatch.undo()

    assert refused.error_code == follower.answer.error_code == error
    assert await client.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = await client.start_join(first.member_id)
    again = await client.join(second.member_id)
    await trio.testing.wait_all_tasks_blocked()
    assert (again.generation_id, rejoined.answer.leader) == (3, first.member_id)


@pytest.mark.pure
async def test_an_assignment_stored_too_late_is_void(client: GroupClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first = await client.join()
    storing_ends_in(monkeypatch, client, ErrorCode.NONE, is_late=True)
    syncing = await client.start_sync(first, [(first.member_id, b"all")])

    await client.start_join()
    await trio.sleep(2)

    assert syncing.answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert (await client.describe()).group_state == "PreparingRebalance"


@pytest.mark.pure
async def test_a_static_member_not_stored_is_not_back(client: GroupClient, monkeypatch: pytest.MonkeyPatch) -> None:
    _, two = await two_static(client)
    storing_ends_in(monkeypatch, client, ErrorCode.NOT_COORDINATOR, is_late=True)

    back = await client.join(**static("two"))
    monkeypatch.undo()

    assert (back.error_code, back.member_id) == (ErrorCode.NOT_COORDINATOR, "")
    assert await client.heartbeat(two, version=3, group_instance_id="two") == ErrorCode.NONE


MEMBERS = 300
MOST_BYTES_EACH = 4096  # an idle connection takes 4.5 KiB (`make bench`, parked.idle_kib_each)


@pytest.mark.slow
async def test_a_member_of_its_own_group_takes_less_than_its_connection(make_broker: MakeBroker) -> None:
    broker = make_broker(group_initial_rebalance_delay_ms=0)
    await GroupClient(broker, "first").stable()
    tasks, timeouts = trio.lowlevel.current_statistics().tasks_living, len(broker.timers.timer)
    gc.collect()
    tracemalloc.start()

    for number in range(MEMBERS):
        await GroupClient(broker, f"group-{number}").stable()
    gc.collect()
    bytes_each = tracemalloc.get_traced_memory()[0] / MEMBERS
    tracemalloc.stop()

    assert bytes_each < MOST_BYTES_EACH
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert len(broker.timers.timer) - timeouts == MEMBERS
