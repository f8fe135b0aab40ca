"""The stages of listeners with SASL: they let no request through before its client has authenticated.

`Logins` stands behind the codec and leads requests through the state machine of their connection
(`security/sasl/login.py`). `LoginFrames` stands before the codec: there are the tokens without a header.

A failure that may be a guess of a password is answered, and its connection closed, only after
`connection.failed.authentication.delay.ms`; others are served meanwhile. A log line has the reason that the client
gets, and neither its tokens nor its user.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.failures import failure_of
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.pending import Pending
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.last_response import LastResponse
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.broker.wings.security.sasl.login import Failure, Login, LoginRules, SessionEndedError
from minibroker.broker.wings.security.sasl.mechanisms import mechanisms_of
from minibroker.broker.wings.security.sasl.users import ScramUsers
from minibroker.protocol.api import API_TABLE, Request
from minibroker.protocol.framing import LENGTH
from minibroker.purgatory.timing_wheel import TimerTask

logger = logging.getLogger(__name__)

# What the length of a request allocates before its bytes are there: ten thousand clients may send only lengths.
FIRST_ALLOCATION_BYTES = 1024


class Logins(Stage):
    """Leads the requests of clients through their authentication. `rules` are by listener.

    `frames` is the stage before the codec.
    """

    def __init__(
        self,
        rules: Mapping[str, LoginRules],
        timers: TimerLoop,
        *,
        failure_delay_ms: int,
        max_token_bytes: int,
        max_request_bytes: int,
    ) -> None:
        self.frames = LoginFrames(self)
        self._rules = rules
        self._timers = timers
        self._failure_delay_ms = failure_delay_ms
        self._max_token_bytes = max_token_bytes
        self._max_request_bytes = max_request_bytes

    def begin(self, client: Client) -> None:
        """Let no request of a new connection through, if its listener has SASL."""
        rules = self._rules.get(client.listener)
        if rules is not None:
            client.log_in(Login(rules, self._timers.clock))
            self.limit_frames(client)

    def enter(self, exchange: Exchange) -> Any:
        login = exchange.client.login
        if login is None:
            return GO_ON
        request = exchange.request
        assert request is not None
        answer = login.handle(request)
        if isinstance(answer, Failure):
            return self.fail(exchange, answer)
        if answer is None:
            return GO_ON
        self.follow(exchange.client, login)
        return answer

    def follow(self, client: Client, login: Login) -> None:
        """Serve the client as its user, once it has authenticated; let it send longer requests."""
        if login.is_done and login.principal is not None:
            client.authenticate(login.principal)
            if login.is_over:
                client.log_in(None)
        self.limit_frames(client)

    def limit_frames(self, client: Client) -> None:
        """Let the client send as much as it may in the state of its login."""
        if client.frames is None:
            return
        if client.login is None or client.login.is_done:
            client.frames.limit(self._max_request_bytes)
        else:
            client.frames.limit(self._max_token_bytes, FIRST_ALLOCATION_BYTES)

    def fail(self, exchange: Exchange, failure: Failure) -> Pending[Body]:
        """Answer and close, after the delay. Raises CloseConnectionError without both."""
        reason = f"authentication failed: {failure.reason}"
        answer = failure.answer
        if failure.error is not None:
            assert exchange.request is not None
            exchange.request = in_a_known_version(exchange.request)
            answer = failure_of(exchange.request, failure.error)
        if answer is None and self._failure_delay_ms <= 0:
            raise CloseConnectionError(reason)
        exchange.last_words = reason
        refusal = Refusal(reason, answer, self._timers)
        refusal.begin(self._failure_delay_ms)
        return refusal.pending


class LoginFrames(Stage):
    """Stands before the codec: answers tokens, and ends connections after their last answer."""

    def __init__(self, logins: Logins) -> None:
        self._logins = logins

    def enter(self, exchange: Exchange) -> Any:
        login, frame = exchange.client.login, exchange.frame
        if login is None:
            return GO_ON
        if login.expects_token:
            return self._token(exchange, login)
        try:
            login.admit(frame)
        except SessionEndedError as ended:
            raise CloseConnectionError(str(ended)) from None
        if not login.is_done:  # it may have begun again
            self._logins.limit_frames(exchange.client)
        return GO_ON

    def _token(self, exchange: Exchange, login: Login) -> Any:
        answer = login.token(bytes(exchange.frame))
        if isinstance(answer, Failure):
            return self._logins.fail(exchange, answer)
        self._logins.follow(exchange.client, login)
        return [LENGTH.pack(len(answer)) + answer]

    def leave(self, exchange: Exchange, answer: Any) -> Any:
        if not exchange.last_words:
            return answer
        logger.info("%s: %s", exchange.client, exchange.last_words)
        return LastResponse(answer, exchange.last_words)


class Refusal(TimerTask):
    """A failed authentication, whose answer waits for the delay; without an answer the connection is closed."""

    def __init__(self, reason: str, answer: Body, timers: TimerLoop) -> None:
        super().__init__()
        self.pending: Pending[Body] = Pending(self)
        self._reason = reason
        self._answer = answer
        self._timers = timers

    def begin(self, delay_ms: int) -> None:
        """Wait for the delay, if there is one."""
        if delay_ms > 0:
            self._timers.timer.add(self, self._timers.clock.monotonic_ms() + delay_ms)
        else:
            self.on_timeout()

    def on_timeout(self) -> None:
        if self._answer is None:
            self.pending.fail(CloseConnectionError(self._reason))
        else:
            self.pending.resolve(self._answer)

    def abandon(self) -> None:
        self._timers.timer.cancel(self)


def in_a_known_version(request: Request) -> Request:
    """ApiVersions of an unknown version is answered in version 0."""
    if request.body is not None:
        return request
    api = API_TABLE[request.api_key]
    return Request(api.key, 0, request.correlation_id, request.client_id, api.request())


def logins_of(config: KafkaConfig, users: ScramUsers, timers: TimerLoop) -> Logins:
    """Make the logins of all SASL listeners. Raises KafkaError if the store cannot be written."""
    users.prepare()
    rules = {
        listener: LoginRules(
            mechanisms_of(listener, config, users, timers.clock.wall_ms),
            {each: max_session_ms(config, listener, each) for each in config.sasl_listeners[listener].mechanisms},
        )
        for listener in config.sasl_listeners
    }
    return Logins(
        rules,
        timers,
        failure_delay_ms=config.connection_failed_authentication_delay_ms,
        max_token_bytes=config.sasl_server_max_receive_size,
        max_request_bytes=config.socket_request_max_bytes,
    )


def max_session_ms(config: KafkaConfig, listener: str, mechanism: str) -> int:
    """The setting of the listener's mechanism, else of the listener, else of the broker."""
    from minibroker.broker.config.sasl import setting_of

    name = "connections.max.reauth.ms"
    text = config.given.get(setting_of(listener, mechanism, name))
    found: int = config.for_listener(listener, name) if text is None else SETTINGS[name].read(text)
    return found
