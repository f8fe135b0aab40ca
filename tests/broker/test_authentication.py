"""A connection until its client has authenticated: delays, sizes, hand-over, sessions.

Time is jumped. The answers themselves are compared with Kafka's in test_sasl_conversations.py.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Container
from typing import Any

import pytest
import trio

from minibroker.broker.principal import Principal
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.way.codec import Codec, Watch
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.last_response import LINGER_MS
from minibroker.broker.way.probes import Probes
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.broker.way.way import Way
from minibroker.broker.wings.security.logins import FIRST_ALLOCATION_BYTES
from minibroker.broker.wings.security.sasl.oauthbearer import Token
from minibroker.broker.wings.security.sasl.plain import PlainAccounts
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker
from tests.broker.peers import Connect, Peer
from tests.broker.peers import connect as connect
from tests.broker.sasl_broker import authenticate, handshake, logins_by
from tests.broker.traced import Traced
from tests.requests import framed

pytestmark = pytest.mark.time_jumps

ACCOUNTS = PlainAccounts({"carol": "carol-secret", "erin": "erin-secret"})
CAROL, WRONG = b"\0carol\0carol-secret", b"\0carol\0wrong"
TOKEN_SECONDS = 5


class FiveSeconds:
    """Accepts any token, for five seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def validate(self, token: str) -> Token:
        return Token(token, self._clock.wall_ms() + TOKEN_SECONDS * 1000)


class Served(Stage):
    """Answers clients that have authenticated, by their user and the size of the request."""

    def enter(self, exchange: Exchange) -> Any:
        if exchange.client.login is None or exchange.client.login.is_done:
            return [framed(f"{exchange.client.principal} {len(exchange.frame)}".encode())]
        return GO_ON


MakePeer = Callable[..., Peer]


@pytest.fixture
def guarded(connect: Connect, nursery: trio.Nursery) -> MakePeer:
    """Connect peers that must authenticate."""
    timers = TimerLoop(Clock())
    nursery.start_soon(timers.run)

    def make(*, max_session_ms: int = 0, probes: Probes | None = None, **settings: Any) -> Peer:
        limits = {"failure_delay_ms": 100, "max_token_bytes": 1000, "max_request_bytes": 5000, **settings}
        tokens = FiveSeconds(timers.clock)
        logins = logins_by(ACCOUNTS, "hopper", tokens, timers, max_session_ms, **limits)
        probes = Probes() if probes is None else probes
        way = Way([logins.frames, Served(), Codec(API_TABLE, {}), Watch(probes), logins], probes)
        peer = connect(way.serve, runs=False, timers=timers, probes=probes)
        logins.begin(peer.connection.client)
        nursery.start_soon(peer.run)
        return peer

    return make


async def ask(peer: Peer, *frames: bytes) -> list[Any]:
    """Send requests in one write, and decode their answers as those of the SASL APIs, as far as they are."""
    peer.sock.send(b"".join(map(framed, frames)))
    found: list[Any] = []
    for frame in frames:
        answered = await peer.answer()
        key, version = struct.unpack_from(">hh", frame)
        is_sasl = key in (17, 36) and answered and not answered.startswith(b"User:")
        found.append(decode_response(key, version, answered)[1] if is_sasl else answered)
    return found


async def login(peer: Peer, user: str = "carol") -> Any:
    _, done = await ask(peer, handshake(), authenticate(f"\0{user}\0{user}-secret".encode()))
    assert done.error_code == ErrorCode.NONE
    return done


async def test_after_the_login_requests_go_straight_to_the_handlers(guarded: MakePeer) -> None:
    peer = guarded()

    await login(peer)

    assert await ask(peer, b"request") == [b"User:carol 7"]
    assert peer.connection.client.principal == Principal("User", "carol")
    assert peer.connection.client.login is None


REFUSED = "Authentication failed: Invalid username or password"


@pytest.mark.parametrize("delay_ms", [0, 100])
@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ([handshake(), authenticate(WRONG)], REFUSED),
        ([handshake("GSSAPI")], None),
        ([handshake(), b"\0\x03\0\0\0\0\0\1\xff\xff\0\0\0\0"], None),
        ([handshake(version=0), WRONG], ""),
    ],
    ids=["wrong password", "unknown mechanism", "another request", "wrong token, which has no answer"],
)
async def test_a_failure_ends_the_connection_after_the_delay(
    guarded: MakePeer, frames: list[bytes], message: str | None, delay_ms: int
) -> None:
    peer = guarded(failure_delay_ms=delay_ms)
    before = trio.current_time()

    *_, failed = await ask(peer, *frames)

    assert trio.current_time() - before == pytest.approx(delay_ms / 1000, abs=0.002)
    if message:
        assert (failed.error_code, failed.error_message) == (58, message)
    assert (failed == b"") == (message == "")
    assert await peer.answer() == b""
    assert peer.connection.client.principal.name == "ANONYMOUS"


