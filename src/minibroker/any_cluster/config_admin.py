"""The requests of the `configs` commands, and what a cluster's answers mean.

A refusal keeps the broker's words, with the next step. Brokers before 2.3 can only replace all configs of a resource
at once: the others are read first, and sent along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from minibroker.any_cluster.cluster import (
    DENIED,
    topics_of,
)
from minibroker.any_cluster.partition_offsets import missing_topic
from minibroker.any_cluster.positions import DURATION, duration_ms
from minibroker.client.client import Client
from minibroker.client.errors import DENIALS, error_name
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.guesses import next_step
from minibroker.protocol.text import without_java_types

DEFAULT_SOURCE = "DEFAULT_CONFIG"
SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: DEFAULT_SOURCE,
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "CLIENT_METRICS_CONFIG",
    8: "GROUP_CONFIG",
}
RESOURCE_TYPES = {"topic": 2, "broker": 4, "group": 32}
SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
OF_RESOURCE = re.compile(r"^Invalid config value for resource ConfigResource\(.*?\): ")  # which the line begins with
UNKNOWN = re.compile(r"Unknown \w+ config name: ([^;\s]+)")
PROTOCOL_SETTING = "inter.broker.protocol.version"  # 2.0-IV1
FIRST_WITH_GROUPS = "4.0"
RELEASE = re.compile(r"\d+\.\d+")


class Subject(NamedTuple):
    """A topic, a broker by its id, or a group, which need not have members."""

    kind: str  # topic, broker, group
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Config(NamedTuple):
    """`value` is None if it is unset or secret."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


def release_of(client: Client, broker: int) -> str | None:
    """The release of Kafka as which a broker acts, such as 2.0; None for one that has no setting for it (Kafka 4.0)."""
    resources = [(RESOURCE_TYPES["broker"], str(broker), [PROTOCOL_SETTING])]
    (found,) = client.ask(ApiKey.DESCRIBE_CONFIGS, broker=broker, resources=resources).results
    values = [each.value for each in found.configs if each.name == PROTOCOL_SETTING]
    release = RELEASE.match(values[0] or "") if values else None
    return None if release is None else release[0]


def meaning_of(kind: Literal["topic", "broker"], name: str) -> str | None:
    """A line about a setting of topics, or about one of brokers that is their default; None about any other."""
    from minibroker.storage.config import TOPIC_CONFIGS  # a command that does not ask starts without it

    if kind == "topic":
        return TOPIC_CONFIGS[name].doc if name in TOPIC_CONFIGS else None
    return next((f"of topics: {row.doc}" for row in TOPIC_CONFIGS.values() if name in row.server_names), None)


def describe(client: Client, subject: Subject) -> list[Config]:
    """All configs by name. Raises CommandFailed if the topic or broker does not exist."""
    check_exists(client, subject)
    return [
        Config(row.name, row.value, source_of(row), row.read_only, row.is_sensitive)
        for row in sorted(configs_of(client, subject))
    ]


def set_values(client: Client, subject: Subject, values: Mapping[str, str]) -> None:
    """Raises CommandFailed; then nothing has changed."""
    check_exists(client, subject)
    if subject.kind == "group":  # an older Kafka has no configs of groups, which this says
        configs_of(client, subject)
    try:
        alter(client, subject, values)
    except CommandFailed as failure:
        if (unknown := UNKNOWN.search(str(failure))) is None:
            raise
        known = [row.name for row in configs_of(client, subject)]
        raise CommandFailed(no_config(subject, unknown[1], known)) from failure


def unset(client: Client, subject: Subject, names: Sequence[str]) -> None:
    """Reset configs to their defaults. Raises CommandFailed; then nothing has changed."""
    known = {config.name for config in describe(client, subject)}
    for name in names:
        if name not in known:
            raise CommandFailed(no_config(subject, name, known))
    alter(client, subject, dict.fromkeys(names))


