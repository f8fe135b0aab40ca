"""What the `configs` commands ask of a cluster, and what its answers mean.

A change is told by the broker's own words, with what to do about a refusal. Brokers before 2.3 know only how to
replace all configs of a thing at once: kafka-python reads the others first and sends them along.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from minibroker.cli.address import Address
from minibroker.cli.cluster import ConfigResource, ConfigResourceType, connected, errors
from minibroker.cli.failures import CommandFailed

DEFAULT_SOURCE = "DEFAULT_CONFIG"
REFUSAL = re.compile(r"\[Error (?P<code>\d+)\] (?P<error>\w+):? ?(?P<message>.*)", re.DOTALL)
DONE = "OK"


class Subject(NamedTuple):
    """The topic, or the broker by its id, whose configs are meant."""

    kind: Literal["topic", "broker"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Config(NamedTuple):
    """`value` is None if there is none, or if it is secret."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


@contextmanager
def config_admin(bootstrap: Sequence[Address]) -> Iterator[ConfigAdmin]:
    """Connect to the first that answers. Raises CommandFailed, for what goes wrong later too."""
    with connected(bootstrap) as client:
        yield ConfigAdmin(client)


class ConfigAdmin:
    """Configs of topics and brokers of one cluster."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def describe(self, subject: Subject) -> list[Config]:
        """All configs by name. Raises CommandFailed if there is no such topic or broker."""
        self._check_exists(subject)
        answer = self._client.describe_configs([self._resource(subject, None)], config_filter="all")
        rows = answer.get(subject.kind, {}).get(subject.name)
        if not rows:  # everything has some: kafka-python leaves a refusal out
            raise CommandFailed(f"the broker does not tell the configs of {subject}; see its log and its ACLs")
        return [
            Config(name, row["value"], row["config_source"], row["read_only"], row["is_sensitive"])
            for name, row in sorted(rows.items())
        ]

    def set(self, subject: Subject, values: Mapping[str, str]) -> None:
        """Raises CommandFailed, and then nothing has changed."""
        self._check_exists(subject)
        resource = self._resource(subject, dict(values))
        self._check(subject, self._client.alter_configs([resource], raise_on_unknown=False))

    def unset(self, subject: Subject, names: Sequence[str]) -> None:
        """Back to their defaults. Raises CommandFailed, and then nothing has changed."""
        known = {config.name for config in self.describe(subject)}
        for name in names:
            if name not in known:
                raise CommandFailed(f"{subject} has no config {name}; {all_configs(subject)} lists what there is")
        resource = self._resource(subject, list(names))
        self._check(subject, self._client.reset_configs([resource], raise_on_unknown=False))

    def _resource(self, subject: Subject, configs: Any) -> Any:
        return ConfigResource(ConfigResourceType[subject.kind.upper()], subject.name, configs)

    def _check_exists(self, subject: Subject) -> None:
        if subject.kind == "topic":
            (topic,) = self._client.describe_topics([subject.name])
            if topic["error_code"] in (
                errors.UnknownTopicOrPartitionError.errno,
                errors.InvalidTopicError.errno,
            ):
                raise CommandFailed(f"there is no {subject}; `minibroker topics list` shows what there is")
            return
        ids = sorted(row["broker_id"] for row in self._client.describe_cluster()["brokers"])
        if int(subject.name) not in ids:
            raise CommandFailed(f"there is no {subject} in this cluster; its brokers are {', '.join(map(str, ids))}")

    def _check(self, subject: Subject, answer: Mapping[str, Mapping[str, str]]) -> None:
        (result,) = answer[subject.kind].values()
        if result != DONE:
            raise CommandFailed(refusal(subject, result))


def refusal(subject: Subject, result: str) -> str:
    """What a broker says no with, in one line; `result` is kafka-python's text of it."""
    parts = REFUSAL.match(result)
    said = " ".join((parts["message"] or parts["error"]).split() if parts else result.split()).rstrip(".")
    return f"{subject}: {said}; {all_configs(subject)} lists what there is"


def all_configs(subject: Subject) -> str:
    return f"`minibroker configs describe --{subject.kind} {subject.name} --all`"
