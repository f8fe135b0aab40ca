"""A connection with TLS, over a real socket pair with a real client of OpenSSL: frames, records, ends, what is no TLS.

Time is jumped.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from minibroker.broker.wings.security import tls_connection
from minibroker.broker.wings.security.tls_connection import ALERT, PIECE_BYTES, pieces_of
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from tests.broker.tls_peers import Side, TlsClient, closings
from tests.broker.tls_peers import certificates as certificates
from tests.broker.tls_peers import connect as connect
from tests.broker.tls_peers import make_side as make_side
from tests.broker.tls_peers import side as side
from tests.requests import framed

pytestmark = pytest.mark.time_jumps


# -- Frames


@pytest.mark.parametrize(
    ("sizes", "piece_bytes"),
    [
        ([3] * 50, 1 << 20),
        *(([100, 900], piece_bytes) for piece_bytes in (1, 7, 4095, 4096, 4097)),
        *(([size] * 3, 1 << 20) for size in (1, 500, 4096, 16_384, 16_385, 300_000)),
    ],
)
async def test_requests_are_answered_in_order_in_whatever_pieces_they_come(
    side: Side, nursery: trio.Nursery, sizes: list[int], piece_bytes: int
) -> None:
    client = await side.client(max_request_bytes=1 << 20)
    frames = b"".join(framed(bytes([number]) * size) for number, size in enumerate(sizes))
    client.tls.write(frames)

    nursery.start_soon(client.pass_on, piece_bytes)
    await trio.testing.wait_all_tasks_blocked()

    assert await client.receive(len(frames)) == frames


async def test_a_handshake_in_pieces_is_completed(side: Side) -> None:
    client = TlsClient(side.peer(), side.context)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()

    await client.pass_on(1)

    await client.shake_hands()


async def test_many_records_in_one_read_are_all_answered(side: Side) -> None:
    client = await side.client()
    for number in range(200):  # together longer than the receive buffer, and each a record
        client.tls.write(framed(b"%03d" % number))

    await client.pass_on()

    assert await client.receive(200 * 7) == b"".join(framed(b"%03d" % number) for number in range(200))


async def test_a_request_that_waited_is_answered(side: Side) -> None:
    pending: Pending[list[bytes]] = Pending()
    client = await side.client(lambda frame, client: pending)
    await client.send(b"waits")
    await trio.testing.wait_all_tasks_blocked()

    pending.resolve([framed(b"late")])

    assert await client.receive(8) == framed(b"late")


# -- Records of a file


@pytest.fixture
def records(tmp_path: Path) -> Iterator[RecordsFile]:
    path = tmp_path / "00.log"
    path.write_bytes(bytes(range(256)) * 4096)
    yield RecordsFile(path)


@pytest.mark.parametrize("size", [1, 8192, 8193, PIECE_BYTES, PIECE_BYTES + 1, (1 << 20) - 3])
async def test_records_leave_whole_between_other_bytes(side: Side, records: RecordsFile, size: int) -> None:
    client = await side.client(lambda frame, client: [b"head", FileSlice(records, 3, size), b"tail"])
    content = records.path.read_bytes()[3 : 3 + size]

    await client.send(b"fetch", b"fetch")

    assert await client.receive(2 * (len(content) + 8)) == (b"head" + content + b"tail") * 2


@pytest.mark.pure
async def test_a_slow_client_makes_the_broker_read_ahead_a_few_pieces_only(
    side: Side, records: RecordsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(chunks: Any) -> Iterator[bytes | memoryview]:
        for piece in pieces_of(chunks):
            read.append(len(piece))
            yield piece

    monkeypatch.setattr(tls_connection, "pieces_of", counted)
    client = await side.client(lambda frame, client: [FileSlice(records, 0, 1 << 20)] * 10)

    await client.send(b"fetch")
    await trio.testing.wait_all_tasks_blocked()

    assert 0 < sum(read) < 1 << 20
    assert max(read) <= PIECE_BYTES
    assert await client.receive(10 << 20) == records.path.read_bytes() * 10


async def test_a_log_file_that_was_cut_off_ends_the_connection_only(
    side: Side, records: RecordsFile, caplog: pytest.LogCaptureFixture
) -> None:
    # Its last 64 KiB and what is not there: a full socket would have no room for TLS's own end.
    client = await side.client(lambda frame, client: [FileSlice(records, (1 << 20) - 65536, 2 << 20)])

    await client.send(b"fetch")

    assert len(await client.receive(2 << 20)) <= 65536
    assert "read 0 of" in caplog.text


async def test_a_response_without_records_leaves_in_pieces(side: Side) -> None:
    answer = bytes(range(256)) * 4096
    client = await side.client(lambda frame, client: [answer])

    await client.send(b"describe")

    assert await client.receive(len(answer)) == answer
    assert max(map(len, pieces_of([answer]))) == PIECE_BYTES


async def test_a_throttled_response_arrives_whole_and_late(side: Side) -> None:
    pending: Pending[Any] = Pending()
    client = await side.client(lambda frame, client: pending)
    began = trio.current_time()

    await client.send(b"slowly")
    await trio.testing.wait_all_tasks_blocked()
    pending.resolve(ThrottledResponse([b"x" * 1000], 100, trio.Event()))

    assert await client.receive(1000) == b"x" * 1000
    assert 9 <= trio.current_time() - began <= 11


# -- Ends


@pytest.mark.parametrize("in_order", [True, False])
async def test_requests_before_a_client_closed_its_side_are_answered(side: Side, in_order: bool) -> None:
    large = b"x" * 50_000  # two of them are sent before the third request is served
    client = await side.client(lambda frame, client: [large])
    client.tls.write(framed(b"first") + framed(b"second") + framed(b"last"))
    if in_order:
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()

    await client.pass_on()
    client.sock.shutdown(socket.SHUT_WR)

    assert await client.receive(200_000) == large * 3


async def test_bytes_after_the_end_of_the_stream_are_ignored(side: Side) -> None:
    client = await side.client(max_request_bytes=1 << 20)
    client.tls.write(framed(b"last"))
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    await client.pass_on()

    client.sock.send(b"\x17\x03\x03\x00\x40" + bytes(64))

    assert await client.receive(100) == framed(b"last")


async def test_stopping_ends_the_stream_in_order(side: Side) -> None:
    peer = side.peer()
    client = TlsClient(peer, side.context)
    await client.shake_hands()
    await trio.testing.wait_all_tasks_blocked()

    peer.connection.stop()

    assert await client.receive(1) == b""  # else EOFError


async def test_a_connection_is_closed_after_its_last_bytes(side: Side) -> None:
    def refuse(frame: bytearray, client: Client) -> Any:
        raise CloseConnectionError("enough", b"bye")

    client = await side.client(refuse)

    await client.send(b"x")

    assert await client.receive(10) == b"bye"


async def test_a_client_that_is_gone_ends_its_connection(side: Side) -> None:
    peer = side.peer()
    client = TlsClient(peer, side.context)
    await client.shake_hands()

    client.sock.close()
    await trio.testing.wait_all_tasks_blocked()

    assert peer.has_ended.is_set()


# -- What is no TLS


@pytest.mark.parametrize(
    "first", [framed(b"\0\x12\0\0\0\0\0\1\0\1x"), b"GET / HTTP/1.0\r\n\r\n", bytes(range(128, 200))]
)
async def test_plaintext_gets_the_alert_of_kafka_and_one_line_in_the_log(
    side: Side, caplog: pytest.LogCaptureFixture, first: bytes
) -> None:
    caplog.set_level(logging.INFO)
    peer = side.peer()

    peer.sock.send(first)

    assert await peer.receive(100) == ALERT
    assert closings(caplog) == ["closing connection 1 of peer: the TLS handshake failed: it does not speak TLS"]


async def test_two_bytes_wait_for_the_others_until_the_connection_is_idle(
    side: Side, caplog: pytest.LogCaptureFixture, nursery: trio.Nursery
) -> None:
    caplog.set_level(logging.INFO)
    peer = side.peer(max_idle_ms=600_000)
    nursery.start_soon(peer.timers.run)
    peer.sock.send(b"\x16\x03")

    with trio.move_on_after(599):
        await peer.receive(1)
        raise AssertionError("closed before it was idle for long enough")

    assert await peer.receive(1) == b""
    assert closings(caplog) == ["closing connection 1 of peer: idle for 600000 ms"]


async def test_a_client_that_leaves_in_the_handshake_is_one_line_in_the_log(
    side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    peer, silent = side.peer(), side.peer()
    client = TlsClient(peer, side.context)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    await client.pass_on()

    peer.sock.shutdown(socket.SHUT_WR)
    silent.sock.shutdown(socket.SHUT_WR)  # has sent nothing: a look whether the port is open
    await trio.testing.wait_all_tasks_blocked()

    assert closings(caplog) == ["closing connection 1 of peer: it left during the TLS handshake"]
    assert silent.has_ended.is_set()


async def test_broken_records_end_the_connection_with_one_line(side: Side, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    client = await side.client()
    client.tls.write(framed(b"x" * 100))
    record = bytearray(client.outgoing.read())
    record[-1] ^= 1

    client.sock.send(record)

    with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
        await client.receive(1)
    await wait_all_tasks_blocked()  # the alert leaves before the line is logged
    assert closings(caplog) == ["closing connection 1 of peer: broken TLS (DECRYPTION_FAILED_OR_BAD_RECORD_MAC)"]


async def test_a_record_that_is_cut_off_is_no_request(side: Side) -> None:
    client = await side.client(lambda frame, client: pytest.fail("half a request was served"))
    client.tls.write(framed(b"x" * 100))

    client.sock.send(client.outgoing.read()[:-1])
    client.sock.shutdown(socket.SHUT_WR)

    assert await client.receive(1) == b""
