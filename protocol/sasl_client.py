"""The client's side of a login by SASL: for commands, and for a broker that logs in to another one."""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from collections.abc import Callable, Generator

from minibroker.protocol.scram import BY_NAME as SCRAM_MECHANISMS
from minibroker.protocol.scram import ScramMechanism, salted_password

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
ITERATIONS_MAX = 1_000_000  # a broker must not keep us busy
NONCE_BYTES = 24
TOKEN_SECONDS = 3600

Conversation = Generator[bytes, bytes, None]


class LoginError(Exception):
    """Why the broker is not for this client: a clause without a period, and without the next step."""


def conversation(mechanism: str, user: str, password: str, token: Callable[[], str] | None = None) -> Conversation:
    """The tokens to send; it is sent the broker's answers. Raises LoginError.

    `token` makes a token for OAUTHBEARER; by default an unsecured one of the user.
    """
    if mechanism == PLAIN:
        return plain(user, password)
    if mechanism in SCRAM_MECHANISMS:
        return scram(SCRAM_MECHANISMS[mechanism], user, password)
    return bearer(token() if token is not None else unsecured_token(user))


def plain(user: str, password: str) -> Conversation:
    """RFC 4616."""
    yield b"\0".join((b"", user.encode(), password.encode()))


def scram(mechanism: ScramMechanism, user: str, password: str) -> Conversation:
    """RFC 5802, without channel binding."""
    nonce = secrets.token_hex(NONCE_BYTES).encode()
    first = b"n=" + user.replace("=", "=3D").replace(",", "=2C").encode() + b",r=" + nonce
    answer = yield b"n,," + first
    fields = dict(part.split(b"=", 1) for part in answer.split(b",") if b"=" in part)
    try:
        salt, iterations = base64.b64decode(fields[b"s"]), int(fields[b"i"])
        final = b"c=biws,r=" + fields[b"r"]
    except (KeyError, ValueError):
        raise LoginError("its SCRAM challenge cannot be read") from None
    if not fields[b"r"].startswith(nonce) or not 0 < iterations <= ITERATIONS_MAX:
        raise LoginError("its SCRAM challenge is not for this client")
    salted = salted_password(mechanism, password, salt, iterations)
    client_key = mechanism.hmac(salted, b"Client Key")
    signed = b",".join((first, answer, final))
    signature = mechanism.hmac(mechanism.hash(client_key), signed)
    proof = bytes([a ^ b for a, b in zip(client_key, signature, strict=True)])
    verdict = yield final + b",p=" + base64.b64encode(proof)
    expected = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
    if not hmac.compare_digest(verdict, b"v=" + base64.b64encode(expected)):
        raise LoginError("it does not know the password itself: its SCRAM signature is wrong")


def bearer(token: str) -> Conversation:
    """RFC 7628."""
    answer = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if answer:
        yield b"\x01"  # the broker explains in its answer to this
        raise LoginError(f"it does not take the token: {answer.decode(errors='replace')}")


def unsecured_token(user: str, seconds: int = TOKEN_SECONDS) -> str:
    """A token that only names its user, as Kafka's OAuthBearerUnsecuredLoginCallbackHandler makes it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + seconds})
    return ".".join([*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])
