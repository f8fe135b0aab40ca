"""The settings of SASL listeners: their mechanisms, and the login module of each (kafka 2.0.1 JaasContext).

A login module is in `listener.name.<listener>.<mechanism>.sasl.jaas.config`, both names in lower case: as in Kafka, a
`sasl.jaas.config` without them does not count on a broker. Without that setting it is in the JAAS file that a JVM would
be started with, in the section `<listener>.KafkaServer` or `KafkaServer`. A message about a login module names its
setting, or the file, and Kafka's reason, and never shows the value. Imported only where a listener has SASL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from minibroker.broker.config.settings.unused import JAAS_FILE
from minibroker.protocol.jaas import JaasError, LoginModule, parse_jaas, parse_jaas_file
from minibroker.protocol.text import reason_of

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MODULES = {PLAIN: PLAIN_MODULE, OAUTHBEARER: OAUTHBEARER_MODULE}  # SCRAM_MODULE for the others
# What checks signed tokens in later releases; the setting of a key file is enough here.
SIGNED_TOKEN_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_TOKEN_HANDLER = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
JAAS_CONFIG = "sasl.jaas.config"
SERVER_SECTION = "KafkaServer"
USER_PREFIX = "user_"
# Of the broker itself, as a client of others.
OWN_USER, OWN_PASSWORD = "username", "password"
OWN_USER_CLAIM = "unsecuredLoginStringClaim_sub"
SKEW_OPTION = "unsecuredValidatorAllowableClockSkewMs"


class SaslListener(NamedTuple):
    """The enabled mechanisms of a listener with their login modules; `keys_file` if tokens are signed.

    `sources` has the place of each login module: its setting, or a section of a file.
    """

    mechanisms: Mapping[str, LoginModule]
    keys_file: Path | None
    sources: Mapping[str, str]

    @property
    def accepts_unsecured_tokens(self) -> bool:
        return OAUTHBEARER in self.mechanisms and self.keys_file is None


class SaslError(ValueError):
    """A SASL listener cannot work; the message is Kafka's, where it has one."""


def sasl_listener(
    listener: str, mechanisms: Sequence[str], given: Mapping[str, str], keys_url: str | None
) -> SaslListener:
    """Read the settings of one listener; `given` are all settings as text. Raises SaslError."""
    modules, sources = {}, {}
    for mechanism in mechanisms:
        if mechanism not in MECHANISMS:
            raise SaslError(
                f"SASL mechanism {mechanism} of listener {listener} is not supported; the supported ones are"
                f" {', '.join(MECHANISMS)}"
            )
        refuse_handlers(listener, mechanism, given)
        modules[mechanism], sources[mechanism] = login_module(listener, mechanism, given)
    return SaslListener(modules, None if keys_url is None else keys_file(keys_url), sources)


def setting_of(listener: str, mechanism: str, name: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}"


def login_module(listener: str, mechanism: str, given: Mapping[str, str]) -> tuple[LoginModule, str]:
    """The login module, and its place. Raises SaslError."""
    source = setting_of(listener, mechanism, JAAS_CONFIG)
    if source in given:
        try:
            modules = [parse_jaas(given[source])]
        except JaasError as error:
            raise SaslError(f"{error}; see {source}") from None
    else:
        source, modules = section_of_file(listener, source, given)
    expected = MODULES.get(mechanism, SCRAM_MODULE)
    for each in modules:
        if each.name not in (*MODULES.values(), SCRAM_MODULE):
            raise SaslError(f"No LoginModule found for {each.name}; {source} needs {expected}")
    # Kafka looks for options in an entry of another module in vain.
    module = next((each for each in modules if each.name == expected), LoginModule(expected, {}))
    check_options(source, module)
    return module, source


def section_of_file(listener: str, setting: str, given: Mapping[str, str]) -> tuple[str, list[LoginModule]]:
    """The section of the JAAS file for a listener: its place, and its login modules. Raises SaslError."""
    names = f"{listener.lower()}.{SERVER_SECTION}", SERVER_SECTION
    file = given.get(JAAS_FILE)
    sections = {} if file is None else read_jaas_file(file)
    for name in names:
        if name in sections:
            return f"section {name} of {file}", sections[name]
    raise SaslError(
        f"Could not find a '{names[1]}' or '{names[0]}' entry in the JAAS configuration. System property '{JAAS_FILE}'"
        f" is {'not set' if file is None else file}; set {setting}"
    )


