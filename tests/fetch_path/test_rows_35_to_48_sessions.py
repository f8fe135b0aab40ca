"""Rows 40, 45 and 47 of kafka 2.0.1's fetch path: numbers of fetch sessions (KIP-227).

Other rows of sessions are conversations; what the cache does by itself is in tests/broker/test_fetch_sessions.py.
"""

from __future__ import annotations

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker()
    await broker.create_topic("t")
    return broker


async def begun(broker: InMemoryBroker, count: int) -> list[int]:
    """The ids of so many sessions, 0 where there was no room."""
    return [(await broker.fetch(("t", 0, 0), session_epoch=0)).session_id for _ in range(count)]


async def test_row_40_the_largest_epoch_is_followed_by_1(broker: InMemoryBroker) -> None:
    (session_id,) = await begun(broker, 1)
    session = broker.parts.fetch_sessions.get(session_id)
    assert session is not None
    session.epoch = 2**31 - 1

    answers = [await broker.fetch(session_id=session_id, session_epoch=epoch) for epoch in (2**31 - 1, 1, 2)]

    assert [each.error_code for each in answers] == [ErrorCode.NONE] * 3


async def test_row_45_row_47_a_thousand_sessions_have_ids_in_no_order(broker: InMemoryBroker) -> None:
    *ids, refused = await begun(broker, 1001)

    assert (refused, len(set(ids))) == (0, 1000)
    assert all(0 < each < 2**31 for each in ids)
    assert ids != sorted(ids)
    assert max(ids) > 2**24  # a thousand numbers of 31 bits that are all below would be no accident
