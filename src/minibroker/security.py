"""Makes the broker of a test secure: its settings, its users, and the credentials of each.

The broker has a second listener, for this process alone: administration between tests must work whatever mechanisms
and rules the test has. Its user is `ADMINISTRATOR`, with a password of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from minibroker.acl import Acl
from minibroker.certificates import OWN_HOSTS, Certificates
from minibroker.client.login import Login
from minibroker.client_settings import JAVA_MODULES, JAVA_SCRAM, Access
from minibroker.protocol.jaas import written_jaas
from minibroker.protocol.sasl_client import MECHANISMS, OAUTHBEARER, PLAIN
from minibroker.protocol.scram import BY_NAME as SCRAM_MECHANISMS

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
SUPER_USER = "admin"
ADMINISTRATOR = "minibroker"
ADMINISTRATION = "MINIBROKER"  # the second listener
PASSWORD_BYTES = 18
EVERY_INTERFACE = ("", "0.0.0.0", "::")
USER_OF_A_CERTIFICATE = "RULE:^CN=(.*),OU=users,O=minibroker$/$1/,DEFAULT"


class Security:
    """As the arguments of `Broker` have it; certificates go into `directory`. Raises ValueError, and BrokerError."""

    def __init__(
        self,
        protocol: str,
        directory: Path,
        *,
        users: Mapping[str, str] | Iterable[str] = (),
        mechanisms: Sequence[str] = DEFAULT_MECHANISMS,
        acls: Iterable[Acl] | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        if protocol not in PROTOCOLS:
            raise ValueError(f"security={protocol!r} is none of {', '.join(PROTOCOLS)}")
        for each in mechanisms:
            if each not in MECHANISMS:
                raise ValueError(f"{each!r} is none of the mechanisms {', '.join(MECHANISMS)}")
        self.protocol = protocol
        self.mechanisms = tuple(mechanisms) if protocol.startswith("SASL") else ()
        given = users if isinstance(users, Mapping) else {name: new_password() for name in users}
        self.users: dict[str, str] = {SUPER_USER: new_password(), **given}
        self.acls = None if acls is None else tuple(acls)
        self._asks_for_certificates = protocol == "SSL" and (bool(given) or acls is not None)
        self._password = new_password()
        self._certificates = Certificates(directory, hosts_of(host)) if protocol.endswith("SSL") else None

    def listeners(self, address: str, administration: str) -> str:
        """As `listeners` has them; the second address is that of the listener for administration."""
        return f"{self.protocol}://{address},{ADMINISTRATION}://{administration}"

    def settings(self) -> dict[str, str]:
        """Kafka's settings of the broker, besides `listeners`."""
        name = f"listener.name.{ADMINISTRATION.lower()}"
        found = {
            "listener.security.protocol.map": f"{self.protocol}:{self.protocol},{ADMINISTRATION}:SASL_PLAINTEXT",
            "inter.broker.listener.name": ADMINISTRATION,
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            "sasl.enabled.mechanisms": PLAIN,
            f"{name}.plain.sasl.jaas.config": plain_accounts({ADMINISTRATOR: self._password}, ADMINISTRATOR),
        }
        if self.mechanisms:
            found |= self._sasl_settings()
        if self._certificates is not None:
            found |= self._tls_settings(self._certificates)
        if self.acls is not None:
            found["authorizer.class.name"] = "kafka.security.auth.SimpleAclAuthorizer"
            found["super.users"] = f"User:{SUPER_USER};User:{ADMINISTRATOR}"
        return found

    def _sasl_settings(self) -> dict[str, str]:
        name = f"listener.name.{self.protocol.lower()}"
        found = {f"{name}.sasl.enabled.mechanisms": ",".join(self.mechanisms)}
        for each in self.mechanisms:
            module = f"{JAVA_MODULES.get(each, JAVA_SCRAM)} required;"
            if each == PLAIN:
                module = plain_accounts(self.users, SUPER_USER)
            elif each == OAUTHBEARER:
                module = written_jaas(JAVA_MODULES[OAUTHBEARER], {"unsecuredLoginStringClaim_sub": SUPER_USER})
            found[f"{name}.{each.lower()}.sasl.jaas.config"] = module
        return found

    def _tls_settings(self, certificates: Certificates) -> dict[str, str]:
        found = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificates.broker_file),
        }
        if self._asks_for_certificates:
            found |= {
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(certificates.authority_file),
                "ssl.principal.mapping.rules": USER_OF_A_CERTIFICATE,
            }
        return found

    @property
    def scram_mechanisms(self) -> tuple[str, ...]:
        return tuple(each for each in self.mechanisms if each in SCRAM_MECHANISMS)

    @property
    def administrator(self) -> Login:
        """The login at the second listener."""
        return Login(PLAIN, ADMINISTRATOR, self._password)

    def access(self, address: str, user: str | None, mechanism: str | None) -> Access:
        """The credentials of a user at the listener; by default those of the super user by the first mechanism.

        Raises ValueError for a user or mechanism that the broker does not have.
        """
        user = SUPER_USER if user is None else user
        if user not in self.users:
            raise ValueError(f"the broker has no user {user}, only {', '.join(self.users)}")
        if mechanism is not None and mechanism not in self.mechanisms:
            raise ValueError(f"the broker has no mechanism {mechanism}, only {', '.join(self.mechanisms) or 'none'}")
        return Access(
            address,
            self.protocol,
            mechanism or next(iter(self.mechanisms), ""),
            user,
            self.users[user],
            str(self._certificates.authority_file) if self._certificates is not None else "",
            self._key_file(user),
        )

    def _key_file(self, user: str) -> str:
        if self._certificates is None or not self._asks_for_certificates:
            return ""
        return str(self._certificates.of_user(user))


def plain_accounts(users: Mapping[str, str], own: str) -> str:
    """The login module of PLAIN with these accounts; `own` is the broker's."""
    accounts = {f"user_{name}": password for name, password in users.items()}
    return written_jaas(JAVA_MODULES[PLAIN], {"username": own, "password": users[own], **accounts})


def new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def hosts_of(host: str) -> tuple[str, ...]:
    return OWN_HOSTS if host in EVERY_INTERFACE else (*OWN_HOSTS, host.strip("[]"))


def written(settings: Mapping[str, str], path: Path) -> Path:
    """The settings in a file that only this user can read; a command line shows them to every user."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items()))
    return path
