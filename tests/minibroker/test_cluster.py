"""The commands' door to a cluster, where no Kafka broker is at the other end: each case is one line, told soon."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from minibroker.admin.outcomes import explained
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import CONNECT_SECONDS, first_reachable
from minibroker.cli.app import main
from minibroker.client.address import Address, parse_address
from minibroker.client.errors import ClientError, Unsupported, error_name
from minibroker.protocol.errors import ErrorCode, KafkaError

CORRELATION_ID = b"\xff\xff\xff\xff"
TOLD_WITHIN_SECONDS = 20.0  # on a busy machine; 3 s on a quiet one


def complaint_about(capsys: pytest.CaptureFixture[str], bootstrap: str) -> str:
    """The one line of `topics list`, which must come soon."""
    started = time.monotonic()
    status = main(["topics", "list", "-b", bootstrap])
    assert time.monotonic() - started < TOLD_WITHIN_SECONDS
    printed = capsys.readouterr()
    assert (status, printed.out) == (1, "")
    (line,) = printed.err.splitlines()
    return line


def test_a_missing_broker_is_an_error_that_names_serve(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        line = complaint_about(capsys, address)

    assert address in line
    assert "minibroker serve" in line


@pytest.mark.slow
def test_an_unknown_host_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown host in no-such-host.invalid:9092" in complaint_about(capsys, "no-such-host.invalid:9092")


@pytest.mark.slow
def test_a_listener_that_never_answers_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        line = complaint_about(capsys, f"127.0.0.1:{silent.getsockname()[1]}")

    assert "no Kafka broker answers" in line
    assert "wait until it has started" in line


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """A server that sends these bytes to everyone who asks and hangs up; its address.

    `CORRELATION_ID` in them stands for the one of the request.
    """

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                if asked := self.request.recv(1000):
                    self.request.sendall(answer.replace(CORRELATION_ID, asked[8:12]))

    # A thread for each, waited for by nobody: a client that gives up may stay connected without a word.
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads, server.block_on_close = True, False
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


NO_BROKERS = [
    pytest.param(b"", id="hangs up"),
    pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="a web server"),
    pytest.param(struct.pack(">i4shi", 10, CORRELATION_ID, 0, -5), id="an array of -5"),
    pytest.param(struct.pack(">i", 10), id="cut off"),
]
# Of a broker that serves no API, in a cluster without brokers: to ApiVersions, and to Metadata behind it.
ANSWERS = struct.pack(">i4shi", 10, CORRELATION_ID, 0, 0) + struct.pack(">iiiii", 16, 2, 0, 0, 0)


@pytest.mark.parametrize("answer", [*NO_BROKERS, pytest.param(None, id="silent"), pytest.param("absent", id="absent")])
def test_the_first_broker_that_answers_is_taken(answer: bytes | str | None) -> None:
    with socket.socket() as other, answering(ANSWERS) as there, ExitStack() as stack:
        other.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{other.getsockname()[1]}"
        if answer is None:
            other.listen()
        elif isinstance(answer, bytes):
            address = stack.enter_context(answering(answer))
        started = time.monotonic()
        for both in (f"{address},{there}", f"{there},{address}"):
            assert first_reachable(parse_bootstrap(both).addresses) == parse_address(there)
        assert time.monotonic() - started < CONNECT_SECONDS


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", [*NO_BROKERS, pytest.param(struct.pack(">i4shi", 10, b"none", 0, 0), id="another correlation id")]
)
def test_a_server_that_is_no_kafka_broker_is_an_error(capsys: pytest.CaptureFixture[str], answer: bytes) -> None:
    with answering(answer) as address:
        line = complaint_about(capsys, address)

    assert f"no Kafka broker answers in PLAINTEXT at {address}" in line
    assert "TLS" in line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT, "3000 ms"), "did not answer in time (3000 ms); see the broker's log"),
        (Unsupported("ListOffsets", "0.11"), "not support this request (ListOffsets); use Apache Kafka 0.11 or later"),
        (
            KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            "refused the request: CLUSTER_AUTHORIZATION_FAILED; the cluster's ACLs deny",
        ),
        (ClientError("reset\nby peer."), "(reset by peer); check that it runs"),
        (KafkaError(ErrorCode.NOT_CONTROLLER), "no controller now; try again"),
    ],
)
def test_a_later_failure_is_one_line_with_the_next_step(error: Exception, said: str) -> None:
    line = explained(error, Address("a-host", 9092))

    assert "a-host:9092" in line
    assert said in line


def test_addresses_are_read_and_written() -> None:
    assert parse_address("localhost:9092") == Address("localhost", 9092)
    assert parse_address("[::1]:9092") == Address("::1", 9092)
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert [
        parse_address(text, default_port=9092) for text in ("localhost", "10.0.0.7", "[::1]", "::1", "kafka:9")
    ] == [
        Address("localhost", 9092),
        Address("10.0.0.7", 9092),
        Address("::1", 9092),
        Address("::1", 9092),
        Address("kafka", 9),
    ]
    for wrong in ("", "localhost:", ":9092", "localhost:0", "localhost:65536", "localhost:x", "9092", "SSL://a:9092"):
        for default_port in (None, 9092):
            with pytest.raises(ValueError, match="HOST:PORT"):
                parse_address(wrong, default_port=default_port)
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address("localhost")


def test_a_code_that_came_after_us_has_a_name() -> None:
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(999) == "error 999"
