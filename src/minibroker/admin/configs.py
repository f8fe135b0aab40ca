"""Configs of topics, brokers and groups as a cluster answers, and each refusal in one line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from minibroker.admin.outcomes import DENIED
from minibroker.admin.positions import DURATION, duration_ms
from minibroker.client.errors import DENIALS
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
OF_RESOURCE = re.compile(r"^Invalid config value for resource ConfigResource\(.*?\): ")  # which the line begins with
UNKNOWN = re.compile(r"Unknown \w+ config name: ([^;\s]+)")


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


def meaning_of(kind: Literal["topic", "broker"], name: str) -> str | None:
    """A line about a setting of topics, or about one of brokers that is their default; None about any other."""
    from minibroker.storage.config import TOPIC_CONFIGS  # a command that does not ask starts without it

    if kind == "topic":
        return TOPIC_CONFIGS[name].doc if name in TOPIC_CONFIGS else None
    return next((f"of topics: {row.doc}" for row in TOPIC_CONFIGS.values() if name in row.server_names), None)


def refusal(subject: Subject, code: int, reason: str) -> str:
    """A broker's refusal in one line, with the next step."""
    reason = OF_RESOURCE.sub("", " ".join(reason.split()).rstrip("."))
    advice = DENIED if code in DENIALS else f"{all_configs(subject)} lists them all"
    return f"{subject}: {without_java_types(reason)}; {advice}"


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
