"""How the toolkit logs in: the tokens of each mechanism, and what it concludes from a broker's refusals."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from unittest import mock

import pytest

from minibroker.any_cluster.login import (
    Login,
    LoginError,
    WrongMechanism,
    WrongProtocol,
    conversation,
    logged_in,
    unsecured_token,
)

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_has_the_user_and_the_password() -> None:
    assert next(conversation(Login("PLAIN", "ann", "p=ä"))) == "\0ann\0p=ä".encode()


def test_scram_is_that_of_its_rfc() -> None:
    with mock.patch("secrets.token_hex", return_value=NONCE):
        steps = conversation(Login("SCRAM-SHA-256", "user", "pencil"))
        assert next(steps) == b"n,,n=user,r=" + NONCE.encode()
        assert steps.send(CHALLENGE) == PROOF
        with pytest.raises(StopIteration):
            steps.send(VERDICT)


@pytest.mark.parametrize(
    ("challenge", "verdict", "reason"),
    [
        (b"r=another,s=W22Z,i=4096", b"", "not for this client"),
        (CHALLENGE.replace(b"i=4096", b"i=100000000"), b"", "not for this client"),
        (CHALLENGE.replace(b"i=4096", b"i=0"), b"", "not for this client"),
        (CHALLENGE.replace(b"i=4096", b"i=many"), b"", "cannot be read"),
        (b"e=other-error", b"", "cannot be read"),
        (CHALLENGE, b"", "its SCRAM signature is wrong"),
        (CHALLENGE, b"v=", "its SCRAM signature is wrong"),
        (CHALLENGE, VERDICT.replace(b"6", b"7"), "its SCRAM signature is wrong"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(challenge: bytes, verdict: bytes, reason: str) -> None:
    with mock.patch("secrets.token_hex", return_value=NONCE):
        steps = conversation(Login("SCRAM-SHA-256", "user", "pencil"))
        next(steps)
        with pytest.raises(LoginError, match=reason):
            steps.send(challenge)
            steps.send(verdict)


def test_scram_escapes_a_user() -> None:
    assert next(conversation(Login("SCRAM-SHA-512", "a=b,c", "p"))).startswith(b"n,,n=a=3Db=2Cc,r=")


def test_an_unsecured_token_names_its_user_for_an_hour() -> None:
    header, claims, signature = unsecured_token("ann").split(".")
    read = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims)]

    assert (read[0], read[1]["sub"], read[1]["exp"] - read[1]["iat"], signature) == ({"alg": "none"}, "ann", 3600, "")


def test_a_token_is_what_is_given() -> None:
    assert next(conversation(Login("OAUTHBEARER", token=lambda: "a.b.c"))) == b"n,,\x01auth=Bearer a.b.c\x01\x01"


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
def broker_that_answers(*answers: bytes) -> Iterator[socket.socket]:
    """A connection to one that answers each request with the next of these, and then closes."""
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with theirs:
            for each in answers:
                theirs.recv(1 << 16)
                theirs.sendall(each)

    thread = threading.Thread(target=serve)
    thread.start()
    with closing(ours):
        yield ours
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
    with broker_that_answers(*answers) as connection, pytest.raises(LoginError, match=reason) as raised:
        logged_in(connection, "broker", Login("PLAIN", "ann", "secret"))

    assert type(raised.value) is kind
    assert connection.fileno() == -1, "it is closed"


def test_a_broker_that_ends_the_connection_at_a_tls_handshake_does_not_speak_it() -> None:
    login = Login(tls=ssl.create_default_context())

    with broker_that_answers(b"") as connection, pytest.raises(WrongProtocol, match="it does not speak TLS"):
        logged_in(connection, "broker", login)


def test_a_login_that_is_taken_leaves_the_connection_open() -> None:
    with broker_that_answers(handshake(0, b"PLAIN"), authenticated(0, None)) as connection:
        assert logged_in(connection, "broker", Login("PLAIN", "ann", "secret")) is connection
        assert connection.fileno() != -1


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
        with broker_that_answers(*answers) as connection:
            logged_in(connection, "broker", Login("SCRAM-SHA-512", "ann", "secret"))
