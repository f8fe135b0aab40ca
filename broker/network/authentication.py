"""Authenticates the clients of a SASL listener, in front of the dispatch of their connections.

As kafka 2.0.1 SaslServerAuthenticator, with the re-authentication of KIP-368. States of a connection:

    FIRST         ApiVersions or SaslHandshake may come; an ApiVersions of an unknown version may come again
    HANDSHAKE     after ApiVersions, only SaslHandshake may come
    TOKENS        after SaslHandshake v0: tokens without a header, answered alike
    AUTHENTICATE  after SaslHandshake v1: SaslAuthenticate; another API is ILLEGAL_SASL_STATE, and ends the connection

Once the client has authenticated, its connection passes requests straight to `served_by`, unless its session has an end
(`connections.max.reauth.ms`). A failure that may be a guess of a password is answered, and its connection closed, only
after `connection.failed.authentication.delay.ms`; others are served meanwhile. A log line has the reason that the
client gets, and neither its tokens nor its user.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.failures import failure_of
from minibroker.broker.config.dynamic_settings import SETTINGS
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.network.connection import Connection, Dispatch, Encoded
from minibroker.broker.pending import Pending
from minibroker.broker.security.principal import USER, Principal
from minibroker.broker.security.sasl.mechanism import AuthenticationFailedError, SaslServer
from minibroker.broker.security.sasl.mechanisms import MakeServer, mechanisms_of
from minibroker.broker.security.sasl.users import ScramUsers
from minibroker.broker.time.timers import TimerLoop
from minibroker.protocol.api import API_TABLE, HEADER, Api, ApiKey, Request, decode_request, encode_response, joined
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse
from minibroker.purgatory.timing_wheel import TimerTask

logger = logging.getLogger(__name__)

# What the length of a request allocates before its bytes are there: ten thousand clients may send only lengths.
FIRST_ALLOCATION_BYTES = 1024
MIN_REAUTHENTICATION_INTERVAL_MS = 1000
# How long a client may take to close the connection after it was refused.
LINGER_MS = 200
SASL_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")

Wrap = Callable[[Dispatch, Callable[[], bool]], Dispatch]
Witness = Callable[[Request, Client, Any], None]


class State(Enum):
    FIRST = "first"
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    AUTHENTICATE = "authenticate"
    DONE = "done"
    FAILED = "failed"


class Authenticator:
    """Begins the authentication of the connections of one listener.

    `dispatch` answers their ApiVersions before; `served_by` all requests after. `watched_by` wraps what answers in
    between, for a tracer and a transcript, the innermost first: each gets a function that returns whether the next
    request is a token without a header. `witness` gets each answer with its request, before it is encoded.
    `max_session_ms` is by mechanism, 0 for ever.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, MakeServer],
        *,
        apis: Mapping[int, Api],
        dispatch: Dispatch,
        served_by: Dispatch,
        timers: TimerLoop,
        failure_delay_ms: int,
        max_session_ms: Mapping[str, int],
        max_token_bytes: int,
        max_request_bytes: int,
        watched_by: Sequence[Wrap] = (),
        witness: Witness | None = None,
    ) -> None:
        self.mechanisms = mechanisms
        self.apis = apis
        self.dispatch = dispatch
        self.served_by = served_by
        self.timers = timers
        self.failure_delay_ms = failure_delay_ms
        self.max_session_ms = max_session_ms
        self.max_token_bytes = max_token_bytes
        self.max_request_bytes = max_request_bytes
        self._watched_by = watched_by
        self._witness = witness

    def guard(self, connection: Connection) -> None:
        """Let no request of a new connection through until its client has authenticated."""
        self.authenticate(connection, None)

    def authenticate(self, connection: Connection, earlier: Session | None) -> Dispatch:
        """Authenticate from the next request on, after an `earlier` session or not; return what answers."""
        authentication = Authentication(self, connection, earlier)
        dispatch: Dispatch = authentication.dispatch
        for wrap in self._watched_by:
            dispatch = wrap(dispatch, authentication.expects_token)
        connection.serve_by(
            dispatch, max_request_bytes=self.max_token_bytes, first_allocation_bytes=FIRST_ALLOCATION_BYTES
        )
        return dispatch

    def encoded(self, request: Request, client: Client, body: Any) -> list[Any]:
        """Encode an answer."""
        if self._witness is not None:
            self._witness(request, client, body)
        return encode_response(request, body)


