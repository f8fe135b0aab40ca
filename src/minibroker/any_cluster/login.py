"""Gets a connection into a secured broker: TLS, then SASL. Where the broker refuses, LoginError has its reason.

For administration between tests, and for the command: a client library tries a wrong password again until its time is
over, and then gives no reason.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.sasl_client import LoginError, conversation

if TYPE_CHECKING:
    import ssl

CLIENT_ID = "minibroker-login"
SIZE_BYTES = 4
ANSWER_MAX_BYTES = 1 << 20
TLS_ALERT = b"\x15\x03"
# A broker whose listener has no TLS takes the first message for a request, and closes the connection.
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")


class NotTrusted(LoginError):
    """The broker's certificate is not trusted, or not for this host."""


class CertificateRefused(LoginError):
    """The broker ends the connection once it has, or lacks, the client's certificate."""


class WrongProtocol(LoginError):
    """The listener has another security protocol."""


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


def logged_in(connected: socket.socket, host: str, login: Login) -> socket.socket:
    """The connection to send requests over, in place of the one given, which is closed after a failure.

    Raises LoginError, and OSError.
    """
    with ExitStack() as on_error:
        on_error.enter_context(connected)
        if login.tls is not None:
            connected = on_error.enter_context(encrypted(connected, host, login.tls))
        if login.mechanism:
            authenticate(connected, login)
        elif login.tls is not None:
            look_for_refusal(connected)
        on_error.pop_all()
    return connected


def encrypted(connected: socket.socket, host: str, context: ssl.SSLContext) -> socket.socket:
    import ssl

    try:
        return context.wrap_socket(connected, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise NotTrusted(f"its certificate is not trusted: {error.verify_message.rstrip('.')}") from error
    except ssl.SSLError as error:
        # Python 3.11.2 takes a connection that ends, which is no TLS, for one that TLS has closed.
        if error.reason in NOT_TLS or isinstance(error, ssl.SSLZeroReturnError):
            raise WrongProtocol("it does not speak TLS") from error
        raise CertificateRefused(f"it ended the TLS handshake: {reason_of(error)}") from error
    except (ConnectionError, EOFError) as error:
        raise WrongProtocol("it does not speak TLS") from error


def look_for_refusal(connected: socket.socket) -> None:
    """In TLS 1.3 a broker refuses a client's certificate after the handshake, with its first answer."""
    import ssl

    try:
        ask(connected, ApiKey.METADATA, 1, topics=[])
    except ssl.SSLError as error:
        raise CertificateRefused(f"it refused the connection: {reason_of(error)}") from error
    except (ConnectionError, EOFError) as error:
        raise WrongProtocol("it closes the connection at a request without SASL") from error


def reason_of(error: ssl.SSLError) -> str:
    return (error.reason or "no reason").replace("_", " ").lower()


def authenticate(connected: socket.socket, login: Login) -> None:
    """SaslHandshake, then tokens in SaslAuthenticate until the mechanism is done."""
    try:
        answer = ask(connected, ApiKey.SASL_HANDSHAKE, 1, mechanism=login.mechanism)
    except (ConnectionError, EOFError) as error:
        raise WrongProtocol("it closed the connection at the first request of SASL") from error
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise WrongProtocol("its listener has no SASL")
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise WrongMechanism(f"it has no mechanism {login.mechanism}, only {', '.join(sorted(answer.mechanisms))}")
    if answer.error_code != ErrorCode.NONE:
        raise LoginError(f"it answered SaslHandshake with error {answer.error_code}")
    steps = conversation(login.mechanism, login.user, login.password, login.token)
    token = next(steps)
    while True:
        try:
            answer = ask(connected, ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token)
        except (ConnectionError, EOFError) as error:
            raise LoginError("it closed the connection during authentication") from error
        if answer.error_code != ErrorCode.NONE:
            raise LoginError((answer.error_message or "").strip(" .") or f"error {answer.error_code}")
        try:
            token = steps.send(bytes(answer.auth_bytes))
        except StopIteration:
            return


def ask(connected: socket.socket, api_key: ApiKey, version: int, **body: Any) -> Any:
    """The answer. Raises EOFError when the connection ends, WrongProtocol for bytes that are none."""
    connected.sendall(encode_request(api_key, version, 0, CLIENT_ID, API_TABLE[api_key].request(**body)))
    size = received(connected, SIZE_BYTES)
    if size.startswith(TLS_ALERT):
        raise WrongProtocol("it speaks TLS")
    if not SIZE_BYTES <= (length := int.from_bytes(size)) <= ANSWER_MAX_BYTES:
        raise WrongProtocol("its answer is not Kafka's")
    try:
        return decode_response(api_key, version, received(connected, length))[1]
    except KafkaProtocolError as error:
        raise WrongProtocol("its answer is not Kafka's") from error


def received(connected: socket.socket, count: int) -> bytes:
    """Raises EOFError."""
    data = b""
    while len(data) < count:
        more = connected.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data
