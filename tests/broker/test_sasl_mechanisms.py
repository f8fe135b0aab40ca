"""The mechanisms of SASL, token by token, where the recorded conversations (`test_sasl_conversations.py`) do not reach.

Where 2.0.1 has a defect, the test's name begins with `unlike_kafka`.
"""

from __future__ import annotations

import base64
import gzip
import hmac
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.wings.security.sasl.mechanism import AuthenticationFailedError, SaslServer
from minibroker.broker.wings.security.sasl.plain import PlainAccounts, PlainServer
from minibroker.broker.wings.security.sasl.scram import ScramServer
from minibroker.protocol.api import decode_request, decode_response
from minibroker.protocol.scram import (
    BY_NAME,
    SCRAM_SHA_256,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)

GOLDEN = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-sasl-frames.jsonl.gz"

INVALID = "Authentication failed due to invalid credentials with SASL mechanism "


def outcome(server: SaslServer, *tokens: bytes) -> bytes | str:
    """The answer to the last token, or the message of the failure."""
    answer = b""
    try:
        for token in tokens:
            answer = server.respond(token)
    except AuthenticationFailedError as failure:
        assert server.user is None
        return str(failure)
    return answer


# -- PLAIN ----------------------------------------------------------------------------------------------------

ACCOUNTS = PlainAccounts({"carol": "carol-secret", "é": "ü", "dave": "carol-secret"})


def test_unlike_kafka_a_nul_behind_the_password_of_plain_is_refused() -> None:
    assert outcome(PlainServer(ACCOUNTS), b"\0carol\0carol-secret\0") == INVALID + "PLAIN"


def test_accounts_keep_no_password() -> None:
    assert b"carol-secret" not in repr(vars(ACCOUNTS)).encode()


# -- SCRAM ----------------------------------------------------------------------------------------------------

SALT = b"0123456789abcdef"
NONCE = b"ours"
CREDENTIAL = credential_of(SCRAM_SHA_256, salted_password(SCRAM_SHA_256, "hopper", SALT, 4096), SALT, 4096)
MADE_UP = ScramCredential(SALT, bytes(32), bytes(32), 4096)


def credential_for(mechanism: ScramMechanism, user: str) -> tuple[ScramCredential, bool]:
    return (CREDENTIAL, True) if user in ("grace", "b=o,b") else (MADE_UP, False)


def scram() -> ScramServer:
    return ScramServer(SCRAM_SHA_256, credential_for, lambda: NONCE)


def final(
    first: bytes,
    *,
    header: bytes = b"n,,",
    password: str = "hopper",
    nonce: bytes | None = None,
    channel: bytes | None = None,
    proof: bytes | None = None,
    extension: bytes = b"",
) -> bytes:
    """The client's final message to the server's first, made by the client's half of RFC 5802."""
    answered = scram().respond(first)
    salted = salted_password(SCRAM_SHA_256, password, SALT, 4096)
    client_key = SCRAM_SHA_256.hmac(salted, b"Client Key")
    rest = nonce if nonce is not None else answered.split(b",")[0][2:]
    without_proof = b"c=%b,r=%b%b" % (base64.b64encode(header) if channel is None else channel, rest, extension)
    said = first.removeprefix(header) + b"," + answered + b"," + without_proof
    signature = SCRAM_SHA_256.hmac(SCRAM_SHA_256.hash(client_key), said)
    made = bytes(a ^ b for a, b in zip(client_key, signature, strict=True)) if proof is None else proof
    return without_proof + b",p=" + base64.b64encode(made)


FIRST = b"n,,n=grace,r=abc"
SCRAM_INVALID = INVALID + "SCRAM-SHA-256"


def test_scram_with_an_extension_in_the_final_message() -> None:
    server = scram()

    outcome(server, FIRST, final(FIRST, extension=b",x=y"))

    assert server.user == "grace"


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (b"n,,n=b,o,r=abc", SCRAM_INVALID),
        (b"n,,n=\xff,r=abc", SCRAM_INVALID),
        (b"n,,n=grace,r=abc,x=y,m=x", SCRAM_INVALID),  # unlike kafka: a mandatory extension that is not known
        (b"n,,m=x,n=grace,r=abc", SCRAM_INVALID),
    ],
)
def test_scram_refuses_a_first_message(first: bytes, expected: str) -> None:
    assert outcome(scram(), first) == expected


