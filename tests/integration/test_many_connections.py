"""Many connections at once: what they may take in all is bounded, and others are served."""

from __future__ import annotations

import contextlib
import re
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.apache_kafka import ApacheKafka
from minibroker.conformance.raw_connection import Closed, RawConnection
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import ApiKey
from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.conftest import StartMinibroker
from tests.integration.hostile_batches import valid
from tests.integration.topics import create_topic
from tests.integration.wire import connection_to, read, write

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


LOG_BATCHES = 40
READERS = 10  # of the log as it is, and as many of its records in an old format
IDLE = 300


def test_readers_that_do_not_read_take_little_and_others_are_served(start_minibroker: StartMinibroker) -> None:
    """Each has asked for all of a log; the broker keeps a piece of it for those whose records are converted."""
    broker = start_minibroker().wait_until_ready()
    create_topic(broker, "large")
    everything = fetch_body(("large", 0, 0), max_partition_bytes=1 << 30, max_bytes=1 << 30)
    batch = valid(size_bytes=MB // 4)
    with ExitStack() as clients:
        other = clients.enter_context(connection_to(broker.bootstrap))
        for _ in range(LOG_BATCHES):
            assert write(other, "large", batch).error_code == 0
        idle = [clients.enter_context(connection_to(broker.bootstrap)) for _ in range(IDLE)]
        before = broker.resident_bytes()
        slow = [clients.enter_context(connection_to(broker.bootstrap)) for _ in range(2 * READERS)]
        for number, reader in enumerate(slow):
            reader.send(frame(ApiKey.FETCH, 1 if number % 2 else 4, **everything))

        assert all(len(read(other, "large", offset=3).records) >= len(batch) for _ in range(20))
        assert all(each.ask_for_versions().error_code == 0 for each in idle)

        assert peak_bytes(broker) - before < READERS * 4 * MB + SLACK_BYTES
        answer = slow[0].receive_frame()
        assert answer is not Closed and len(answer) > LOG_BATCHES * len(batch)


ATTEMPTED = 20_000
CLIENT_PROCESSES = 4  # none may have too many descriptors itself
OWN_DESCRIPTORS = 500  # of the broker
MOST_BYTES = 150 * MB
# Opens connections, asks on each, prints how many were answered and how many closed, and keeps them to its input's end.
ASKER = """
import resource, socket, sys

host, port, count, request = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
answered = closed = 0
clients = [socket.create_connection((host, port), 60) for _ in range(count)]
for client in clients:
    try:
        client.sendall(request)
        is_answered = bool(client.recv(4))
    except ConnectionError:
        is_answered = False
    answered += is_answered
    closed += not is_answered
print(answered, closed, flush=True)
sys.stdin.read()
"""


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.nightly
def test_of_20000_connections_each_is_served_or_closed_and_others_go_on(start_minibroker: StartMinibroker) -> None:
    broker = start_minibroker().wait_until_ready()
    limit, _ = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    request = frame(ApiKey.API_VERSIONS, 0)
    command = [sys.executable, "-c", ASKER, broker.host, str(broker.port)]
    command += [str(ATTEMPTED // CLIENT_PROCESSES), request.hex()]
    with connection_to(broker.bootstrap) as early, ExitStack() as clients:
        askers = [
            clients.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(CLIENT_PROCESSES)
        ]
        told = [first_line(asker).split() for asker in askers]

        answered, closed = (sum(map(int, each)) for each in zip(*told, strict=True))
        assert answered + closed == ATTEMPTED
        assert answered >= min(ATTEMPTED, limit) - OWN_DESCRIPTORS
        assert all(early.ask_for_versions().error_code == 0 for _ in range(10))
        assert peak_bytes(broker) < MOST_BYTES

        for asker in askers:
            asker.communicate()
    with connection_to(broker.bootstrap) as late:
        assert late.ask_for_versions().error_code == 0