class Authentication:
    """The authentication of one connection."""

    def __init__(self, authenticator: Authenticator, connection: Connection, earlier: Session | None) -> None:
        self._authenticator = authenticator
        self._connection = connection
        self._earlier = earlier  # the session that this one follows
        self._state = State.FIRST if earlier is None else State.HANDSHAKE
        self._mechanism = ""
        self._server: SaslServer | None = None

    def expects_token(self) -> bool:
        """Whether the next request is a token without a header."""
        return self._state is State.TOKENS

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Answer one request. Raises, or the Pending fails with, KafkaProtocolError and CloseConnectionError."""
        if self._state is State.FAILED:
            raise CloseConnectionError("a request after its authentication failed")
        if self._state is State.TOKENS:
            return self._token(bytes(frame), client)
        self._refuse_unexpected(frame)
        request = decode_request(frame, self._authenticator.apis)
        client.client_id = request.client_id
        if request.api_key == ApiKey.SASL_AUTHENTICATE:
            return self._authenticate(request, client)
        if self._state is State.AUTHENTICATE:
            return self._refuse_other_api(request, client)
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(request, client)
        if request.body is not None:
            self._state = State.HANDSHAKE
        return self._authenticator.dispatch(frame, client)

    def _refuse_unexpected(self, frame: bytearray) -> None:
        """Before the handshake other APIs are not even decoded. Raises KafkaProtocolError."""
        if self._state is State.AUTHENTICATE or len(frame) < HEADER.size:
            return
        key = int.from_bytes(frame[:2], "big", signed=True)
        expected = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)[self._state is State.HANDSHAKE :]
        if key not in expected:
            name = ApiKey(key).name if key in self._authenticator.apis else f"API key {key}"
            raise KafkaProtocolError(f"{name} before authentication; {expected[-1].name} must come first")

    # -- SaslHandshake ----------------------------------------------------------------------------------------

    def _handshake(self, request: Request, client: Client) -> Encoded | Pending[Encoded]:
        enabled = self._authenticator.mechanisms
        make = enabled.get(request.body.mechanism)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if make is None else ErrorCode.NONE
        body = SaslHandshakeResponse(error_code=code, mechanisms=list(enabled))
        answer = self._authenticator.encoded(request, client, body)
        if make is None:
            return self._failed("the client asked for a SASL mechanism that is not enabled", joined(answer))
        self._mechanism = request.body.mechanism
        self._server = make()
        self._state = State.AUTHENTICATE if request.api_version else State.TOKENS
        return answer

    # -- tokens -----------------------------------------------------------------------------------------------

    def _token(self, token: bytes, client: Client) -> Encoded | Pending[Encoded]:
        try:
            answer = self._respond(token)
        except AuthenticationFailedError as failure:
            return self._failed(str(failure))
        self._complete(client)
        return [len(answer).to_bytes(4, "big") + answer]

    def _authenticate(self, request: Request, client: Client) -> Encoded | Pending[Encoded]:
        try:
            answer = self._respond(bytes(request.body.auth_bytes))
            lifetime_ms = self._complete(client)
        except AuthenticationFailedError as failure:
            body = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(failure), auth_bytes=b""
            )
            return self._failed(str(failure), joined(self._authenticator.encoded(request, client, body)))
        return self._authenticator.encoded(
            request,
            client,
            SaslAuthenticateResponse(
                error_code=ErrorCode.NONE, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms
            ),
        )

    def _respond(self, token: bytes) -> bytes:
        """Raises AuthenticationFailedError."""
        assert self._server is not None
        if self._earlier is not None and self._earlier.mechanism != self._mechanism:
            raise AuthenticationFailedError(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._earlier.mechanism}'"
            )
        return self._server.respond(token)

    def _complete(self, client: Client) -> int:
        """If the exchange has ended, serve the client as its user; return the session's lifetime in ms, 0 for ever.

        Raises AuthenticationFailedError.
        """
        server, authenticator = self._server, self._authenticator
        assert server is not None
        if server.user is None:
            return 0
        principal = Principal(USER, server.user)
        if self._earlier is not None and client.principal != principal:
            before, after = ".".join(client.principal), ".".join(principal)
            raise AuthenticationFailedError(f"Cannot change principals during re-authentication from {before}: {after}")
        self._state = State.DONE
        client.principal = principal
        lifetime_ms = authenticator.max_session_ms[self._mechanism]
        if lifetime_ms <= 0:
            self._connection.serve_by(authenticator.served_by, max_request_bytes=authenticator.max_request_bytes)
            return 0
        if server.expires_ms is not None:
            lifetime_ms = min(lifetime_ms, max(0, server.expires_ms - authenticator.timers.clock.wall_ms()))
        session = Session(authenticator, self._connection, self._mechanism, lifetime_ms, self._earlier)
        self._connection.serve_by(session.dispatch, max_request_bytes=authenticator.max_request_bytes)
        return lifetime_ms

    # -- failures ---------------------------------------------------------------------------------------------

    def _refuse_other_api(self, request: Request, client: Client) -> Encoded | Pending[Encoded]:
        api = API_TABLE[request.api_key]
        if request.body is None:  # ApiVersions of an unknown version is answered in version 0
            request = Request(api.key, 0, request.correlation_id, request.client_id, api.request())
        text = f"Unexpected Kafka request of type {api.key.name} during SASL authentication."
        # Kafka has no message in FindCoordinator.
        message = None if api.key is ApiKey.FIND_COORDINATOR else text
        body = failure_of(request, KafkaError(ErrorCode.ILLEGAL_SASL_STATE, message))
        answer = b"" if body is None else joined(self._authenticator.encoded(request, client, body))
        return self._failed(text, answer)

    def _failed(self, reason: str, answer: bytes = b"") -> Pending[Encoded]:
        """Answer and close, after the delay. Raises CloseConnectionError without both."""
        self._state = State.FAILED
        authenticator = self._authenticator
        if not answer and authenticator.failure_delay_ms <= 0:
            raise CloseConnectionError(f"authentication failed: {reason}")
        failure = Failure(self._connection, f"authentication failed: {reason}", answer, authenticator.timers)
        failure.begin(authenticator.failure_delay_ms)
        return failure.pending


class Session:
    """An authenticated session that ends: a request after its end closes the connection.

    A SaslHandshake begins the next session, once a second at most (as kafka 2.2 KafkaChannel).
    """

    def __init__(
        self,
        authenticator: Authenticator,
        connection: Connection,
        mechanism: str,
        lifetime_ms: int,
        earlier: Session | None,
    ) -> None:
        self._authenticator = authenticator
        self._connection = connection
        self.mechanism = mechanism
        self._now_ms = authenticator.timers.clock.monotonic_ms
        self._ends_ms = self._now_ms() + lifetime_ms
        self.last_renewed_ms: int | None = None if earlier is None else earlier.last_renewed_ms

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Raises, or the Pending fails with, KafkaProtocolError and CloseConnectionError."""
        now_ms = self._now_ms()
        if frame[:2] == SASL_HANDSHAKE and self._may_renew(now_ms):
            self.last_renewed_ms = now_ms
            return self._authenticator.authenticate(self._connection, self)(frame, client)
        if now_ms > self._ends_ms:
            raise CloseConnectionError("its session has expired; the client did not authenticate again")
        return self._authenticator.served_by(frame, client)

    def _may_renew(self, now_ms: int) -> bool:
        return self.last_renewed_ms is None or now_ms - self.last_renewed_ms >= MIN_REAUTHENTICATION_INTERVAL_MS


