"""The credentials of a client, and why a broker does not take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minibroker.protocol.sasl_client import LoginError

if TYPE_CHECKING:
    import ssl


class NotTrusted(LoginError):
    """The broker's certificate is not trusted, or not for this host."""


class CertificateRefused(LoginError):
    """The broker ends the connection once it has, or lacks, the client's certificate."""


class WrongProtocol(LoginError):
    """The listener has another security protocol, or it is no broker's."""


class WrongMechanism(LoginError):
    """The listener has other mechanisms."""


@dataclass(frozen=True)
class Login:
    """The credentials of a client: `tls` for a TLS listener, the rest for one with SASL, by its mechanism.

    `token` makes a token for OAUTHBEARER; by default an unsecured one of the user.
    """

    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)


PLAINTEXT = Login()
