"""A connection to one broker, which never blocks: requests leave in their order, and answers come as they come.

`wait` sleeps until one of several connections can go on. What has to wait (connecting, TLS, a login) is written in its
order in generators, which yield the event that they wait for.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from errno import EINPROGRESS
from functools import cache
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, DefaultSelector
from typing import TYPE_CHECKING, Any, Self

from minibroker.client.address import Address
from minibroker.client.errors import Unsupported
from minibroker.client.login import PLAINTEXT, CertificateRefused, Login, NotTrusted, WrongMechanism, WrongProtocol
from minibroker.protocol.api import ASKED_TABLE, Api, ApiKey, decode_response, encode_request
from minibroker.protocol.client_ids import OF_COMMANDS
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.framing import NEED_DATA, FrameDecoder
from minibroker.protocol.sasl_client import LoginError, conversation

if TYPE_CHECKING:
    import ssl

ANSWER_SECONDS = 30.0
ANSWER_MAX_BYTES = 100 << 20
LOGIN_MAX_BYTES = 1 << 20  # of an answer before the broker has proved to be one
PIECE_BYTES = 256 << 10  # of a send or a receive
TLS_ALERT = b"\x15\x03"
# A broker whose listener has no TLS takes the first message for a request, and closes the connection.
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNEXPECTED_EOF_WHILE_READING")
OLDEST_RELEASE = "0.11"  # that commands support

Versions = Mapping[int, tuple[int, int]]  # the first and the last of each API
Life = Generator[int, None, None]


class Sent:
    """A request that was sent, or will be once the connection is open."""

    __slots__ = ("answer", "api_key", "correlation_id", "is_answered", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.answer: Any = None
        self.is_answered = False


class Connection:
    """One connection. It begins at once; `error` is why it has ended, and `versions` are those that its broker has."""

    def __init__(
        self,
        address: Address,
        login: Login | None = None,
        *,
        client_id: str = OF_COMMANDS,
        source: str | None = None,
    ) -> None:
        self.address = address
        self.error: Exception | None = None
        self.is_open = False  # connected and logged in
        self.has_answered = False
        self._is_served = False  # it has answered more than what every client may ask before a login
        self.versions: Versions | None = None
        self.own_address: Address | None = None  # of this end, once it is connected
        self.waits_for = EVENT_READ
        self._login = login or PLAINTEXT
        self._client_id = client_id
        self._source = source
        self._socket: socket.socket | None = None
        self._blocked: tuple[type[OSError], ...] = (BlockingIOError,)  # what a call that would wait raises
        self._frames = FrameDecoder(LOGIN_MAX_BYTES, min_frame_bytes=0)
        self._correlation_id = 0
        self._out = bytearray()  # to send now
        self._later = bytearray()  # to send once it is open
        self._sent: deque[Sent] = deque()  # and not answered, in their order
        self._life = self._living()
        self.go_on()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor of the socket, for a selector."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def unanswered(self) -> int:
        """The number of requests that were sent and are not answered."""
        return len(self._sent)

    def close(self) -> None:
        self._end(ConnectionAbortedError("it was closed here"))

    def reset(self) -> None:
        """Close with RST, as a process that dies with data unread does."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close()

    def go_on(self) -> None:
        """Do what can be done without a wait."""
        if self.error is None:
            try:
                self.waits_for = next(self._life)
            except (OSError, LoginError) as error:
                self._end(error)

    def send(self, api_key: ApiKey, version: int, body: Any) -> Sent:
        """Send a request, or note it until the connection is open."""
        self._correlation_id += 1
        sent = Sent(api_key, version, self._correlation_id)
        self._sent.append(sent)
        self.send_bytes(encode_request(api_key, version, sent.correlation_id, self._client_id, body))
        return sent

    def send_bytes(self, data: bytes | bytearray) -> None:
        if not self.is_open:
            self._later += data
            return
        self._out += data
        self.go_on()

    def ask(
        self, api_key: ApiKey, version: int | None = None, /, *, seconds: float = ANSWER_SECONDS, **body: Any
    ) -> Any:
        """The answer, in the newest version of both sides if none is given. Raises OSError, LoginError, Unsupported."""
        until = time.monotonic() + seconds
        api = ASKED_TABLE[api_key]
        if version is None:
            if self.versions is None:
                self.until_answered(self.send_versions(), until)
            version = newest_common(api, self.versions or {})
        return self.until_answered(self.send(api_key, version, api.request(**body)), until)

    def send_versions(self) -> Sent:
        return self.send(ApiKey.API_VERSIONS, 0, ASKED_TABLE[ApiKey.API_VERSIONS].request())

    def until_answered(self, sent: Sent, until: float) -> Any:
        """The answer. Raises OSError, TimeoutError at that time of `time.monotonic`, and LoginError."""
        while not sent.is_answered:
            if self.error is not None:
                raise self.error
            if time.monotonic() >= until:
                raise TimeoutError(f"no answer to {ASKED_TABLE[sent.api_key].name}")
            wait([self], until)
        return sent.answer

    # -- its life ---------------------------------------------------------------------------------------------

    def _living(self) -> Life:
        yield from self._connecting()
        if self._login.tls is not None:
            yield from self._encrypting(self._login.tls)
        if self._login.mechanism:
            yield from self._authenticating()
        self._frames.limit(ANSWER_MAX_BYTES)
        self.is_open = True
        self._out += self._later
        self._later.clear()
        while True:
            self._pass_on()
            yield EVENT_READ | EVENT_WRITE if self._out else EVENT_READ

    def _connecting(self) -> Life:
        failure: OSError | None = None
        for family, kind, protocol, _, address in socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM):
            self._socket = tried = socket.socket(family, kind, protocol)
            tried.setblocking(False)
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._source is not None:
                tried.bind((self._source, 0))
            code = tried.connect_ex(address)
            if code == EINPROGRESS:
                yield EVENT_WRITE
                code = tried.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code == 0:
                self.own_address = Address(*tried.getsockname()[:2])
                return
            tried.close()
            failure = OSError(code, os.strerror(code))
        assert failure is not None
        raise failure

    def _encrypting(self, context: ssl.SSLContext) -> Life:
        import ssl

        assert self._socket is not None
        try:
            encrypted = context.wrap_socket(
                self._socket, server_hostname=self.address.host, do_handshake_on_connect=False
            )
            self._socket = encrypted
            self._blocked = BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError
            while True:
                try:
                    encrypted.do_handshake()
                    return
                except ssl.SSLWantReadError:
                    yield EVENT_READ
                except ssl.SSLWantWriteError:
                    yield EVENT_WRITE
        except ssl.SSLCertVerificationError as error:
            raise NotTrusted(f"its certificate is not trusted: {error.verify_message.rstrip('.')}") from error
        except ssl.SSLError as error:
            # Python 3.11.2 takes a connection that ends, which is no TLS, for one that TLS has closed.
            if error.reason in NOT_TLS or isinstance(error, ssl.SSLZeroReturnError):
                raise WrongProtocol("it does not speak TLS") from error
            raise CertificateRefused(f"it ended the TLS handshake: {reason_of(error)}") from error
        except ConnectionError as error:
            raise WrongProtocol("it does not speak TLS") from error

    def _authenticating(self) -> Life:
        """SaslHandshake, then tokens in SaslAuthenticate until the mechanism is done."""
        login = self._login
        try:
            answer = yield from self._exchange(ApiKey.SASL_HANDSHAKE, 1, mechanism=login.mechanism)
        except ConnectionError as error:
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
                answer = yield from self._exchange(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=token)
            except ConnectionError as error:
                raise LoginError("it closed the connection during authentication") from error
            if answer.error_code != ErrorCode.NONE:
                raise LoginError((answer.error_message or "").strip(" .") or f"error {answer.error_code}")
            try:
                token = steps.send(bytes(answer.auth_bytes))
            except StopIteration:
                return

    def _exchange(self, api_key: ApiKey, version: int, **body: Any) -> Generator[int, None, Any]:
        """The answer to a request of the login, sent before the requests that wait for its end."""
        request = ASKED_TABLE[api_key].request(**body)
        sent = Sent(api_key, version, 0)
        self._sent.appendleft(sent)
        self._out += encode_request(api_key, version, 0, self._client_id, request)
        while True:
            self._pass_on()
            if sent.is_answered:
                return sent.answer
            yield EVENT_READ | EVENT_WRITE if self._out else EVENT_READ

    def _pass_on(self) -> None:
        """Send and receive as much as goes. Raises OSError, and WrongProtocol for bytes that are not Kafka's."""
        assert self._socket is not None
        try:
            while self._out:
                count = self._socket.send(self._out[:PIECE_BYTES])
                del self._out[:count]
        except self._blocked:
            pass
        while True:
            try:
                if (pending := self._frames.pending_view()) is not None:
                    count = self._socket.recv_into(pending)
                    self._frames.advance(count)
                else:
                    data = self._socket.recv(PIECE_BYTES)
                    count = len(data)
                    self._frames.feed(data)
                    if not self.has_answered and data.startswith(TLS_ALERT):
                        raise WrongProtocol("it speaks TLS")
            except self._blocked:
                return
            if not count:
                raise ConnectionResetError("the broker closed the connection")
            try:
                while (frame := self._frames.next_frame()) is not NEED_DATA:
                    self._take(frame)
                    self.has_answered = True
            except KafkaProtocolError as error:
                raise WrongProtocol("its answer is not Kafka's") from error

    def _take(self, frame: bytearray) -> None:
        """Give an answer to its request. Raises KafkaProtocolError."""
        if not self._sent:
            raise KafkaProtocolError("an answer to no request")
        sent = self._sent.popleft()
        correlation_id, answer = decode_response(sent.api_key, sent.version, frame)
        if correlation_id != sent.correlation_id:
            raise KafkaProtocolError("an answer to another request")
        if sent.api_key == ApiKey.API_VERSIONS:
            self.versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
        else:
            self._is_served = True
        sent.answer, sent.is_answered = answer, True

    def _end(self, error: Exception) -> None:
        if self.error is None:
            self.error = error if self._login.tls is None else self._of_tls(error)
            if self._socket is not None:
                self._socket.close()

    def _of_tls(self, error: Exception) -> Exception:
        """In TLS 1.3 a broker refuses a client's certificate after the handshake, with its first answer."""
        import ssl

        if not self.is_open or self._is_served:
            return error
        if isinstance(error, ssl.SSLError):
            return CertificateRefused(f"it refused the connection: {reason_of(error)}")
        is_lost = isinstance(error, ConnectionError) and not isinstance(error, ConnectionAbortedError)
        return WrongProtocol("it closes the connection at a request without SASL") if is_lost else error