def authenticators(
    config: KafkaConfig,
    users: ScramUsers,
    timers: TimerLoop,
    *,
    apis: Mapping[int, Api],
    dispatch: Dispatch,
    served_by: Dispatch,
    watched_by: Sequence[Wrap] = (),
    witness: Witness | None = None,
) -> dict[str, Authenticator]:
    """Make that of each SASL listener, as `Authenticator`. Raises KafkaError if the store cannot be written."""
    users.prepare()
    return {
        listener: Authenticator(
            mechanisms_of(listener, config, users, timers.clock.wall_ms),
            apis=apis,
            dispatch=dispatch,
            served_by=served_by,
            timers=timers,
            failure_delay_ms=config.connection_failed_authentication_delay_ms,
            max_session_ms={
                mechanism: max_session_ms(config, listener, mechanism)
                for mechanism in config.sasl_listeners[listener].mechanisms
            },
            max_token_bytes=config.sasl_server_max_receive_size,
            max_request_bytes=config.socket_request_max_bytes,
            watched_by=watched_by,
            witness=witness,
        )
        for listener in config.sasl_listeners
    }


def max_session_ms(config: KafkaConfig, listener: str, mechanism: str) -> int:
    """The setting of the listener's mechanism, else of the listener, else of the broker."""
    from minibroker.broker.config.sasl import setting_of

    name = "connections.max.reauth.ms"
    text = config.given.get(setting_of(listener, mechanism, name))
    found: int = config.for_listener(listener, name) if text is None else SETTINGS[name].read(text)
    return found


class Failure(TimerTask):
    """Answers a failed authentication after a delay, and then closes the connection.

    Some clients (kafka-python 3) overlook an answer if the end of the connection comes with it: after an answer, the
    client has LINGER_MS to close the connection first.
    """

    def __init__(self, connection: Connection, reason: str, answer: bytes, timers: TimerLoop) -> None:
        super().__init__()
        self.pending: Pending[Encoded] = Pending(self)
        self._connection = connection
        self._reason = reason
        self._answer = answer
        self._timers = timers

    def begin(self, delay_ms: int) -> None:
        """Wait for the delay, if there is one."""
        if delay_ms > 0:
            self._wait(delay_ms)
        else:
            self.on_timeout()

    def on_timeout(self) -> None:
        if self.pending.is_known:
            self._connection.end(self._reason)
        elif self._answer:
            logger.info("%s: %s", self._connection.client, self._reason)
            self._wait(LINGER_MS)
            self.pending.resolve([self._answer])
        else:
            self.pending.fail(CloseConnectionError(self._reason))

    def abandon(self) -> None:
        self._timers.timer.cancel(self)

    def _wait(self, delay_ms: int) -> None:
        self._timers.timer.add(self, self._timers.clock.monotonic_ms() + delay_ms)
