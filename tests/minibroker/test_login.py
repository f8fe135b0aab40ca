"""How the toolkit logs in: the tokens of each mechanism, and what it concludes from a broker's refusals."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from minibroker.client.address import Address
from minibroker.client.connection import Connection, wait
from minibroker.client.login import Login, WrongMechanism, WrongProtocol
from minibroker.protocol.sasl_client import LoginError

NONCE = "rOprNGfwEbeRWgbNEkqO"


def test_a_login_does_not_show_its_password() -> None:
    assert "secret" not in repr(Login("PLAIN", "ann", "secret"))


def handshake(code: int, *mechanisms: bytes) -> bytes:
    return answer(struct.pack(">hi", code, len(mechanisms)) + b"".join(map(sized, mechanisms)))


def authenticated(code: int, message: bytes | None, data: bytes = b"") -> bytes:
    text = struct.pack(">h", -1) if message is None else sized(message)
    return answer(struct.pack(">h", code) + text + struct.pack(">i", len(data)) + data)


def sized(data: bytes) -> bytes:
    return struct.pack(">h", len(data)) + data


def answer(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 0) + body


@contextmanager
def broker_that_answers(login: Login, *answers: bytes) -> Iterator[Connection]:
    """A connection to one that answers each request with the next of these, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            theirs, _ = server.accept()
            with theirs:
                for each in answers:
                    theirs.recv(1 << 16)
                    theirs.sendall(each)
                theirs.recv(1 << 16)

        thread = threading.Thread(target=serve)
        thread.start()
        with Connection(Address(*server.getsockname()), login) as connection:
            until = time.monotonic() + 20
            while connection.error is None and not connection.is_open and time.monotonic() < until:
                wait([connection], until)
            yield connection
        thread.join()


@pytest.mark.parametrize(
    ("answers", "kind", "reason"),
    [
        ([], WrongProtocol, "first request of SASL"),
        ([b"\x15\x03\x03\x00\x02\x02\x50"], WrongProtocol, "it speaks TLS"),
        ([b"HTTP/1.1 400"], WrongProtocol, "not Kafka's"),
        ([handshake(34)], WrongProtocol, "no SASL"),
        (
            [handshake(33, b"SCRAM-SHA-512", b"GSSAPI")],
            WrongMechanism,
            "no mechanism PLAIN, only GSSAPI, SCRAM-SHA-512",
        ),
        ([handshake(-1)], LoginError, "error -1"),
        ([handshake(0, b"PLAIN"), authenticated(58, b"Wrong. ")], LoginError, "^Wrong$"),
        ([handshake(0, b"PLAIN"), authenticated(58, None)], LoginError, "error 58"),
        ([handshake(0, b"PLAIN")], LoginError, "closed the connection during authentication"),
    ],
)
def test_a_refusal_has_its_reason(answers: list[bytes], kind: type[LoginError], reason: str) -> None:
    with broker_that_answers(Login("PLAIN", "ann", "secret"), *answers) as connection:
        assert type(connection.error) is kind
        assert re.search(reason, str(connection.error))
        assert connection.fileno() == -1, "it is closed"


def test_a_broker_that_ends_the_connection_at_a_tls_handshake_does_not_speak_it() -> None:
    login = Login(tls=ssl.create_default_context())

    with broker_that_answers(login) as connection:
        assert type(connection.error) is WrongProtocol
        assert "it does not speak TLS" in str(connection.error)


def test_a_login_that_is_taken_leaves_the_connection_open() -> None:
    with broker_that_answers(Login("PLAIN", "ann", "secret"), handshake(0, b"PLAIN"), authenticated(0, None)) as opened:
        assert opened.is_open
        assert opened.error is None


def test_scram_takes_its_rounds() -> None:
    salt = base64.b64encode(b"salt")
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 4096)
    with mock.patch("secrets.token_hex", return_value=NONCE):
        first = b"n=ann,r=" + NONCE.encode()
        challenge = b"r=" + NONCE.encode() + b"more,s=" + salt + b",i=4096"
        signed = b",".join((first, challenge, b"c=biws,r=" + NONCE.encode() + b"more"))
        signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
        verdict = b"v=" + base64.b64encode(signature)
        answers = handshake(0, b"SCRAM-SHA-512"), authenticated(0, None, challenge), authenticated(0, None, verdict)
        with broker_that_answers(Login("SCRAM-SHA-512", "ann", "secret"), *answers) as connection:
            assert connection.error is None
            assert connection.is_open