def wait(connections: Iterable[Connection], until: float) -> None:
    """Sleep until one of these connections can go on, or until that time of `time.monotonic`; let it go on."""
    with polling(connections) as selector:
        for each in readied(selector, until):
            each.go_on()


def polling(connections: Iterable[Connection], also: int | None = None) -> BaseSelector:
    """A selector for the connections that have something to wait for, and for what can be read from a descriptor."""
    selector = DefaultSelector()
    for each in connections:
        if each.error is None:
            selector.register(each, each.waits_for)
    if also is not None:
        selector.register(also, EVENT_READ)
    return selector


def readied(selector: BaseSelector, until: float) -> list[Connection]:
    """The connections that can go on, once there is one, or until that time of `time.monotonic`."""
    found = selector.select(max(0.0, until - time.monotonic()))
    return [key.fileobj for key, _ in found if isinstance(key.fileobj, Connection)]


def newest_common(api: Api, offered: Versions, first: int = 0) -> int:
    """The newest version of an API that both sides have, from `first` on, and that names topics by their names.

    Raises Unsupported.
    """
    low, high = offered.get(api.key, (0, -1))
    version = min(last_by_name(api), high)
    if version < max(first, low, api.request.first_version):
        raise Unsupported(api.name, max(api.since.release, OLDEST_RELEASE, key=numbers_of))
    return version


@cache
def last_by_name(api: Api) -> int:
    """The last version of a request that names topics, not their ids."""
    return min([api.request.last_version, *(field.later[0] - 1 for _, field in api.request.walk())])


def numbers_of(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def reason_of(error: ssl.SSLError) -> str:
    return (error.reason or "no reason").replace("_", " ").lower()
