"""Rows 35-48 of kafka 2.0.1's fetch path at the wire: fetch sessions (KIP-227). Time is jumped.

What the cache of sessions does by itself is in tests/broker/test_fetch_sessions.py, also by row; what Apache Kafka
answered to whole conversations in tests/conformance/scripts/sessions.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.asking import LONG_MS, fill, rows, seconds, sizes
from tests.broker.conftest import InMemoryBroker, MakeBroker

pytestmark = pytest.mark.time_jumps

VERSIONS = (7, 8, 12)


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker()
    await broker.create_topic("t", 4)
    return broker


async def in_session(broker: InMemoryBroker, session_id: int, epoch: int, *asked: Any, **options: Any) -> Any:
    """Fetch in a session; `asked` are rows of `fetch`."""
    return await broker.fetch(*asked, session_id=session_id, session_epoch=epoch, **options)


async def begun(broker: InMemoryBroker, *partitions: int, **options: Any) -> int:
    """A session over these partitions of "t", from their starts; its id."""
    asked = [("t", partition, 0) for partition in partitions]
    answer = await in_session(broker, 0, 0, *asked, **options)
    assert answer.session_id > 0
    return int(answer.session_id)


def facts(answer: Any) -> tuple[int, int, list[tuple[str, int]]]:
    """Error, session id, and which partitions are in it."""
    return answer.error_code, answer.session_id, [(name, row.partition) for name, row in rows(answer)]


@pytest.mark.parametrize("version", range(9))
async def test_row_35_without_an_id_and_before_v7_nothing_is_kept(broker: InMemoryBroker, version: int) -> None:
    for _ in range(2):
        answer = await broker.fetch(("t", 0, 0), version=version)
        assert facts(answer) == (ErrorCode.NONE, 0, [("t", 0)])

    assert broker.parts.fetch_sessions.statistics().sessions == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_36_a_session_begins_with_its_answer_and_not_before(broker: InMemoryBroker, version: int) -> None:
    parked = await broker.park(in_session, broker, 0, 0, ("t", 0, 0), max_wait_ms=LONG_MS, version=version)
    while_it_waits = broker.parts.fetch_sessions.statistics().sessions

    await fill(broker, "t")

    assert (await parked.seen()).session_id > 0
    assert (while_it_waits, broker.parts.fetch_sessions.statistics().sessions) == (0, 1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_37_epoch_minus_one_ends_the_session_in_its_answer(broker: InMemoryBroker, version: int) -> None:
    session_id = await begun(broker, 0, 1, version=version)

    answer = await in_session(broker, session_id, -1, ("t", 1, 0), version=version)
    after = await in_session(broker, session_id, 1, version=version)

    assert facts(answer) == (ErrorCode.NONE, 0, [("t", 1)])
    assert after.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_row_38_a_full_fetch_ends_the_session_it_names_before_it_waits(broker: InMemoryBroker) -> None:
    session_id = await begun(broker, 0)

    await broker.park(in_session, broker, session_id, 0, ("t", 0, 0), max_wait_ms=LONG_MS)

    assert (await in_session(broker, session_id, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("session_id", "epoch"), [(0, 1), (77, 1), (77, 2**31 - 1), (-5, 3)])
async def test_row_39_an_id_that_is_not_known_is_an_error_of_the_whole_with_id_0_at_once(
    broker: InMemoryBroker, version: int, session_id: int, epoch: int
) -> None:
    took, answer = await seconds(
        in_session(broker, session_id, epoch, ("t", 0, 0), version=version, max_wait_ms=LONG_MS)
    )

    assert took == 0
    assert facts(answer) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_40_each_request_has_the_next_epoch_or_is_an_error(broker: InMemoryBroker, version: int) -> None:
    session_id = await begun(broker, 0, version=version)

    codes = [(await in_session(broker, session_id, epoch, version=version)).error_code for epoch in (2, 1, 1, 3, 2, 3)]

    wrong = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert codes == [wrong, ErrorCode.NONE, wrong, wrong, ErrorCode.NONE, ErrorCode.NONE]


async def test_row_40_the_largest_epoch_is_followed_by_1(broker: InMemoryBroker) -> None:
    session_id = await begun(broker, 0)
    session = broker.parts.fetch_sessions.get(session_id)
    assert session is not None
    session.epoch = 2**31 - 1

    codes = [(await in_session(broker, session_id, epoch)).error_code for epoch in (2**31 - 1, 1, 2)]

    assert codes == [ErrorCode.NONE] * 3


async def test_row_41_a_request_sent_twice_is_answered_once_and_once_with_an_error(broker: InMemoryBroker) -> None:
    session_id = await begun(broker, 0)
    first = await broker.park(in_session, broker, session_id, 1, max_wait_ms=LONG_MS)
    second = await broker.park(in_session, broker, session_id, 2, max_wait_ms=LONG_MS)

    await fill(broker, "t")

    assert facts(await first.seen()) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id, [])
    assert facts(await second.seen()) == (ErrorCode.NONE, session_id, [("t", 0)])


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_42_only_what_has_changed_is_answered(broker: InMemoryBroker, version: int) -> None:
    session_id = await begun(broker, 0, 1, 2, version=version)
    epochs = iter(range(1, 10))

    async def changed(*asked: Any) -> list[int]:
        answer = await in_session(broker, session_id, next(epochs), *asked, version=version)
        assert (answer.error_code, answer.session_id) == (ErrorCode.NONE, session_id)
        return [row.partition for _, row in rows(answer)]

    assert await changed() == []
    await fill(broker, "t", partition=1)
    assert await changed() == [1]  # records, and a high watermark
    assert await changed(("t", 1, 1)) == []  # told before
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(1, 1)])], timeout_ms=1000)
    assert await changed() == [1]  # a log start offset
    assert await changed(("t", 2, 99)) == [2]  # an error
    assert await changed() == [2]  # it stays one
    assert await changed(("t", 2, 0)) == [2]  # the answer has the high watermark again
    assert await changed() == []
    assert await changed(("t", 3, 0)) == [3]  # a new partition


async def test_row_42_a_session_with_nothing_new_waits_as_any_fetch(broker: InMemoryBroker) -> None:
    session_id = await begun(broker, 0, 1)
    parked = await broker.park(in_session, broker, session_id, 1, max_wait_ms=LONG_MS)

    batch = await fill(broker, "t", partition=1)

    answer = await parked.seen()
    assert (facts(answer), sizes(answer)) == ((ErrorCode.NONE, session_id, [("t", 1)]), [batch])


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_43_a_session_that_forgot_everything_ends_in_its_answer(broker: InMemoryBroker, version: int) -> None:
    session_id = await begun(broker, 0, 1, version=version)
    forget_first, forget_second = ({"forgotten_topics": [("t", [each])], "version": version} for each in (0, 1))

    told = [facts(await in_session(broker, session_id, 1, **forget_first))]
    told += [facts(await in_session(broker, session_id, 2, **forget_second))]
    told += [facts(await in_session(broker, session_id, 3, version=version))]

    gone = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert told == [(ErrorCode.NONE, session_id, []), (ErrorCode.NONE, 0, []), (gone, 0, [])]


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_44_partitions_take_turns_when_not_all_have_room(broker: InMemoryBroker, version: int) -> None:
    for partition in (2, 0, 1):
        batch = await fill(broker, "t", partition=partition, batches=9)
    offsets = {0: 0, 1: 0, 2: 0}
    room = {"max_bytes": batch, "version": version}

    answer = await in_session(broker, 0, 0, *(("t", each, 0) for each in (2, 0, 1)), **room)
    firsts = []
    for epoch in range(1, 7):
        (read,) = [row for _, row in rows(answer) if len(row.records)]
        firsts.append(read.partition)
        offsets[read.partition] += 1
        asked = ("t", read.partition, offsets[read.partition])
        answer = await in_session(broker, answer.session_id, epoch, asked, **room)

    # The order of the request, then whoever was not answered last. The first answer has all, in their order.
    assert firsts == [2, 2, 0, 1, 2, 0]


async def test_row_45_a_thousand_sessions_and_no_more(broker: InMemoryBroker) -> None:
    ids = [(await in_session(broker, 0, 0, ("t", 0, 0))).session_id for _ in range(1001)]

    assert [session_id > 0 for session_id in ids] == [True] * 1000 + [False]


async def test_row_46_a_session_is_stale_after_two_minutes_and_makes_room(make_broker: MakeBroker) -> None:
    broker = make_broker(max_incremental_fetch_session_cache_slots=2)
    await broker.create_topic("t", 3)
    large = await begun(broker, 0, 1, 2)
    await trio.sleep(1)
    await begun(broker, 0)

    async def try_to_begin() -> int:
        return int((await in_session(broker, 0, 0, ("t", 0, 0), ("t", 1, 0))).session_id)

    await trio.sleep(118.999)
    too_early = await try_to_begin()
    await trio.sleep(0.002)
    in_time = await try_to_begin()

    assert (too_early, in_time > 0) == (0, True)
    assert broker.parts.fetch_sessions.get(large) is None  # the oldest, though it is the largest


async def test_row_47_ids_are_positive_and_in_no_order(broker: InMemoryBroker) -> None:
    ids = [await begun(broker, 0) for _ in range(50)]

    assert len(set(ids)) == 50
    assert all(0 < each < 2**31 for each in ids)
    assert ids != sorted(ids)
    assert max(ids) > 2**24  # 50 numbers of 31 bits that are all below would be no accident


async def test_row_48_a_session_in_constant_use_is_stale_two_minutes_after_it_began(make_broker: MakeBroker) -> None:
    broker = make_broker(max_incremental_fetch_session_cache_slots=1)
    await broker.create_topic("t")
    session_id = await begun(broker, 0)
    for epoch in range(1, 13):
        await trio.sleep(10.001)
        assert (await in_session(broker, session_id, epoch)).error_code == ErrorCode.NONE

    await begun(broker, 0)

    assert (await in_session(broker, session_id, 13)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
