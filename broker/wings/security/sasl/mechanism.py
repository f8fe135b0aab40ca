"""A mechanism of SASL as a connection uses it: tokens in, tokens out, at the end a user.

Pure: no socket, no clock of its own. One object authenticates one connection once.
"""

from __future__ import annotations

from typing import Protocol


class AuthenticationFailedError(Exception):
    """A client has not authenticated. The message is for the client: Kafka's, without a secret or a user's name."""


class SaslServer(Protocol):
    """The server's side of one exchange."""

    @property
    def user(self) -> str | None:
        """The name of the user, once the exchange is complete."""

    @property
    def expires_ms(self) -> int | None:
        """The wall clock's time at which the user's token expires; None for a user without a token."""

    def respond(self, token: bytes) -> bytes:
        """Return the server's token for the client's. Raises AuthenticationFailedError."""


def invalid_credentials(mechanism: str) -> AuthenticationFailedError:
    """The failure of everything that need not be explained to a client."""
    text = f"Authentication failed due to invalid credentials with SASL mechanism {mechanism}"
    return AuthenticationFailedError(text)


OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"
