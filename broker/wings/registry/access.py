"""Access to the registry: that of the broker's first listener, with the same users and the same ACLs.

With TLS there the registry is served with TLS, by the same certificate. With SASL a client sends the name and password
of a user (`Authorization: Basic`), which are checked as a login by PLAIN or SCRAM. With ACLs a question needs READ on
the topic `_schemas`, a change WRITE.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.principal import ANONYMOUS, USER, Principal
from minibroker.broker.upkeep import threads
from minibroker.broker.wings.registry.records import TOPIC
from minibroker.broker.wings.registry.refusals import Refusal
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation
from minibroker.protocol.sasl_client import OAUTHBEARER, LoginError, conversation

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
BASIC = "basic "


class Request(NamedTuple):
    """A request over HTTP. The path and the query are as they were sent; names of headers are in small letters."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    client: str  # its address
    body: Callable[[], Awaitable[bytes]]  # raises Refusal


class Asker:
    """The client of a request, as the authorizer knows one."""

    def __init__(self, principal: Principal, host: str) -> None:
        self.principal = principal
        self.host = host


class Access:
    """`is_local`: only this machine reaches the registry, so only names of this machine are served."""

    def __init__(self, parts: BrokerParts, *, is_local: bool) -> None:
        self._config = parts.config
        self._is_local = is_local
        self._listener = parts.config.endpoints[0].name
        self._servers: Mapping[str, Callable[[], Any]] = {}
        self._rights: Any = None
        if has_logins(parts.config):
            from minibroker.broker.wings.security.sasl.mechanisms import mechanisms_of
            from minibroker.broker.wings.security.sasl.users import ScramUsers

            users = ScramUsers(parts.state)
            found = mechanisms_of(self._listener, parts.config, users, parts.timers.clock.wall_ms)
            self._servers = {name: made for name, made in found.items() if name != OAUTHBEARER}
        if parts.config.authorizer_class_name:
            from minibroker.broker.wings.security.acls.wing import AclWing

            self._rights = next(each.authorizer for each in parts.wings if isinstance(each, AclWing))

    def tls(self) -> ssl.SSLContext | None:
        """The context of the broker's first listener; None without TLS there."""
        if not self._config.endpoints[0].is_encrypted:
            return None
        from minibroker.broker.wings.security.tls import TlsListener

        return TlsListener(self._config, self._listener).context()

    async def check(self, request: Request, *, is_change: bool) -> None:
        """Raises Refusal."""
        headers = request.headers
        host = headers.get("host", "")
        if self._is_local and (urlsplit(f"//{host}").hostname or "") not in LOCAL_NAMES:
            raise Refusal(400, "this registry is of this machine alone; ask it as localhost")
        if "origin" in headers and urlsplit(headers["origin"]).netloc.lower() != host.lower():
            raise Refusal(403, "a web page elsewhere made the browser send this")
        principal = await self._principal(headers.get("authorization", "")) if self._servers else ANONYMOUS
        if self._rights is not None:
            asker = Asker(principal, request.client)
            operation = Operation.WRITE if is_change else Operation.READ
            if not self._rights.decisions(asker, operation, ResourceType.TOPIC)[TOPIC]:
                raise Refusal(40301, f"{principal} may not {operation.title} the topic {TOPIC}")

    async def _principal(self, authorization: str) -> Principal:
        """Raises Refusal, after the broker's delay for those who may guess passwords."""
        try:
            if not authorization.lower().startswith(BASIC):
                raise ValueError("no user and password")
            user, _, password = base64.b64decode(authorization[len(BASIC) :]).decode().partition(":")
        except ValueError:
            raise Refusal(401, "Unauthorized: send the name and password of a user of the broker") from None
        for mechanism, make in self._servers.items():
            if await threads.run_sync(is_user, mechanism, make, user, password):
                return Principal(USER, user)
        await trio.sleep(self._config.connection_failed_authentication_delay_ms / 1000)
        raise Refusal(401, "Unauthorized: the broker knows no such user with this password")

    @staticmethod
    def headers(refusal: Refusal) -> dict[str, str]:
        return {"www-authenticate": 'Basic realm="schema registry"'} if refusal.code == 401 else {}


def is_user(mechanism: str, make: Callable[[], Any], user: str, password: str) -> bool:
    """Whether a login with these succeeds: both sides of the mechanism talk here."""
    from minibroker.broker.wings.security.sasl.mechanism import AuthenticationFailedError

    server, talk = make(), conversation(mechanism, user, password)
    try:
        token = next(talk)
        while True:
            token = talk.send(server.respond(token))
    except StopIteration:
        return str(server.user) == user
    except (AuthenticationFailedError, LoginError):
        return False


def has_logins(config: KafkaConfig) -> bool:
    """Whether clients of the first listener log in."""
    return config.endpoints[0].name in config.sasl_listeners


def problems_of(config: KafkaConfig) -> Sequence[str]:
    """Why a registry cannot be served with the security of the first listener."""
    listener = config.endpoints[0].name
    if has_logins(config) and set(config.sasl_listeners[listener].mechanisms) <= {OAUTHBEARER}:
        return [
            f"--schema-registry: its clients send a name and a password, and listener {listener} has OAUTHBEARER alone;"
            " enable PLAIN or SCRAM-SHA-256 there, or name another listener first"
        ]
    return []


def is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback
