"""Hostile bytes before authentication: none logs in, none raises but what closes the connection, none takes long.

Drawn from seeds: whole tokens and requests with bytes changed, cut, repeated and inserted, in every state.
"""

from __future__ import annotations

import base64
import contextlib
import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.pending import Pending
from minibroker.broker.principal import ANONYMOUS
from minibroker.broker.time.clock import Clock
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.way.codec import Codec, Watch
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probes
from minibroker.broker.way.stage import Stage
from minibroker.broker.way.way import Way
from minibroker.broker.wings.security.sasl.plain import PlainAccounts
from minibroker.broker.wings.security.sasl.tokens import UnsecuredTokens
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.metadata import ApiVersionsResponse
from tests.broker.sasl_broker import authenticate, handshake, logins_by

SEEDS = 300
MESSAGES = 4  # of each conversation
MAX_TOKEN_BYTES = 524_288
SECONDS_EACH = 0.5
ACCOUNTS = PlainAccounts({"carol": "never sent"})
EXPIRED = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (b'{"alg":"none"}', b'{"sub":"alice","exp":1}')
)
TOKENS = (
    b"\0carol\0carol-secret",
    b"n,,n=grace,r=rOprNGfwEbeRWgbNEkqO",
    b"n,a=grace,n=grace,r=abc,x=y",
    b"c=biws,r=abc,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    f"n,,\x01auth=Bearer {EXPIRED}.\x01\x01".encode(),
    b"\x01",
    b"",
)


class Broker(Stage):
    """Stands behind the logins: only ApiVersions comes through before a client has authenticated."""

    def enter(self, exchange: Exchange) -> Any:
        assert exchange.request is not None
        assert exchange.request.api_key == ApiKey.API_VERSIONS, "a request has come through"
        return ApiVersionsResponse()


class Hostile:
    """A client that has not authenticated, and the way of its requests."""

    def __init__(self) -> None:
        limits = {"failure_delay_ms": 100, "max_token_bytes": MAX_TOKEN_BYTES, "max_request_bytes": 1 << 20}
        tokens = UnsecuredTokens({}, Clock().wall_ms)
        logins = logins_by(ACCOUNTS, "never sent", tokens, TimerLoop(Clock()), **limits)
        self.client = Client("hostile", "127.0.0.1", 9092)
        logins.begin(self.client)
        probes = Probes()
        self._way = Way([logins.frames, Codec(API_TABLE, {}), Watch(probes), logins, Broker()], probes)

    def ask(self, frame: bytes | bytearray) -> Any:
        return self._way.serve(bytearray(frame), self.client)


@pytest.fixture
async def hostile() -> Hostile:
    return Hostile()


def changed(data: bytes, draw: random.Random) -> bytes:
    """The bytes with a few of them wrong, or as they are."""
    found = bytearray(data)
    for _ in range(draw.choice((0, 1, 1, 3))):
        place = draw.randrange(len(found) + 1)
        kind = draw.randrange(5)
        if kind == 0:
            found[place : place + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del found[place:]
        elif kind == 2:
            found[place:place] = draw.choice((b"\0", b",", b"=", b"\xff\xff\xff\xff", b"\x7f\xff", b"n=" * 50, b"\x01"))
        elif kind == 3:
            found[place:place] = found[: draw.randrange(len(found) + 1)]
        else:
            del found[place : place + draw.randrange(1, 5)]
    return bytes(found)


def conversation(draw: random.Random) -> Iterator[bytes]:
    mechanism = draw.choice(("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"))
    version = draw.randrange(2)
    begin = handshake(mechanism, version)
    yield begin if draw.random() < 0.8 else changed(begin, draw)
    for _ in range(MESSAGES):
        token = changed(draw.choice(TOKENS), draw)
        yield token if version == 0 else changed(authenticate(token, draw.randrange(3)), draw)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_bytes_log_in_and_every_failure_closes(hostile: Hostile, seed: int) -> None:

    for message in conversation(random.Random(seed)):
        try:
            answer = hostile.ask(message)
        except (CloseConnectionError, KafkaProtocolError) as closing:
            assert len(str(closing)) < 1000
            break
        if isinstance(answer, Pending):  # a failure, after which nothing is answered
            with pytest.raises(CloseConnectionError):
                hostile.ask(message)
            break
        assert isinstance(answer, list)
    assert hostile.client.principal is ANONYMOUS


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("SCRAM-SHA-256", b"n,,n=" + b"a" * 500_000),
        ("SCRAM-SHA-256", b"n,,n=a,r=b" + b",x=y" * 125_000),
        ("SCRAM-SHA-256", b"n,,n=" + b"=2C" * 170_000 + b"="),
        ("SCRAM-SHA-256", b"n,,n=a,r=b" + b",x=y" * 125_000 + b",m="),
        ("OAUTHBEARER", b"n,,\x01" + b"a=b\x01" * 130_000),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"a" * 500_000 + b"\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"." * 500_000 + b"\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer" + b" " * 500_000 + b"\x01\x01"),
        ("PLAIN", b"\0" * 500_000),
        ("PLAIN", b"\0" + b"a" * 250_000 + b"\0" + b"b" * 250_000),
    ],
)
async def test_the_largest_tokens_are_refused_quickly(hostile: Hostile, mechanism: str, token: bytes) -> None:
    """A pattern that tries each way to split a token again would take hours."""
    hostile.ask(handshake(mechanism))
    began = time.process_time()

    hostile.ask(authenticate(token))

    assert time.process_time() - began < SECONDS_EACH
    assert hostile.client.principal is ANONYMOUS


@pytest.mark.parametrize("key", [key for key in API_TABLE if key not in (17, 18)])
@pytest.mark.parametrize("handshakes", [(), (handshake("PLAIN"),)])
async def test_no_other_api_is_served_before_the_login(
    hostile: Hostile, key: int, handshakes: tuple[bytes, ...]
) -> None:
    for each in handshakes:
        hostile.ask(each)

    frame = bytearray(struct.pack(">hhih", key, 0, 1, -1) + bytes(200))
    with contextlib.suppress(KafkaProtocolError):
        assert isinstance(hostile.ask(frame), Pending)  # it is refused, after a delay
    assert hostile.client.principal is ANONYMOUS
