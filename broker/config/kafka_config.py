"""The broker's configuration: a server.properties as Kafka users have it, checked before anything starts.

`load_config` merges the sources: --listen and --data-dir win over --set, --set wins over the environment (read only
with --environment), and the environment wins over the file. A `KafkaConfig` then has every value, parsed, under its
attribute. A message about a wrong value names the value, its source and the allowed values; all errors come at once as
far as possible.

Imports little: the broker listens before it imports the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from minibroker.broker.config.profiles import EVERYTHING, Habit, Profile
from minibroker.broker.config.settings.changeable import SETTINGS, overridden
from minibroker.broker.config.settings.endpoints import (
    Endpoint,
    EndpointError,
    listener_prefix,
    parse_advertised,
    parse_connection_limits,
    parse_listeners,
    split_list,
)
from minibroker.broker.config.settings.rules import (
    VERSIONS,
    broken_listener_rule,
    broken_rules,
    listener_of_brokers,
)
from minibroker.broker.config.settings.table import KafkaSettings
from minibroker.broker.config.settings.types import InvalidValueError, Setting
from minibroker.broker.config.settings.unused import JAAS_FILE, UNUSED_SETTINGS, Reason, own_name, reason_unused

if TYPE_CHECKING:
    from minibroker.broker.config.sasl import SaslListener
    from minibroker.storage.config import LogConfig

logger = logging.getLogger(__name__)
T = TypeVar("T")

PLAINTEXT = "PLAINTEXT"
DEFAULT_LISTENERS = "PLAINTEXT://127.0.0.1:9092"
DEFAULT_DATA_DIR = "minibroker-data"

OF_TOPICS = ("compression.type", "log.message.format.version", "log.segment.bytes")  # whose value a release may refuse


class ConfigError(Exception):
    """The broker cannot start with these settings; the message has a line for each error.

    `rule` is Kafka's message for the first broken rule between settings, if the first error is one, and `plain` its
    message for other errors. `warnings` and `notes` are those of the settings, as if they were valid.
    """

    def __init__(self, message: str, rule: str | None = None, plain: str | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.plain = plain
        self.warnings: list[str] = []
        self.notes: list[str] = []


class KafkaConfig(KafkaSettings):
    """All settings of one broker, and values derived from them.

    `static` has the texts of the settings at the start, `sources` the place of each ("server.properties line 3");
    `of_cluster` and `of_broker` are the changes since, for all brokers and for this one, and `given` merges the three.
    Settings without effect are in `notes`; those whose loss may hurt, and unknown names, are in `warnings`. Raises
    ConfigError.
    """

    def __init__(
        self,
        static: Mapping[str, str],
        sources: Mapping[str, str] | None = None,
        *,
        profile: Profile = EVERYTHING,
        of_cluster: Mapping[str, str] | None = None,
        of_broker: Mapping[str, str] | None = None,
    ) -> None:
        self.profile = profile
        self.static = dict(static)
        self.sources = dict(sources or {})
        self.of_cluster = dict(of_cluster or {})
        self.of_broker = dict(of_broker or {})
        self.given = overridden(overridden(static, self.of_cluster), self.of_broker)
        self._values: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self._report_without_effect()
        self._check_all()
        self.broker_id = max(self.broker_id, 0)

    @property
    def listen_addresses(self) -> list[tuple[str, int]]:
        """The addresses to listen on; an empty host is every interface, port 0 any free port."""
        return [(endpoint.host, endpoint.port) for endpoint in self.endpoints]

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener by which brokers reach each other."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @property
    def log_config(self) -> LogConfig:
        """The settings of a topic without configs of its own."""
        from minibroker.storage.config import TOPIC_CONFIGS, LogConfig

        values = {
            row.attribute: self._values[row.server_names[0]] for row in TOPIC_CONFIGS.values() if row.server_names
        }
        values |= {
            "segment_ms": self.log_roll_time_ms,
            "segment_jitter_ms": self.log_roll_jitter_time_ms,
            "retention_ms": self.log_retention_time_ms,
            "flush_ms": self.log_flush_time_ms,
        }
        return LogConfig(**values, as_later=Habit.ANSWERS_ALIKE in self.profile.habits)

    def take_over(self, other: KafkaConfig) -> None:
        """Replace every value by that of `other`, for all parts that hold this configuration."""
        vars(self).update(vars(other))

    def for_listener(self, listener: str, name: str) -> Any:
        """The value of a setting for one listener: `listener.name.<listener>.<name>` if it is set, else `<name>`."""
        text = self.given.get(listener_prefix(listener) + name)
        return self._values[name] if text is None else SETTINGS[name].read(text)

    def max_connections_for(self, address: str) -> int:
        """The greatest number of connections of one client address."""
        return self._connection_limits.get(address.removeprefix("::ffff:"), self.max_connections_per_ip)

    def text_of(self, name: str) -> str | None:
        """The value of a setting as Kafka writes it; None for no value, or for an unknown setting."""
        row = SETTINGS.get(name)
        return None if row is None else row.write(self._values[name])

    def default_of(self, row: Setting[T]) -> T | None:
        """The default of a setting, in the release that this broker acts as."""
        if row.name not in self.profile.defaults:
            return row.default
        text = self.profile.defaults[row.name]
        return None if text is None else row.read(text)

    def _check_all(self) -> None:
        """Find all errors, not only the first: users want to correct a file once."""
        problems: list[ConfigError] = []
        try:
            self._read()
            self._check_together()  # only if all values are valid
        except ConfigError as error:
            problems.append(error)
        self.endpoints: list[Endpoint] = []
        for derive in (
            *(self._derive_endpoints, self._read_for_listeners, self._derive_advertised),
            *(self._derive_sasl, self._derive_limits, self._derive_directory),
        ):
            try:
                derive()
            except ConfigError as error:
                problems.append(error)
        if problems:
            combined = ConfigError("\n".join(map(str, problems)), problems[0].rule, problems[0].plain)
            combined.warnings, combined.notes = self.warnings, self.notes
            raise combined

    def _read(self) -> None:
        problems = []
        for name, row in SETTINGS.items():
            value = self.default_of(row)
            if name in self.given and self.profile.has_setting(name):
                try:
                    value = row.read(self.given[name])
                except InvalidValueError as error:
                    problems.append(self._invalid(name, row, error))
            self._values[name] = value
            if name not in UNUSED_SETTINGS:
                vars(self)[name.replace(".", "_")] = value
        if problems:
            raise ConfigError("\n".join(problems))

    def _read_for_listeners(self) -> None:
        """Check the settings of single listeners (as kafka 2.0.1 AbstractConfig.valuesWithPrefixOverride)."""
        problems = []
        for name in self.given:
            row = self._setting_of_listener(name)
            if row is not None:
                try:
                    row.read(self.given[name])
                except InvalidValueError as error:
                    problems.append(self._invalid(name, row, error))
        if problems:
            raise ConfigError("\n".join(problems))

    def _setting_of_listener(self, name: str) -> Setting[Any] | None:
        """The setting that `listener.name.<listener>.<setting>` overrides, also with a mechanism before the setting."""
        for endpoint in self.endpoints:
            own = name.removeprefix(listener_prefix(endpoint.name))
            if own != name:
                return SETTINGS.get(own) or SETTINGS.get(own.partition(".")[2])
        return None

    def _invalid(self, name: str, row: Setting[Any], error: InvalidValueError) -> str:
        source = f"{name} in {self.sources[name]}; " if name != row.name and name in self.sources else ""
        source = f"{self.sources[name]}; " if name == row.name and name in self.sources else source
        value = self.given[name].strip() if error.shown is None else error.shown
        return f"Invalid value {value} for configuration {row.name}: {error} ({source}allowed: {row.allowed})"

    def _check_together(self) -> None:
        broken = broken_rules(self)
        problems = [message + self._where(*names) for message, names in broken]
        for name in VERSIONS:
            if not self._is_known_version(name):
                problems.append(f"Version `{self._values[name]}` is not a valid version{self._where(name)}")
        for name in filter(self.profile.has_setting, OF_TOPICS):
            problem = self.profile.problem_with_topic_config(name.removeprefix("log."), str(self._values[name]))
            if problem is not None:
                problems.append(problem + self._where(name))
        if problems:
            raise ConfigError("\n".join(problems), broken[0][0] if broken else None)

    def _is_known_version(self, name: str) -> bool:
        if name not in self.given:
            return True
        from minibroker.protocol.errors import KafkaError
        from minibroker.storage.config import parse_value

        try:
            parse_value("message.format.version", self._values[name])
        except KafkaError:
            return False
        return True

    def _derive_endpoints(self) -> None:
        text = f"PLAINTEXT://{self.host_name}:{self.port}" if self.listeners is None else self.listeners
        self.endpoints = self._parsed(
            lambda: parse_listeners(text, self.listener_security_protocol_map),
            *("listeners", "host.name", "port", "listener.security.protocol.map"),
        )

    def _derive_advertised(self) -> None:
        """Set the address for the clients of each listener that has one.

        Without advertised.listeners Kafka advertises the listener's own host. Here the address is empty: a client gets
        the one that it has used, since that works for it. So does port 0.
        """
        advertised = self._advertised_by_listener()
        listeners = [endpoint.name for endpoint in self.endpoints]
        self.advertised_endpoints = advertised or dict.fromkeys(listeners, ("", 0))
        if self.endpoints:  # without them, their error is known already
            self._check_listeners(listeners, list(advertised) or listeners)

    def _advertised_by_listener(self) -> dict[str, tuple[str, int]]:
        text = self.advertised_listeners
        if text is None:
            host = self.advertised_host_name
            return {} if host is None else {PLAINTEXT: (host, self.advertised_port or 0)}
        advertised = self._parsed(
            lambda: parse_advertised(text, self.listener_security_protocol_map),
            *("advertised.listeners", "listener.security.protocol.map"),
        )
        return {endpoint.name: (endpoint.host, endpoint.port) for endpoint in advertised}

    def _check_listeners(self, listeners: list[str], advertised: list[str]) -> None:
        """Check the listeners together, once each is valid."""
        broken = broken_listener_rule(self, self.given, listeners, advertised)
        if broken is not None:
            message, names = broken
            raise ConfigError(message + self._where(*names), message)

    def _derive_sasl(self) -> None:
        """Read the mechanisms of each SASL listener, with their users."""
        self.sasl_listeners: dict[str, SaslListener] = {}
        secured = [endpoint.name for endpoint in self.endpoints if endpoint.protocol.startswith("SASL_")]
        if not secured:
            if JAAS_FILE in self.given:
                self.notes.append(f"{JAAS_FILE}: no effect, no listener has SASL{self._where(JAAS_FILE)}")
            return
        from minibroker.broker.config.sasl import SaslError, sasl_listener

        problems = []
        for listener in secured:
            try:
                self.sasl_listeners[listener] = sasl_listener(
                    listener,
                    self.for_listener(listener, "sasl.enabled.mechanisms"),
                    self.given,
                    keys_url=self.for_listener(listener, "sasl.oauthbearer.jwks.endpoint.url"),
                )
            except SaslError as error:
                problems.append(f"{error}{self._where(JAAS_FILE)}")
                continue
            if self.sasl_listeners[listener].accepts_unsecured_tokens:
                self.warnings.append(
                    f"listener {listener} accepts tokens that are not signed: every client may log in as any user; set"
                    " sasl.oauthbearer.jwks.endpoint.url"
                )
        if problems:
            raise ConfigError("\n".join(dict.fromkeys(problems)), plain=problems[0])

    def _derive_limits(self) -> None:
        self._connection_limits = self._parsed(
            lambda: parse_connection_limits(self.max_connections_per_ip_overrides),
            "max.connections.per.ip.overrides",
        )

    def _parsed(self, parse: Callable[[], T], *names: str) -> T:
        try:
            return parse()
        except EndpointError as error:
            raise ConfigError(f"{error}{self._where(*names)}", plain=error.kafka_message) from error

    def _derive_directory(self) -> None:
        directories = split_list(str(self.log_dir) if self.log_dirs is None else self.log_dirs)
        where = self._where("log.dirs", "log.dir")
        if not directories:
            raise ConfigError(f"At least one log directory must be defined via log.dirs or log.dir.{where}")
        if len(directories) > 1:
            raise ConfigError(f"log.dirs names {len(directories)} directories; this broker uses one{where}")
        self.log_dir = Path(directories[0]).absolute()

    def _report_without_effect(self) -> None:
        by_reason: dict[Reason, list[str]] = {}
        for name in self.given:
            reason = reason_unused(name)
            if name == JAAS_FILE:
                continue
            if not self.profile.has_setting(name):
                release = f"Kafka {self.profile.name}, which this broker acts as"
                self.warnings.append(f"{name} is not a setting of {release}")
            elif reason is not None:
                by_reason.setdefault(reason, []).append(name)
            elif own_name(name) not in SETTINGS:
                source = f" ({self.sources[name]})" if name in self.sources else ""
                self.warnings.append(f"{name} is not a setting of Kafka 2.0{source}{suggestion(name)}")
        for reason, names in by_reason.items():
            messages = self.warnings if reason.is_warning else self.notes
            messages.append(f"{', '.join(names)}: no effect, {reason.text}")

    def _where(self, *names: str) -> str:
        """Show those of `names` that were set, with value and source, in parentheses."""
        parts = [
            f"{name}={self.given[name]}" + (f" in {self.sources[name]}" if name in self.sources else "")
            for name in names
            if name in self.given
        ]
        return f" ({', '.join(parts)})" if parts else ""


def suggestion(name: str) -> str:
    """`; did you mean ...?`, or nothing."""
    import difflib  # only after a mistake

    candidates = [each for each in SETTINGS if each == f"log.{name}"]
    candidates += difflib.get_close_matches(name, SETTINGS, n=1, cutoff=0.85)
    return f"; did you mean {candidates[0]}?" if candidates else ""


class Images(Protocol):
    """Settings in the form of other images of Kafka (`wings/images/`)."""

    def file(self) -> Path | None:
        """Return the server.properties that such an image reads."""

    def add(self, given: dict[str, str], sources: dict[str, str]) -> tuple[list[str], list[str]]:
        """Add settings to those of the file, with their sources; return warnings and notes. Raises ConfigError."""


def load_config(
    path: Path | None,
    assignments: Iterable[str],
    *,
    listen: str | None,
    data_dir: str | None,
    images: Images | None = None,
    profile: Profile = EVERYTHING,
) -> KafkaConfig:
    """Read server.properties, what `images` add, and the command line; log warnings and notes. Raises ConfigError."""
    given: dict[str, str] = {}
    sources: dict[str, str] = {}
    notes: list[str] = []
    if path is None and images is not None:
        path = images.file()
        notes += [] if path is None else [f"settings are read from {path}, and variables win over it"]
    warnings = [] if path is None else _read_file(path, given, sources)
    if images is not None:
        for messages, added in zip((warnings, notes), images.add(given, sources), strict=True):
            messages += added
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--set {assignment} is not KEY=VALUE")
        given[name.strip()], sources[name.strip()] = value, "--set"
    if listen is not None:
        named = listen if "://" in listen else f"{listener_of_brokers(given)}://{listen}"
        given["listeners"], sources["listeners"] = named, "--listen"
        drop_other_listeners(given, {each.partition("://")[0].upper() for each in split_list(named)})
    elif not given.keys() & {"listeners", "host.name", "port"}:
        given["listeners"] = DEFAULT_LISTENERS
    if data_dir is not None:
        given["log.dirs"], sources["log.dirs"] = data_dir, "--data-dir"
    elif not given.keys() & {"log.dirs", "log.dir"}:
        given["log.dirs"] = DEFAULT_DATA_DIR
    try:
        config = KafkaConfig(given, sources, profile=profile)
    except ConfigError as error:
        error.warnings[:0], error.notes[:0] = warnings, notes
        raise
    config.warnings[:0], config.notes[:0] = warnings, notes
    log_warnings(config)
    return config


def drop_other_listeners(given: dict[str, str], names: Collection[str]) -> None:
    """Advertise only the listeners `names`: --listen replaces all listeners of a file by those."""
    advertised = split_list(given.get("advertised.listeners", ""))
    if not advertised:
        return
    kept = [each for each in advertised if each.partition("://")[0].upper() in names]
    if kept:
        given["advertised.listeners"] = ",".join(kept)
    else:
        del given["advertised.listeners"]


def log_warnings(config: KafkaConfig | ConfigError) -> None:
    """Log the warnings and notes."""
    for warning in config.warnings:
        logger.warning("%s", warning)
    for note in config.notes:
        logger.info("%s", note)


def _read_file(path: Path, given: dict[str, str], sources: dict[str, str]) -> list[str]:
    """Add the entries of a file; return a warning for each repeated one."""
    from minibroker.protocol.java_properties import PropertiesError, parse_properties

    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}; name another with --config FILE") from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # the encoding in which Java reads properties files
    repeated = []
    try:
        for name, value, line in parse_properties(text):
            source = f"{path.name} line {line}"
            if name in given:
                repeated.append(f"{name} is set twice: {sources[name]} and {source}; the last counts")
            given[name], sources[name] = value, source
    except PropertiesError as error:
        raise ConfigError(f"{path}: {error}") from error
    return repeated
