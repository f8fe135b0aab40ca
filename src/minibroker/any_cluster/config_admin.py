"""The requests of the `configs` commands, and what a cluster's answers mean.

A refusal keeps the broker's words, with the next step. Brokers before 2.3 can only replace all configs of a resource
at once: kafka-python reads the others first and sends them along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from minibroker.any_cluster.cluster import (
    DENIALS,
    DENIED,
    ConfigResource,
    ConfigResourceType,
    administering,
    errors,
    live_brokers,
)
from minibroker.any_cluster.partition_offsets import missing_topic
from minibroker.any_cluster.positions import DURATION, duration_ms
from minibroker.errors import CommandFailed
from minibroker.protocol.guesses import next_step
from minibroker.protocol.text import without_java_types

DEFAULT_SOURCE = "DEFAULT_CONFIG"
REFUSAL = re.compile(r"\[Error (?P<code>\d+)\] (?P<error>\w+):? ?(?P<message>.*)", re.DOTALL)
OF_RESOURCE = re.compile(r"^Invalid config value for resource ConfigResource\(.*?\): ")  # which the line begins with
UNKNOWN = re.compile(r"Unknown \w+ config name: ([^;\s]+)")
DONE = "OK"
PROTOCOL_SETTING = "inter.broker.protocol.version"  # 2.0-IV1
FIRST_WITH_GROUPS = "4.0"
RELEASE = re.compile(r"\d+\.\d+")
NOTHING: Mapping[str, str] = {}


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


def release_of(client: Any, broker: int) -> str | None:
    """The release of Kafka as which a broker acts, such as 2.0; None for one that has no setting for it (Kafka 4.0)."""
    resource = ConfigResource(ConfigResourceType.BROKER, str(broker), {PROTOCOL_SETTING: None})
    answer = client.describe_configs([resource], config_filter="all")
    found = answer.get("broker", {}).get(str(broker), {}).get(PROTOCOL_SETTING)
    release = RELEASE.match(found["value"] or "") if found else None
    return None if release is None else release[0]


def meaning_of(kind: Literal["topic", "broker"], name: str) -> str | None:
    """A line about a setting of topics, or about one of brokers that is their default; None about any other."""
    from minibroker.storage.config import TOPIC_CONFIGS  # a command that does not ask starts without it

    if kind == "topic":
        return TOPIC_CONFIGS[name].doc if name in TOPIC_CONFIGS else None
    return next((f"of topics: {row.doc}" for row in TOPIC_CONFIGS.values() if name in row.server_names), None)


class ConfigAdmin:
    """Configs of topics, brokers and groups of one cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def describe(self, subject: Subject) -> list[Config]:
        """All configs by name. Raises CommandFailed if the topic or broker does not exist."""
        self._check_exists(subject)
        return [
            Config(name, row["value"], row["config_source"], row["read_only"], row["is_sensitive"])
            for name, row in sorted(self._rows(subject).items())
        ]

    def _rows(self, subject: Subject) -> Mapping[str, Any]:
        answer = self._client.describe_configs([self._resource(subject, None)], config_filter="all")
        rows: Mapping[str, Any] | None = answer.get(subject.kind, {}).get(subject.name)
        if not rows:  # every resource has configs: kafka-python leaves a refusal out
            brought = f", which came with {FIRST_WITH_GROUPS}" if subject.kind == "group" else ""
            raise CommandFailed(
                f"the broker did not return the configs of {subject}{brought}; see its log and its ACLs"
            )
        return rows

    def set(self, subject: Subject, values: Mapping[str, str]) -> None:
        """Raises CommandFailed; then nothing has changed."""
        self._check_exists(subject)
        if subject.kind == "group":  # an older Kafka has no configs of groups, which this says
            self._rows(subject)
        resource = self._resource(subject, dict(values))
        try:
            self._check(subject, self._client.alter_configs([resource], raise_on_unknown=False), values)
        except CommandFailed as failure:
            if (unknown := UNKNOWN.search(str(failure))) is None:
                raise
            raise CommandFailed(no_config(subject, unknown[1], self._rows(subject))) from failure

    def unset(self, subject: Subject, names: Sequence[str]) -> None:
        """Reset configs to their defaults. Raises CommandFailed; then nothing has changed."""
        known = {config.name for config in self.describe(subject)}
        for name in names:
            if name not in known:
                raise CommandFailed(no_config(subject, name, known))
        resource = self._resource(subject, list(names))
        self._check(subject, self._client.reset_configs([resource], raise_on_unknown=False))

    def _resource(self, subject: Subject, configs: Any) -> Any:
        return ConfigResource(ConfigResourceType[subject.kind.upper()], subject.name, configs)

    def _check_exists(self, subject: Subject) -> None:
        if subject.kind == "group":  # any may be
            return
        if subject.kind == "topic":
            (topic,) = self._client.describe_topics([subject.name])
            if topic["error_code"] in (
                errors.UnknownTopicOrPartitionError.errno,
                errors.InvalidTopicError.errno,
            ):
                raise CommandFailed(missing_topic(self._client, subject.name))
            return
        ids = sorted(row["broker_id"] for row in live_brokers(self._client))
        if int(subject.name) not in ids:
            raise CommandFailed(f"the cluster has no {subject}; its brokers: {', '.join(map(str, ids))}")

    def _check(
        self, subject: Subject, answer: Mapping[str, Mapping[str, str]], values: Mapping[str, str] = NOTHING
    ) -> None:
        (result,) = answer[subject.kind].values()
        if result != DONE:
            raise CommandFailed(refusal(subject, result) + in_ms(values))


config_admin = administering(ConfigAdmin)


def refusal(subject: Subject, result: str) -> str:
    """A broker's refusal in one line, with the next step; `result` is kafka-python's text."""
    parts = REFUSAL.match(result)
    reason = " ".join((parts["message"] or parts["error"]).split() if parts else result.split()).rstrip(".")
    reason = OF_RESOURCE.sub("", reason)
    is_denied = parts is not None and int(parts["code"]) in DENIALS
    return (
        f"{subject}: {without_java_types(reason)}; {DENIED if is_denied else f'{all_configs(subject)} lists them all'}"
    )


def no_config(subject: Subject, name: str, known: Iterable[str]) -> str:
    return f"{subject} has no config {name}; {next_step(name, known, f'{all_configs(subject)} lists them all')}"


def in_ms(values: Mapping[str, str]) -> str:
    """The next step for durations such as 1h, which Kafka's settings do not take."""
    durations = [(name, value) for name, value in values.items() if name.endswith(".ms") and DURATION.fullmatch(value)]
    return "".join(f"; in milliseconds: {name}={duration_ms(value)}" for name, value in durations)


def all_configs(subject: Subject) -> str:
    return f"`minibroker configs describe --{subject.kind} {subject.name} --all`"
