"""A broker with SASL listeners on real sockets, in the loop of the test; clients talk to it from threads."""

from __future__ import annotations

import socket
from typing import Any

import trio

from minibroker.broker.cluster.state import Change
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.server import Server
from minibroker.broker.time.timers import TimerLoop
from minibroker.broker.wings.security.logins import Logins
from minibroker.broker.wings.security.sasl.login import LoginRules
from minibroker.broker.wings.security.sasl.oauthbearer import OAuthBearerServer, TokenValidator
from minibroker.broker.wings.security.sasl.plain import PlainAccounts, PlainServer
from minibroker.broker.wings.security.sasl.scram import ScramServer
from minibroker.broker.wings.security.sasl.users import CREDENTIALS
from minibroker.protocol.scram import (
    BY_NAME,
    DEFAULT_ITERATIONS,
    SCRAM_SHA_256,
    ScramCredential,
    credential_of,
    salted_password,
)
from tests import requests
from tests.broker.conftest import InMemoryBroker

LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
SALT = b"0123456789abcdef"


def new_credential(password: str) -> ScramCredential:
    salt = b"0123456789abcdef"
    salted = salted_password(SCRAM_SHA_256, password, salt, DEFAULT_ITERATIONS)
    return credential_of(SCRAM_SHA_256, salted, salt, DEFAULT_ITERATIONS)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return requests.handshake(mechanism, version)[4:]


def authenticate(token: bytes, version: int = 1) -> bytes:
    return requests.authenticate(token, version)[4:]


def logins_by(
    accounts: PlainAccounts,
    password: str,
    tokens: TokenValidator,
    timers: TimerLoop,
    max_session_ms: int = 0,
    **limits: int,
) -> Logins:
    """Logins by three mechanisms; every user of SCRAM has the password."""
    credential = new_credential(password)
    servers: dict[str, Any] = {
        "PLAIN": lambda: PlainServer(accounts),
        "SCRAM-SHA-256": lambda: ScramServer(SCRAM_SHA_256, lambda mechanism, user: (credential, True)),
        "OAUTHBEARER": lambda: OAuthBearerServer(tokens),
    }
    rules = LoginRules(servers, max_session_ms=dict.fromkeys(servers, max_session_ms))
    return Logins({"PLAINTEXT": rules}, timers, **limits)


async def serve(broker: InMemoryBroker, nursery: trio.Nursery, **options: Any) -> dict[str, int]:
    """Serve on the listeners of the broker's configuration until the nursery ends; return their ports."""
    sockets = []
    for host, _ in broker.app._config.listen_addresses:
        sock = socket.create_server((host, 0), backlog=2000)
        sock.setblocking(False)
        sockets.append(sock)
    connections: set[Connection] = set()
    server = Server(
        sockets,
        config=broker.app._config,
        dispatch=broker.way.serve,
        timers=broker.timers,
        afterwards=broker.parts.afterwards,
        connections=connections,
        greet=[each.greet for each in broker.parts.wings],
        kinds={name: kind for each in broker.parts.wings for name, kind in each.kinds_of_connections().items()},
        **options,
    )
    nursery.start_soon(server.run)
    names = [endpoint.name for endpoint in broker.app._config.endpoints]
    return {name: sock.getsockname()[1] for name, sock in zip(names, sockets, strict=True)}


def add_scram_user(broker: InMemoryBroker, user: str, password: str, iterations: int = 4096) -> None:
    credentials = {
        name: credential_of(mechanism, salted_password(mechanism, password, SALT, iterations), SALT, iterations)
        for name, mechanism in BY_NAME.items()
    }
    known = broker.state.get(CREDENTIALS)
    broker.state.save("a user", Change(sections={CREDENTIALS: {**known, user: credentials}}))