async def test_other_clients_are_served_during_the_delay(guarded: MakePeer) -> None:
    waiting, other = guarded(failure_delay_ms=10_000), guarded()
    await waiting.send(handshake(), authenticate(WRONG))
    before = trio.current_time()

    await login(other)

    assert trio.current_time() == before


async def test_the_end_comes_some_time_after_the_answer_or_with_the_next_request(guarded: MakePeer) -> None:
    """A client that gets both together may overlook the answer."""
    patient, hasty = guarded(failure_delay_ms=0), guarded(failure_delay_ms=0)
    await ask(patient, handshake(), authenticate(WRONG))
    await ask(hasty, handshake(), authenticate(WRONG))
    before = trio.current_time()

    hasty.sock.send(framed(authenticate(CAROL)))

    assert (await hasty.answer(), trio.current_time()) == (b"", before)
    assert await patient.answer() == b""
    assert trio.current_time() - before == pytest.approx(LINGER_MS / 1000, abs=0.002)
    assert patient.connection.ended_by.startswith("authentication failed")


async def test_a_client_that_leaves_during_the_delay_leaves_nothing(guarded: MakePeer) -> None:
    peer = guarded(failure_delay_ms=10_000)
    await peer.send(handshake(), authenticate(WRONG))
    assert peer.timers.timer.next_deadline_ms() is not None

    peer.connection.cancel_scope.cancel()
    await trio.testing.wait_all_tasks_blocked()

    assert peer.timers.timer.next_deadline_ms() is None


async def test_limits_change_with_the_login_and_a_length_allocates_little_before(guarded: MakePeer) -> None:
    large, peer = guarded(max_token_bytes=1000), guarded(max_token_bytes=1_000_000)
    large.sock.send(struct.pack(">i", 1001))
    assert await large.answer() == b""

    peer.sock.send(struct.pack(">i", 900_000) + b"x")
    await trio.testing.wait_all_tasks_blocked()
    held = peer.connection._decoder._frame
    assert held is not None
    assert len(held) <= FIRST_ALLOCATION_BYTES

    peer = guarded(max_token_bytes=1000, max_request_bytes=5000)
    await login(peer)
    assert await ask(peer, bytes(5000)) == [b"User:carol 5000"]
    peer.sock.send(struct.pack(">i", 5001))
    assert await peer.answer() == b""


async def test_logs_name_the_failure_and_neither_user_nor_token(
    guarded: MakePeer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    peer = guarded()

    await ask(peer, handshake(), authenticate(b"\0carolina\0hunter2"))
    assert await peer.answer() == b""

    assert "authentication failed: Authentication failed: Invalid username or password" in caplog.text
    assert "carolina" not in caplog.text
    assert "hunter2" not in caplog.text
    assert len(caplog.records) == 1


# -- sessions -------------------------------------------------------------------------------------------------


async def test_the_lifetime_of_a_session_is_answered_from_version_1_on(guarded: MakePeer) -> None:
    peer = guarded(max_session_ms=4000)

    assert (await login(peer)).session_lifetime_ms == 4000


async def test_a_session_ends_at_the_first_request_after_its_lifetime(guarded: MakePeer) -> None:
    peer = guarded(max_session_ms=4000)
    await login(peer)

    await trio.sleep(4)
    assert await ask(peer, b"request") == [b"User:carol 7"]
    await trio.sleep(0.001)

    assert await ask(peer, b"request") == [b""]
    assert "session has expired" in peer.connection.ended_by


@pytest.mark.parametrize("wait_seconds", [0, 2, 6])
async def test_a_client_may_authenticate_again_before_and_after_the_end(guarded: MakePeer, wait_seconds: int) -> None:
    peer = guarded(max_session_ms=4000)
    await login(peer)
    await trio.sleep(wait_seconds)

    again = await login(peer)

    assert again.session_lifetime_ms == 4000
    await trio.sleep(3.9)
    assert await ask(peer, b"request") == [b"User:carol 7"]


async def test_a_client_may_authenticate_again_once_a_second(guarded: MakePeer) -> None:
    peer = guarded(max_session_ms=4000)
    await login(peer)
    await login(peer)

    assert (await ask(peer, handshake()))[0].startswith(b"User:carol")  # it goes to the handlers, as any request
    await trio.sleep(1)
    await login(peer)


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        (
            [handshake(), authenticate(b"\0erin\0erin-secret")],
            "Cannot change principals during re-authentication from User.carol: User.erin",
        ),
        ([handshake(), authenticate(WRONG)], "Authentication failed: Invalid username or password"),
        (
            [handshake("SCRAM-SHA-256"), authenticate(b"n,,n=carol,r=abc")],
            "SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for re-authentication of mechanism"
            " 'PLAIN'",
        ),
    ],
)
async def test_authenticating_again_keeps_the_user_and_the_mechanism(
    guarded: MakePeer, frames: list[bytes], message: str
) -> None:
    peer = guarded(max_session_ms=4000)
    await login(peer)

    *_, failed = await ask(peer, *frames)

    assert (failed.error_code, failed.error_message) == (58, message)
    assert await peer.answer() == b""
    assert peer.connection.client.principal.name == "carol"


