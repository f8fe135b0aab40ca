"""The authentication of one connection as a state machine: requests and tokens in, answers out. It does no I/O.

As kafka 2.0.1 SaslServerAuthenticator, with the re-authentication of KIP-368. Its states:

    FIRST         ApiVersions or SaslHandshake may come; an ApiVersions of an unknown version may come again
    HANDSHAKE     after ApiVersions, only SaslHandshake may come
    TOKENS        after SaslHandshake v0: tokens without a header, answered alike
    AUTHENTICATE  after SaslHandshake v1: SaslAuthenticate; another API is ILLEGAL_SASL_STATE, and ends the connection
    DONE          every request is served, until the session ends (`connections.max.reauth.ms`). A SaslHandshake begins
                  the next session, once a second at most (as kafka 2.2 KafkaChannel)
    FAILED        a further request closes the connection
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from minibroker.broker.principal import USER, Principal
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.security.sasl.mechanism import AuthenticationFailedError, SaslServer
from minibroker.broker.wings.security.sasl.mechanisms import MakeServer
from minibroker.protocol.api import API_TABLE, HEADER, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.messages.security import SaslAuthenticateResponse, SaslHandshakeResponse

API_KEY_BYTES = 2
MIN_REAUTHENTICATION_INTERVAL_MS = 1000


class State(Enum):
    FIRST = "first"
    HANDSHAKE = "handshake"
    TOKENS = "tokens"
    AUTHENTICATE = "authenticate"
    DONE = "done"
    FAILED = "failed"


class LoginRules(NamedTuple):
    """The login that a listener asks of its clients. `max_session_ms` is by mechanism, 0 for ever."""

    mechanisms: Mapping[str, MakeServer]
    max_session_ms: Mapping[str, int]


class Failure(NamedTuple):
    """The client has not authenticated. `answer` is the body of its answer; or the answer has `error` in its fields;
    or there is none."""

    reason: str
    answer: Any = None
    error: KafkaError | None = None


class SessionEndedError(Exception):
    """A request that closes the connection: after a failure, or after the end of the session."""


class Login:
    """Feed it each frame: `admit` first, then `token` if it expects one, else `handle` with the decoded request."""

    def __init__(self, rules: LoginRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock
        self._state = State.FIRST
        self._mechanism = ""
        self._server: SaslServer | None = None
        self.principal: Principal | None = None  # once the client has authenticated
        self._first_mechanism = ""  # of its first session, which the later ones must have too
        self._ends_ms: int | None = None  # the session; None for never
        self._last_renewed_ms: int | None = None

    @property
    def expects_token(self) -> bool:
        """Return whether the next frame is a token without a header."""
        return self._state is State.TOKENS

    @property
    def is_done(self) -> bool:
        """Return whether the client has authenticated."""
        return self._state is State.DONE

    @property
    def is_over(self) -> bool:
        """Return whether the client has authenticated for ever."""
        return self._state is State.DONE and self._ends_ms is None

    def admit(self, frame: bytearray) -> None:
        """Let a request through; nothing but its API is decoded.

        Raises KafkaProtocolError for an API that may not come yet, SessionEndedError when none may come any more.
        """
        key = int.from_bytes(frame[:API_KEY_BYTES], "big", signed=True)
        if self._state is State.FAILED:
            raise SessionEndedError("a request after its authentication failed")
        if self._state is State.DONE:
            self._admit_to_session(key)
        elif self._state in (State.FIRST, State.HANDSHAKE):
            expected = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)[self._state is State.HANDSHAKE :]
            if key not in expected and len(frame) >= HEADER.size:  # the decoder refuses a shorter one
                name = ApiKey(key).name if key in API_TABLE else f"API key {key}"
                raise KafkaProtocolError(f"{name} before authentication; {expected[-1].name} must come first")

    def _admit_to_session(self, key: int) -> None:
        now_ms = self._clock.monotonic_ms()
        last_ms = self._last_renewed_ms
        may_renew = last_ms is None or now_ms - last_ms >= MIN_REAUTHENTICATION_INTERVAL_MS
        if key == ApiKey.SASL_HANDSHAKE and may_renew:
            self._last_renewed_ms = now_ms
            self._state = State.HANDSHAKE
        elif self._ends_ms is not None and now_ms > self._ends_ms:
            raise SessionEndedError("its session has expired; the client did not authenticate again")

    def handle(self, request: Request) -> Any:
        """Return the body of the answer, a Failure, or None for a request that the broker answers."""
        if self._state is State.DONE:
            return None
        if request.api_key == ApiKey.SASL_AUTHENTICATE:
            return self._authenticate(bytes(request.body.auth_bytes))
        if self._state is State.AUTHENTICATE:
            return self._refuse_other_api(request)
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            return self._handshake(request)
        if request.body is not None:
            self._state = State.HANDSHAKE
        return None

    def token(self, token: bytes) -> bytes | Failure:
        """Return the server's token for one without a header."""
        try:
            answer = self._respond(token)
            self._complete()
        except AuthenticationFailedError as failure:
            return self._fail(str(failure))
        return answer

    def _handshake(self, request: Request) -> Any:
        enabled = self._rules.mechanisms
        make = enabled.get(request.body.mechanism)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if make is None else ErrorCode.NONE
        answer = SaslHandshakeResponse(error_code=code, mechanisms=list(enabled))
        if make is None:
            return self._fail("the client asked for a SASL mechanism that is not enabled", answer)
        self._mechanism = request.body.mechanism
        self._server = make()
        self._state = State.AUTHENTICATE if request.api_version else State.TOKENS
        return answer

    def _authenticate(self, token: bytes) -> Any:
        try:
            answer = self._respond(token)
            lifetime_ms = self._complete()
        except AuthenticationFailedError as failure:
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            refusal = SaslAuthenticateResponse(error_code=code, error_message=str(failure), auth_bytes=b"")
            return self._fail(str(failure), refusal)
        return SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message=None, auth_bytes=answer, session_lifetime_ms=lifetime_ms
        )

    def _respond(self, token: bytes) -> bytes:
        """Raises AuthenticationFailedError."""
        assert self._server is not None
        if self._first_mechanism not in ("", self._mechanism):
            raise AuthenticationFailedError(
                f"SASL mechanism '{self._mechanism}' requested by client is not supported for re-authentication of"
                f" mechanism '{self._first_mechanism}'"
            )
        return self._server.respond(token)

    def _complete(self) -> int:
        """Begin the session if the exchange has ended; return its lifetime in ms, 0 for ever.

        Raises AuthenticationFailedError.
        """
        server = self._server
        assert server is not None
        if server.user is None:
            return 0
        principal = Principal(USER, server.user)
        if self.principal is not None and self.principal != principal:
            before, after = ".".join(self.principal), ".".join(principal)
            raise AuthenticationFailedError(f"Cannot change principals during re-authentication from {before}: {after}")
        self._state, self.principal, self._first_mechanism = State.DONE, principal, self._mechanism
        lifetime_ms = self._rules.max_session_ms[self._mechanism]
        if lifetime_ms <= 0:
            self._ends_ms = None
            return 0
        if server.expires_ms is not None:
            lifetime_ms = min(lifetime_ms, max(0, server.expires_ms - self._clock.wall_ms()))
        self._ends_ms = self._clock.monotonic_ms() + lifetime_ms
        return lifetime_ms

    def _refuse_other_api(self, request: Request) -> Failure:
        api = API_TABLE[request.api_key]
        text = f"Unexpected Kafka request of type {api.key.name} during SASL authentication."
        # Kafka has no message in FindCoordinator.
        message = None if api.key is ApiKey.FIND_COORDINATOR else text
        return self._fail(text, error=KafkaError(ErrorCode.ILLEGAL_SASL_STATE, message))

    def _fail(self, reason: str, answer: Any = None, error: KafkaError | None = None) -> Failure:
        self._state = State.FAILED
        return Failure(reason, answer, error)