def test_scram_takes_the_nonce_of_librdkafka_before_2_6_1() -> None:
    server = scram()

    outcome(server, FIRST, final(FIRST, nonce=b"abcabc" + NONCE))

    assert server.user == "grace"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"nonce": b"abcabcabc" + NONCE}, "the client's nonce three times"),
        ({"nonce": b"xyzabc" + NONCE}, "another client's nonce before what was sent"),
        ({"proof": bytes(32)}, "a proof of zeros"),
        ({"nonce": b"abc"}, "unlike kafka: the client's nonce alone"),
        ({"channel": b"biws="}, "base64 with a wrong padding"),
        ({"proof": bytes(33)}, "a long proof"),
    ],
)
def test_scram_refuses_a_final_message(changed: dict[str, Any], why: str) -> None:
    assert outcome(scram(), FIRST, final(FIRST, **changed)) == SCRAM_INVALID, why


@pytest.mark.parametrize("token", [b"", b"garbage", FIRST, b"c=biws,r=abcours", b"c=biws,r=abcours,p=", b"p=YWJj"])
def test_scram_refuses_a_message_that_is_no_final_one(token: bytes) -> None:
    assert outcome(scram(), FIRST, token) == SCRAM_INVALID


def test_a_made_up_credential_logs_in_no_user_even_by_its_own_keys() -> None:
    """A client that knew the keys of a made-up credential could compute a proof; it must not count."""
    server = ScramServer(SCRAM_SHA_256, lambda mechanism, user: (CREDENTIAL, False), lambda: NONCE)

    assert outcome(server, FIRST, final(FIRST)) == SCRAM_INVALID


def recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt") as lines:
        yield from map(json.loads, lines)


def tokens_of(frame: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """The client's and the server's token of a recorded frame; None for a failure."""
    request = bytes.fromhex(frame["request"])
    response = None if frame["response"] is None else bytes.fromhex(frame["response"])
    if frame["api"] == "token":
        return request, response
    sent = bytes(decode_request(bytearray(request)).body.auth_bytes)
    assert response is not None
    answer = decode_response(36, frame["version"], response)[1]
    return sent, None if answer.error_code else bytes(answer.auth_bytes)


def test_the_exchanges_of_apache_kafka_are_repeated_byte_by_byte() -> None:
    """The exchanges of SCRAM have the server's recorded nonce: user grace, password hopper."""
    salts = {"SCRAM-SHA-256": (b"0123456789abcdef", 4096), "SCRAM-SHA-512": (b"fedcba9876543210", 5000)}
    servers: list[SaslServer] = []
    checked = 0
    for frame in recorded():
        if frame["api"] == "SaslHandshake":
            request = decode_request(bytearray.fromhex(frame["request"]))
            mechanism = request.body.mechanism
            servers = []
        if frame["api"] not in ("token", "SaslAuthenticate") or frame["principal"] != "-":
            continue
        sent, expected = tokens_of(frame)
        if not servers:
            servers = [server_like(mechanism, salts, sent, expected)]
        answer = outcome(servers[0], sent)
        assert answer == expected or (expected is None and isinstance(answer, str)), frame
        checked += 1
    assert checked == 24


def server_like(mechanism: str, salts: dict[str, tuple[bytes, int]], sent: bytes, expected: bytes | None) -> SaslServer:
    if mechanism == "PLAIN":
        return PlainServer(PlainAccounts({"carol": "carol-secret", "erin": "erin-secret"}))
    assert expected is not None
    salt, iterations = salts[mechanism]
    hashes = BY_NAME[mechanism]
    credential = credential_of(hashes, salted_password(hashes, "hopper", salt, iterations), salt, iterations)
    client_nonce = sent.rpartition(b"r=")[2]
    nonce = expected.split(b",")[0].removeprefix(b"r=" + client_nonce)
    return ScramServer(hashes, lambda mechanism, user: (credential, True), lambda: nonce)


# -- time -----------------------------------------------------------------------------------------------------


def test_a_wrong_user_and_a_wrong_password_take_the_same_time() -> None:
    """The medians of many tries differ by less than the spread of either; a lookup that returned early would show."""
    known, unknown = b"\0carol\0wrong-password", b"\0nobod\0wrong-password"
    times: dict[bytes, list[int]] = {known: [], unknown: []}
    for _ in range(3000):
        for token, taken in times.items():
            server = PlainServer(ACCOUNTS)
            began = time.perf_counter_ns()
            outcome(server, token)
            taken.append(time.perf_counter_ns() - began)

    fast, slow = sorted(statistics.median(each) for each in times.values())

    assert slow < 1.25 * fast


def test_secrets_are_compared_in_constant_time() -> None:
    """No `==` on bytes in these modules: it returns at the first byte that differs."""
    folder = Path(__file__).parent.parent.parent / "broker" / "wings" / "security" / "sasl"
    for name in ("plain", "scram"):
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        compared = [line for line in text.splitlines() if " == " in line and "len(" not in line]
        assert compared == [], name
        assert hmac.compare_digest.__name__ in text
