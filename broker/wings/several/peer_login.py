"""The login of this broker at the listener of another one: TLS, SASL, both, or neither."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import NamedTuple

from minibroker.protocol.sasl_client import Conversation, conversation


class PeerLogin(NamedTuple):
    """`make_context` is None without TLS, and `mechanism` empty without SASL. `repr` shows no password."""

    make_context: Callable[[], ssl.SSLContext] | None = None
    mechanism: str = ""
    user: str = ""
    password: str = ""

    def conversation(self) -> Conversation:
        """The tokens that log this broker in."""
        return conversation(self.mechanism, self.user, self.password)

    def __repr__(self) -> str:
        return f"PeerLogin({self.mechanism} of {self.user})"


IN_PLAIN_TEXT = PeerLogin()
