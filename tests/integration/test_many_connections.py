"""Many connections at once: what they may take in all is bounded, and others are served."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.apache_kafka import ApacheKafka
from minibroker.conformance.raw_connection import Closed, RawConnection
from tests.integration.brokers import BrokerProcess, Minibroker

MB = 1_000_000
ANNOUNCED_BYTES = 10 * MB
QUEUED_BYTES = 2 * ANNOUNCED_BYTES  # overdrawn by the last one
CLIENTS = 15
SLACK_BYTES = 15 * MB
BOUNDED = {"socket.request.max.bytes": ANNOUNCED_BYTES, "queued.max.request.bytes": QUEUED_BYTES}


@pytest.fixture(params=["kafka", "minibroker"])
def bounded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that bounds the bytes of requests: Apache Kafka, which proves the test right, and minibroker."""
    if request.param == "kafka":
        with ApacheKafka(request.getfixturevalue("jars"), tmp_path, settings=BOUNDED) as kafka:
            yield kafka
        return
    broker = Minibroker(tmp_path, settings=BOUNDED)
    try:
        yield broker.wait_until_ready()
    finally:
        broker.kill()


def peak_bytes(broker: BrokerProcess) -> int:
    """The most memory that the process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def send_but_the_end(broker: BrokerProcess) -> socket.socket:
    """Announce a request, and send as much of it as the broker takes, but for its last byte."""
    sock = socket.create_connection((broker.host, broker.port))
    sock.settimeout(0.3)
    with contextlib.suppress(TimeoutError):
        sock.sendall(struct.pack(">i", ANNOUNCED_BYTES) + bytes(ANNOUNCED_BYTES - 1))
    return sock


def test_requests_that_come_slowly_are_bounded_in_all_and_others_wait(bounded: BrokerProcess) -> None:
    with ExitStack() as clients:
        early, late = (clients.enter_context(RawConnection(bounded.host, bounded.port)) for _ in range(2))
        assert early.ask_for_versions().error_code == 0
        before = bounded.resident_bytes()
        slow = [clients.enter_context(send_but_the_end(bounded)) for _ in range(CLIENTS)]

        late.send(struct.pack(">i", ANNOUNCED_BYTES + 1))
        assert late.receive_frame() is Closed
        early.send(struct.pack(">ihhih", 10, 18, 0, 7, 0))
        assert not early.has_answer(within_seconds=1)

        for sock in slow:
            sock.close()
        assert early.receive_frame() is not Closed
    if isinstance(bounded, Minibroker):  # a JVM grows by itself
        assert peak_bytes(bounded) - before < QUEUED_BYTES + ANNOUNCED_BYTES + SLACK_BYTES
