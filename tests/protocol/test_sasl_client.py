"""The tokens of each mechanism of SASL, as a client sends them."""

from __future__ import annotations

import base64
import json
from unittest import mock

import pytest

from minibroker.protocol.sasl_client import LoginError, conversation, unsecured_token

# RFC 7677, section 3
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERDICT = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_has_the_user_and_the_password() -> None:
    assert next(conversation("PLAIN", "ann", "p=ä")) == "\0ann\0p=ä".encode()


def test_scram_is_that_of_its_rfc() -> None:
    with mock.patch("secrets.token_hex", return_value=NONCE):
        steps = conversation("SCRAM-SHA-256", "user", "pencil")
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
        steps = conversation("SCRAM-SHA-256", "user", "pencil")
        next(steps)
        with pytest.raises(LoginError, match=reason):
            steps.send(challenge)
            steps.send(verdict)


def test_scram_escapes_a_user() -> None:
    assert next(conversation("SCRAM-SHA-512", "a=b,c", "p")).startswith(b"n,,n=a=3Db=2Cc,r=")


def test_an_unsecured_token_names_its_user_for_an_hour() -> None:
    header, claims, signature = unsecured_token("ann").split(".")
    read = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (header, claims)]

    assert (read[0], read[1]["sub"], read[1]["exp"] - read[1]["iat"], signature) == ({"alg": "none"}, "ann", 3600, "")


def test_a_token_is_sent_as_it_is_given() -> None:
    assert next(conversation("OAUTHBEARER", "", "", lambda: "a.b.c")) == b"n,,\x01auth=Bearer a.b.c\x01\x01"
