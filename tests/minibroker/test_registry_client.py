"""The registry's clients, of commands and Spark jobs, without a registry; test_schema_registry_clients.py has one."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from minibroker.errors import BadValue, CommandFailed
from minibroker.registry_client import SchemaRegistry
from minibroker.spark_jobs.errors import JobFailed
from minibroker.spark_jobs.subjects import Subjects

RECORD = b"\0\0\0\0\1value"
USES: dict[str, Callable[[str], object]] = {
    "consume": lambda url: SchemaRegistry(url).decoded(RECORD),
    "produce": lambda url: SchemaRegistry(url).encoder("orders-value", None),
    "archive": lambda url: Subjects(url, ["orders-value"]).schemas(),
}


@contextmanager
def answering(answer: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """The address of a server that gives each request this answer, and the requests."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(65536))
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked
        thread.join()


def with_body(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_bytes_without_a_schema_stay_as_they_are() -> None:
    registry = SchemaRegistry("127.0.0.1:9")  # where none answers

    for data in (None, b"", b"\0", b"plain", b"{1234567}"):
        assert registry.decoded(data) == data


@pytest.mark.parametrize("use", USES)
def test_a_user_and_a_password_are_unquoted(use: str) -> None:
    with answering(with_body(b"null")) as (address, asked), pytest.raises((CommandFailed, JobFailed)):
        USES[use](f"http://a%3Ab:p%40ss@{address}")

    assert b"Authorization: Basic " + b64encode(b"a:b:p@ss") in asked[0]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "url", ["http://[::1", "http://127.0.0.1:port", "127.0.0.1:65536", "ftp://127.0.0.1", "http://"]
)
def test_a_url_of_no_registry_is_refused(use: str, url: str) -> None:
    with pytest.raises((BadValue, JobFailed), match="is not the address of a schema registry"):
        USES[use](url)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[]"),
        pytest.param(with_body(b"[" * 100_000), id="nested"),
        *map(with_body, (b"", b"\xff", b"null", b"7", b'"1"', b"[null]", b"[[1]]", b"{}", b'{"schema": 7, "id": "7"}')),
    ],
    ids=str,
)
def test_what_is_no_registry_is_named(use: str, answer: bytes) -> None:
    with answering(answer) as (address, _), pytest.raises((CommandFailed, JobFailed), match=f"http://{address}"):
        USES[use](address)


def test_a_path_that_http_does_not_allow_is_named() -> None:
    for use in USES.values():
        with pytest.raises((CommandFailed, JobFailed), match="no schema registry answers at"):
            use("http://127.0.0.1:9/a b")
