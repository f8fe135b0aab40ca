"""Security: clients authenticate by SASL, or by a certificate, and connections are encrypted. ACLs are in `acls/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.sasl import SaslError
from minibroker.broker.network.connection import Connection
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.way.stage import Stage
from minibroker.broker.wing import Wing
from minibroker.broker.wings.security.delegation_tokens import DelegationTokenApis
from minibroker.broker.wings.security.key_stores import KeyStoreError
from minibroker.broker.wings.security.logins import Logins, logins_of
from minibroker.broker.wings.security.sasl.users import CREDENTIALS, SALT_KEY, ScramUsers
from minibroker.broker.wings.security.sasl_apis import SaslApis


class SecurityWing(Wing):
    """Every broker keeps credentials of users; listeners that ask for them, or encrypt, are those of the settings.

    Raises KeyStoreError and SaslError.
    """

    sections = (CREDENTIALS, SALT_KEY)

    def __init__(self, parts: BrokerParts) -> None:
        config = parts.config
        self.users = ScramUsers(parts.state)
        self.logins: Logins | None = None
        if config.sasl_listeners:
            self.logins = logins_of(config, self.users, parts.timers)
        self.tls = {}
        if is_encrypted(config):
            from minibroker.broker.wings.security.tls import problems_of, tls_listeners

            self.tls = tls_listeners(config)
            parts.dynamic_config.checks.append(problems_of)

    @classmethod
    def problems(cls, config: KafkaConfig, options: ServeOptions) -> Sequence[str]:
        if is_encrypted(config):
            from minibroker.broker.wings.security.tls import problems_of

            if problems := problems_of(config):
                return problems
        if options.cluster_dir is not None or options.zookeeper is not None:
            from minibroker.broker.wings.security.peer_login import peer_login

            try:
                peer_login(config)
            except (KeyStoreError, SaslError) as error:
                return [str(error)]
        return ()

    def frame_stages(self) -> Sequence[Stage]:
        return [] if self.logins is None else [self.logins.frames]

    def stages(self) -> Sequence[Stage]:
        return [] if self.logins is None else [self.logins]

    def greet(self, client: Client) -> None:
        if self.logins is not None:
            self.logins.begin(client)

    def kinds_of_connections(self) -> Mapping[str, Callable[..., Connection]]:
        if not self.tls:
            return {}
        from minibroker.broker.wings.security.tls_connection import TlsConnection

        return {name: partial(TlsConnection, tls=listener) for name, listener in self.tls.items()}

    def routes(self) -> Routes:
        return SaslApis(self.users).routes() | DelegationTokenApis().routes()


def is_encrypted(config: KafkaConfig) -> bool:
    return any(endpoint.is_encrypted for endpoint in config.endpoints)
