"""Clients that exceed their quotas: what Apache Kafka 2.0.1 answered to them, and when; recorded and live.

To record anew: python -m tests.books kafka-2.0.1 throttling --record
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import trio

from minibroker.broker.apis.client import Client
from tests.broker.conftest import MakeBroker
from tests.broker.peers import Peer
from tests.conformance.quotas import CONVERSATIONS, differences, fill, hold, recorded, set_quotas

RECORDED = recorded()
MAX_REQUEST_BYTES = 1 << 20


@pytest.fixture
async def connect(make_broker: MakeBroker, nursery: trio.Nursery) -> Callable[[], socket.socket]:
    """Connect to a broker without a process, whose time is jumped."""
    broker = make_broker()

    def connected() -> socket.socket:
        peer = Peer(
            broker.way.serve,
            client=Client("127.0.0.1:50000", "127.0.0.1", 9092),
            timers=broker.timers,
            max_request_bytes=MAX_REQUEST_BYTES,
        )
        nursery.start_soon(peer.run)
        return peer.sock

    await set_quotas(connected)
    await fill(connected)
    return connected


@pytest.mark.time_jumps
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_a_throttled_client_gets_what_apache_kafka_answered(
    connect: Callable[[], socket.socket], name: str
) -> None:
    assert differences(RECORDED[name], await hold(name, connect)) == []


def test_the_recording_has_throttled_answers_in_each_conversation() -> None:
    assert [name for name in CONVERSATIONS if max(event.throttle_ms for event in RECORDED[name]) < 300] == ["silent"]
    assert RECORDED["silent"][0].after_ms > 300
