"""Faults that a test leaves behind: the next one has none of them."""

from __future__ import annotations

import pytest

from minibroker import Broker
from tests.minibroker.sessions import run
from tests.minibroker.sessions import session as session

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_the_next_test_of_a_session_has_none(session: pytest.Pytester) -> None:
    session.makeini("[pytest]\nminibroker_control = true\n")
    session.makepyfile("""
        def test_one(minibroker):
            minibroker.faults.disconnect()

        def test_two(minibroker, minibroker_topic):
            assert minibroker.faults.active() == []
    """)

    result = run(session)

    result.assert_outcomes(passed=2)


def test_a_reset_ends_them_and_is_not_struck_itself() -> None:
    with Broker(control=True) as broker:
        fault = broker.faults.disconnect()

        broker.reset()

        assert (fault.is_active, fault.count) == (False, 0)


def test_a_block_ends_well_though_its_broker_was_killed() -> None:
    with Broker(control=True) as broker, broker.faults.delay(1):
        broker.kill()
