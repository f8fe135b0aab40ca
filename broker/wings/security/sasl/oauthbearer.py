"""OAUTHBEARER (RFC 7628), as kafka 2.0.1 OAuthBearerSaslServer: a token logs in the user that it names.

A refused token is answered with a JSON object, as the RFC has it; the client confirms with one byte, and then fails.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, Protocol

from minibroker.broker.wings.security.sasl.mechanism import AuthenticationFailedError, invalid_credentials
from minibroker.broker.wings.security.sasl.scram import unescaped

OAUTHBEARER = "OAUTHBEARER"
CONFIRMATION = b"\x01"
FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
BEARER = re.compile(rb"(?P<scheme>\w+) +(?P<token>[-_.a-zA-Z0-9]+)")


class Token(NamedTuple):
    """A valid token. `expires_ms` is by the wall clock."""

    user: str
    expires_ms: int


class InvalidTokenError(Exception):
    """The token is refused: `scope` is the missing one, if that is the reason. The message is for the log."""

    def __init__(self, reason: str, scope: str | None = None) -> None:
        super().__init__(reason)
        self.scope = scope


class TokenValidator(Protocol):
    """Checks the compact serialization of a token."""

    def validate(self, token: str) -> Token:
        """Raises InvalidTokenError."""


class OAuthBearerServer:
    """One login."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._refusal: str | None = None
        self.user: str | None = None
        self.expires_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        if self._refusal is not None and token == CONFIRMATION:
            raise AuthenticationFailedError(self._refusal)
        self._refusal = None
        match = FIRST.fullmatch(token)
        if match is None:
            raise invalid_credentials(OAUTHBEARER)
        bearer = BEARER.fullmatch(dict(pairs_of(match["pairs"])).get(b"auth", b""))
        if bearer is None or bearer["scheme"].lower() != b"bearer":
            raise invalid_credentials(OAUTHBEARER)
        try:
            valid = self._validator.validate(bearer["token"].decode())
        except InvalidTokenError as error:
            self._refusal = refusal_of(error)
            return self._refusal.encode()
        if match["authzid"] is not None and (authorization_id := unescaped(match["authzid"])) != valid.user:
            raise AuthenticationFailedError(
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different"
                f" from the token's principal name ({valid.user})"
            )
        self.user, self.expires_ms = valid
        return b""


def pairs_of(pairs: bytes) -> list[tuple[bytes, bytes]]:
    return [(key, value) for key, _, value in (pair.partition(b"=") for pair in pairs.split(b"\x01")[:-1])]


def refusal_of(error: InvalidTokenError) -> str:
    """The JSON object of RFC 7628."""
    if error.scope is None:
        return json.dumps({"status": "invalid_token"}, separators=(",", ":"))
    return json.dumps({"status": "insufficient_scope", "scope": error.scope}, separators=(",", ":"))