async def test_another_request_instead_of_authenticating_again_is_refused(guarded: MakePeer) -> None:
    peer = guarded(max_session_ms=4000)
    await login(peer)
    await ask(peer, handshake())

    peer.sock.send(framed(struct.pack(">hhih", ApiKey.LIST_GROUPS, 0, 1, -1)))

    assert (await peer.answer())[4:6] == ErrorCode.ILLEGAL_SASL_STATE.to_bytes(2, "big")
    assert await peer.answer() == b""


# The token has 5 s, and is as old as the login took.
@pytest.mark.parametrize(("max_session_ms", "lifetimes_ms"), [(0, [0]), (60_000, range(4001, 5001)), (4000, [4000])])
async def test_a_session_lasts_no_longer_than_its_token(
    guarded: MakePeer, max_session_ms: int, lifetimes_ms: Container[int]
) -> None:
    """If sessions end at all: kafka 2.0.1 does not end them, later Kafka ends those of tokens."""
    peer = guarded(max_session_ms=max_session_ms)

    _, done = await ask(peer, handshake("OAUTHBEARER"), authenticate(b"n,,\x01auth=Bearer alice\x01\x01"))

    assert done.session_lifetime_ms in lifetimes_ms
    assert peer.connection.client.principal.name == "alice"


# -- explained ------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(broker: InMemoryBroker) -> Traced:
    traced = Traced(broker)
    traced.calls.pull()
    return traced


def guarded_and_traced(guarded: MakePeer, traced: Traced) -> Peer:
    peer = guarded(probes=traced.broker.parts.probes)
    traced.connections.add(peer.connection)
    return peer


async def test_a_login_is_explained_without_its_secrets(guarded: MakePeer, traced: Traced) -> None:
    await login(guarded_and_traced(guarded, traced))

    first, second = (traced.explained(each["seq"]) for each in traced.exchanges())
    assert (first["api"], first["version"], first["outcome"], first["error"]) == ("SaslHandshake", 1, "at once", "")
    assert first["login"] == {
        "mechanism": "PLAIN",
        "enabled": ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"],
        "message": None,
    }
    assert (second["api"], second["version"], second["principal"]) == ("SaslAuthenticate", 1, "User:carol")
    assert traced.titles(first["seq"])[1] == "A login by PLAIN"
    assert "secret" not in f"{first}{second}"


@pytest.mark.parametrize("is_sampled", [True, False])
async def test_a_failed_login_is_explained_with_its_reason_and_its_delay(
    guarded: MakePeer, traced: Traced, is_sampled: bool
) -> None:
    peer = guarded_and_traced(guarded, traced)
    if not is_sampled:
        traced.keep_each(1000)

    await ask(peer, handshake(), authenticate(WRONG))

    explained = traced.explained()
    assert (explained["api"], explained["error"]) == ("SaslAuthenticate", "SASL_AUTHENTICATION_FAILED")
    assert (explained["outcome"], explained["wait"]["ended_by"]) == ("woken", "delay")
    told = [(step["title"], step["detail"]) for step in explained["steps"]]
    assert ("A token of a login", ["Authentication failed: Invalid username or password"]) in told
    assert ("Held back: a login failed", []) in told
    assert ("Its wait ended", ["connection.failed.authentication.delay.ms is over"]) in told


async def test_a_token_without_a_header_is_explained_as_one(guarded: MakePeer, traced: Traced) -> None:
    peer = guarded_and_traced(guarded, traced)
    peer.sock.send(framed(handshake(version=0)) + framed(WRONG))
    assert await peer.answer() != b""
    assert await peer.answer() == b""

    explained = traced.explained()
    assert (explained["api"], explained["version"], explained["outcome"]) == ("SaslAuthenticate", -1, "closed")
    assert explained["error"] == "authentication failed: Authentication failed: Invalid username or password"
    assert explained["bytes_in"] == 4 + len(WRONG)
