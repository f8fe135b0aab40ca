"""Faults of fetches, of time and of connections: what is struck, and the logs are as they were."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker
from tests.broker.faulty import Faulty, end_of, errors_of, produce_to

NOT_LEADER = ErrorCode.NOT_LEADER_FOR_PARTITION


@pytest.fixture
async def faulty(broker: InMemoryBroker) -> Faulty:
    await broker.create_topic("orders", 2)
    await broker.create_topic("payments", 2)
    return Faulty(broker)


# -- fetch -------------------------------------------------------------------------------------------------------------


async def test_a_fetch_error_is_told_at_once_and_the_others_are_read(faulty: Faulty) -> None:
    await faulty.broker.produce("orders", [b"a"])
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch", topic="orders", partition=1)

    answer = await faulty.broker.fetch(("orders", 0, 0), ("orders", 1, 0), max_wait_ms=60_000, min_bytes=1 << 20)

    assert errors_of(answer) == {("orders", 0): 0, ("orders", 1): NOT_LEADER}
    records = {row.partition: bytes(row.records) for row in answer.topics[0].partitions}
    assert records[0] and not records[1]


async def test_a_partition_of_the_fetch_session_is_struck_though_the_request_names_none(faulty: Faulty) -> None:
    begun = await faulty.broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_id=0, session_epoch=0)
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch", topic="orders", partition=1, times=1)

    struck = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=1, max_wait_ms=60_000)
    after = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=2)

    assert begun.session_id > 0
    assert errors_of(struck) == {("orders", 1): NOT_LEADER}
    assert errors_of(after) == {("orders", 1): 0}, "the session tells that the error has gone"


async def test_a_partition_struck_when_the_session_begins_is_in_it(faulty: Faulty) -> None:
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch", topic="orders", partition=1, times=1)
    begun = await faulty.broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_id=0, session_epoch=0)
    await faulty.broker.produce("orders", [b"a"], partition=1)

    after = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=1)

    assert errors_of(begun) == {("orders", 0): 0, ("orders", 1): NOT_LEADER}
    assert errors_of(after) == {("orders", 1): 0}
    assert after.topics[0].partitions[0].records


async def test_a_partition_that_the_session_forgets_is_not_struck(faulty: Faulty) -> None:
    begun = await faulty.broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_id=0, session_epoch=0)
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch", topic="orders", partition=1)

    answer = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=1, forgotten_topics=[("orders", [1])])

    assert (list(answer.topics), fault.count) == ([], 0)


async def test_a_session_that_is_not_there_is_told_so_and_strikes_nobody(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch")

    answer = await faulty.broker.fetch(("orders", 0, 0), session_id=77, session_epoch=5)

    assert (answer.error_code, fault.count) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


async def test_the_error_of_a_session_is_the_answers_own(faulty: Faulty) -> None:
    faulty.add("error", error="FETCH_SESSION_ID_NOT_FOUND", api="fetch")

    answer = await faulty.broker.fetch(("orders", 0, 0), session_id=0, session_epoch=0)

    assert (answer.error_code, list(answer.topics)) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


@pytest.mark.parametrize("version", [2, 3, 8, 12])
async def test_a_wrong_crc_is_in_a_copy_of_the_records(faulty: Faulty, version: int) -> None:
    await faulty.broker.produce("orders", [b"a", b"b"])
    await faulty.broker.produce("orders", [b"c"])
    right = await faulty.broker.fetch(("orders", 0, 0), version=version)
    fault = faulty.add("wrong_crc", topic="orders")

    wrong = await faulty.broker.fetch(("orders", 0, 0), version=version)
    faulty.injector.lift(fault.id)
    again = await faulty.broker.fetch(("orders", 0, 0), version=version)

    records = [bytes(each.topics[0].partitions[0].records) for each in (right, wrong, again)]
    changed = [at for at, (ours, theirs) in enumerate(zip(records[0], records[1], strict=True)) if ours != theirs]
    crc_at = 17 if version > 3 else 12
    assert changed[:4] == list(range(crc_at, crc_at + 4))
    assert len(changed) == (8 if version > 3 else 12), "of every batch, or message"
    assert records[0] == records[2]
    assert fault.count == 1


async def test_a_fetch_without_records_does_not_use_a_wrong_crc_up(faulty: Faulty) -> None:
    fault = faulty.add("wrong_crc", topic="orders", times=1)

    await faulty.broker.fetch(("orders", 0, 0))

    assert fault.count == 0


# -- time and connections -------------------------------------------------------------------------------------


async def test_a_delayed_request_is_served_after_its_delay(faulty: Faulty, autojump_clock: Any) -> None:
    faulty.add("delay", seconds=30, api="produce")
    began = trio.current_time()

    await produce_to(faulty.broker, ("orders", 0))

    assert trio.current_time() - began == pytest.approx(30)


@pytest.mark.parametrize(("when", "end"), [("before", 0), ("after", 1)])
async def test_the_records_of_a_delayed_request_wait_too_or_not(faulty: Faulty, when: str, end: int) -> None:
    fault = faulty.add("delay", seconds=3600, api="produce", when=when)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce_to, faulty.broker, ("orders", 0))
        await trio.testing.wait_all_tasks_blocked()
        end_meanwhile = end_of(faulty.broker, "orders")
        faulty.injector.lift(fault.id)  # and what it holds goes on at once

    assert end_meanwhile == end
    assert end_of(faulty.broker, "orders") == 1


async def test_a_fault_is_for_one_client_id(faulty: Faulty) -> None:
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", client_id="slow")

    struck = await produce_to(faulty.broker, ("orders", 0), client_id="slow")
    other = await produce_to(faulty.broker, ("orders", 0), client_id="slower")

    assert [struck["orders", 0], other["orders", 0]] == [NOT_LEADER, 0]


@pytest.mark.parametrize("connection", [2, "127.0.0.1:50002"])
async def test_a_fault_is_for_one_connection(faulty: Faulty, connection: int | str) -> None:
    await produce_to(faulty.broker, ("orders", 0))
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", connection=connection)

    answered = [await produce_to(faulty.broker, ("orders", 0))]
    faulty.connect("127.0.0.1:50002")
    answered.append(await produce_to(faulty.broker, ("orders", 0)))

    assert [row["orders", 0] for row in answered] == [0, NOT_LEADER]
    assert faulty.injector.connections() == [(1, "127.0.0.1:50000", "test"), (2, "127.0.0.1:50002", "test")]


@pytest.mark.parametrize(("when", "end"), [("before", 0), ("after", 1)])
async def test_a_connection_is_closed_before_or_after_the_append(faulty: Faulty, when: str, end: int) -> None:
    faulty.add("disconnect", api="produce", when=when)

    with pytest.raises(CloseConnectionError, match=f"disconnect {when} serving"):
        await produce_to(faulty.broker, ("orders", 0))

    assert end_of(faulty.broker, "orders") == end


async def test_a_torn_frame_is_the_first_half_of_the_answer(faulty: Faulty) -> None:
    whole = await faulty.broker.call(ApiKey.METADATA, 1, topics=None)
    faulty.add("torn_frame", api="metadata")

    with pytest.raises(CloseConnectionError) as torn:
        await faulty.broker.call(ApiKey.METADATA, 1, topics=None)

    size = int.from_bytes(torn.value.last_bytes[:4], "big")
    assert len(torn.value.last_bytes) == (4 + size) // 2
    assert whole.topics


async def test_an_error_and_a_delay_strike_one_request(faulty: Faulty, autojump_clock: Any) -> None:
    delay = faulty.add("delay", seconds=5)
    error = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", topic="orders")
    began = trio.current_time()

    answered = await produce_to(faulty.broker, ("orders", 0), acks=-1)

    assert answered == {("orders", 0): NOT_LEADER}
    assert trio.current_time() - began == pytest.approx(5)
    assert [delay.count, error.count] == [1, 1]


async def test_a_request_that_no_fault_fits_goes_straight_through(faulty: Faulty) -> None:
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch", topic="orders")

    assert await produce_to(faulty.broker, ("orders", 0)) == {("orders", 0): 0}
    answer = await faulty.broker.fetch(("payments", 0, 0))
    assert errors_of(answer) == {("payments", 0): 0}


async def test_lifting_all_leaves_none_and_lets_go_what_they_hold(faulty: Faulty) -> None:
    made = [faulty.add("delay", seconds=3600, api="produce"), faulty.add("slow", bytes_per_second=10)]
    assert faulty.injector.active() == [fault.id for fault in made]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce_to, faulty.broker, ("orders", 0))
        await trio.testing.wait_all_tasks_blocked()
        faulty.injector.lift_all()

    assert faulty.injector.active() == []


async def test_there_is_an_end_to_how_many_faults_can_be(faulty: Faulty) -> None:
    for _ in range(1000):
        faulty.add("delay", seconds=1)

    with pytest.raises(ValueError, match="1000 faults are active; lift some"):
        faulty.add("delay", seconds=1)


async def test_a_fault_of_the_process_before_is_lifted_already(faulty: Faulty) -> None:
    faulty.injector.lift(3)

    with pytest.raises(ValueError, match="unknown fault 3: faults end with the broker's process"):
        faulty.injector.describe(3)
