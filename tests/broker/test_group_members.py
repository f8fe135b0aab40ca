"""Members at the handlers that come back, are given an id first, or are gone: static, pending, disconnected."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import MakeBroker
from tests.broker.group_clients import SETTINGS, GroupClient

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


async def test_when_the_broker_stops_members_that_wait_get_not_coordinator(client: GroupClient) -> None:
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
    store = client.broker.parts.groups.store
    monkeypatch.setattr(store, "store_group", lambda *_: promise(acknowledge) if is_late else error)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.pure
async def test_an_assignment_that_cannot_be_stored_is_given_to_no_member(
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
