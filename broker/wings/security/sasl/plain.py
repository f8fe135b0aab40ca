"""PLAIN (RFC 4616): `authzid NUL user NUL password`, as kafka 2.0.1 PlainSaslServer.

Unlike 2.0.1, a NUL behind the password is not accepted. The time of a comparison depends on what the client sends
alone: not on the stored password, nor on whether the user exists.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from minibroker.broker.wings.security.sasl.mechanism import (
    OTHER_AUTHORIZATION_ID,
    AuthenticationFailedError,
    invalid_credentials,
)

PLAIN = "PLAIN"
INVALID_USER_OR_PASSWORD = "Authentication failed: Invalid username or password"


class PlainAccounts:
    """The users of a listener: only salted hashes of their passwords stay in memory."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._salt = secrets.token_bytes(16)
        self._hashes = {user: self._hash(password) for user, password in passwords.items()}
        self._of_none = secrets.token_bytes(len(self._hash("")))

    def is_password(self, user: str, password: str) -> bool:
        """Return whether it is the user's password; an unknown user costs the same time as a known one."""
        stored = self._hashes.get(user, self._of_none)
        return hmac.compare_digest(stored, self._hash(password))

    def _hash(self, password: str) -> bytes:
        return hashlib.blake2b(password.encode("utf-8", "surrogateescape"), key=self._salt).digest()


class PlainServer:
    """One login."""

    expires_ms: int | None = None

    def __init__(self, accounts: PlainAccounts) -> None:
        self._accounts = accounts
        self.user: str | None = None

    def respond(self, token: bytes) -> bytes:
        parts = token.decode("utf-8", "surrogateescape").split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise invalid_credentials(PLAIN)
        authorization_id, user, password = parts
        if not self._accounts.is_password(user, password):
            raise AuthenticationFailedError(INVALID_USER_OR_PASSWORD)
        if authorization_id not in ("", user):
            raise AuthenticationFailedError(OTHER_AUTHORIZATION_ID)
        self.user = user
        return b""