def read_jaas_file(name: str) -> dict[str, list[LoginModule]]:
    """Read a file as the property of the JVM names it: a path or a `file:` URL, after a `=` to leave out others.

    Raises SaslError.
    """
    path = name.removeprefix("=")
    path = unquote(urlsplit(path).path) if path.startswith("file:") else path
    try:
        return parse_jaas_file(Path(path).read_text(encoding="utf-8"))
    except JaasError as error:
        raise SaslError(f"{path}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SaslError(f"cannot read {path}: {reason_of(error)}") from error


def check_options(name: str, module: LoginModule) -> None:
    """Raises SaslError."""
    skew = module.options.get(SKEW_OPTION, "").strip()
    if module.name == OAUTHBEARER_MODULE and skew and not (skew.isascii() and skew.isdecimal()):
        raise SaslError(f"{SKEW_OPTION} of {name} is not a number of milliseconds, 0 or more")


def refuse_handlers(listener: str, mechanism: str, given: Mapping[str, str]) -> None:
    """A class of the user's that decides who logs in cannot be loaded, and must not be ignored. Raises SaslError."""
    setting = setting_of(listener, mechanism, "sasl.server.callback.handler.class")
    handler = given.get(setting, "").strip()
    known = (*SIGNED_TOKEN_HANDLERS, UNSECURED_TOKEN_HANDLER) if mechanism == OAUTHBEARER else ()
    if handler and handler not in known:
        raise SaslError(f"Invalid value {handler} for configuration {setting}: Class {handler} could not be found.")
    keys = "sasl.oauthbearer.jwks.endpoint.url"
    if handler in SIGNED_TOKEN_HANDLERS and not any(name.endswith(keys) for name in given):
        raise SaslError(f"{setting} needs {keys}, the URL of a file of keys")


def keys_file(url: str) -> Path:
    """The file of a `file:` URL. Raises SaslError."""
    name = "sasl.oauthbearer.jwks.endpoint.url"
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise SaslError(f"{name} is not a file: URL, such as file:///etc/keys.json; this broker fetches no keys")
    if find_spec("cryptography") is None:
        raise SaslError(f"{name} needs the package cryptography: pip install cryptography (the extra `tls`)")
    path = Path(unquote(parts.path))
    if not path.is_file():
        raise SaslError(f"{name} names {path}, which is not a file")
    return path


def own_account(listener: str, mechanism: str, settings: SaslListener) -> tuple[str, str]:
    """The user that a broker is at this listener of others, and the password; "" for a token. Raises SaslError."""
    module = settings.mechanisms.get(mechanism)
    if module is None:
        enabled = ", ".join(settings.mechanisms)
        raise SaslError(
            f"sasl.mechanism.inter.broker.protocol is {mechanism}, and listener {listener} has only {enabled}"
        )
    if mechanism == OAUTHBEARER and settings.keys_file is not None:
        raise SaslError(
            f"brokers have no signed tokens to log in to each other with; give listener {listener} another mechanism,"
            " and name it with sasl.mechanism.inter.broker.protocol"
        )
    needed = (OWN_USER_CLAIM,) if mechanism == OAUTHBEARER else (OWN_USER, OWN_PASSWORD)
    missing = [each for each in needed if not module.options.get(each)]
    if missing:
        raise SaslError(
            f"{settings.sources[mechanism]} has no {' and no '.join(missing)}, by which brokers log in to each other"
        )
    user, *password = (module.options[each] for each in needed)
    return user, "".join(password)


def accounts(module: LoginModule) -> dict[str, str]:
    """The users of a PLAIN entry, with their passwords."""
    return {
        option.removeprefix(USER_PREFIX): password
        for option, password in module.options.items()
        if option.startswith(USER_PREFIX)
    }