def alter(client: Client, subject: Subject, changes: Mapping[str, str | None]) -> None:
    """Set these configs; unset one whose value is None."""
    if ApiKey.INCREMENTAL_ALTER_CONFIGS in client.versions:
        api = ApiKey.INCREMENTAL_ALTER_CONFIGS
        rows: list[Any] = [(name, DELETE if value is None else SET, value) for name, value in changes.items()]
    else:
        api = ApiKey.ALTER_CONFIGS
        kept = {row.name: row.value for row in configs_of(client, subject) if is_own(row, subject)}
        rows = [(name, value) for name, value in {**kept, **changes}.items() if value is not None]
    resources = [(*resource_of(subject), rows)]
    (result,) = client.ask(api, broker=broker_of(subject), resources=resources).responses
    if result.error_code:
        reason = result.error_message or error_name(result.error_code)
        set_values = {name: value for name, value in changes.items() if value is not None}
        raise CommandFailed(refusal(subject, result.error_code, reason) + in_ms(set_values))


def check_exists(client: Client, subject: Subject) -> None:
    if subject.kind == "group":  # any may be
        return
    if subject.kind == "topic":
        (topic,) = topics_of(client, [subject.name])
        if topic.error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        ):
            raise CommandFailed(missing_topic(client, subject.name))
        return
    client.metadata([])
    ids = sorted(client.brokers)
    if int(subject.name) not in ids:
        raise CommandFailed(f"the cluster has no {subject}; its brokers: {', '.join(map(str, ids))}")


def refusal(subject: Subject, code: int, reason: str) -> str:
    """A broker's refusal in one line, with the next step."""
    reason = OF_RESOURCE.sub("", " ".join(reason.split()).rstrip("."))
    advice = DENIED if code in DENIALS else f"{all_configs(subject)} lists them all"
    return f"{subject}: {without_java_types(reason)}; {advice}"


def configs_of(client: Client, subject: Subject) -> list[Any]:
    """The rows of all configs. Raises CommandFailed if there are none: then the broker has refused."""
    resources = [(*resource_of(subject), None)]
    (found,) = client.ask(ApiKey.DESCRIBE_CONFIGS, broker=broker_of(subject), resources=resources).results
    if found.error_code or not found.configs:
        brought = f", which came with {FIRST_WITH_GROUPS}" if subject.kind == "group" else ""
        raise CommandFailed(f"the broker did not return the configs of {subject}{brought}; see its log and its ACLs")
    rows: list[Any] = found.configs
    return rows


def resource_of(subject: Subject) -> tuple[int, str]:
    return RESOURCE_TYPES[subject.kind], subject.name


def broker_of(subject: Subject) -> int | None:
    """The broker to ask; any but for a broker's own configs."""
    return int(subject.name) if subject.kind == "broker" else None


def source_of(row: Any) -> str:
    """Kafka's name of where a config is set; the first version of the answer has only whether it is the default."""
    if row.config_source < 0:
        return DEFAULT_SOURCE if row.is_default else "UNKNOWN"
    return SOURCES.get(row.config_source, "UNKNOWN")


def is_own(row: Any, subject: Subject) -> bool:
    """Whether a config is set on the topic or the broker itself, while it runs."""
    return source_of(row) in ("UNKNOWN", f"DYNAMIC_{subject.kind.upper()}_CONFIG") and not row.read_only


def no_config(subject: Subject, name: str, known: Iterable[str]) -> str:
    return f"{subject} has no config {name}; {next_step(name, known, f'{all_configs(subject)} lists them all')}"


def in_ms(values: Mapping[str, str]) -> str:
    """The next step for durations such as 1h, which Kafka's settings do not take."""
    durations = [(name, value) for name, value in values.items() if name.endswith(".ms") and DURATION.fullmatch(value)]
    return "".join(f"; in milliseconds: {name}={duration_ms(value)}" for name, value in durations)


def all_configs(subject: Subject) -> str:
    return f"`minibroker configs describe --{subject.kind} {subject.name} --all`"
