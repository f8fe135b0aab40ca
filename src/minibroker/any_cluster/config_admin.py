"""The requests of the `configs` commands; `admin/` has what the answers mean.

A refusal keeps the broker's words, with the next step. Brokers before 2.3 can only replace all configs of a resource
at once: the others are read first, and sent along.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.admin.configs import (
    RESOURCE_TYPES,
    UNKNOWN,
    Config,
    Subject,
    broker_of,
    in_ms,
    is_own,
    no_config,
    refusal,
    resource_of,
    source_of,
)
from minibroker.any_cluster.cluster import topics_of
from minibroker.any_cluster.partition_offsets import missing_topic
from minibroker.client.client import Client
from minibroker.client.errors import error_name
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode

SET, DELETE = 0, 1  # operations of IncrementalAlterConfigs
PROTOCOL_SETTING = "inter.broker.protocol.version"  # 2.0-IV1
FIRST_WITH_GROUPS = "4.0"
RELEASE = re.compile(r"\d+\.\d+")


def release_of(client: Client, broker: int) -> str | None:
    """The release of Kafka as which a broker acts, such as 2.0; None for one that has no setting for it (Kafka 4.0)."""
    resources = [(RESOURCE_TYPES["broker"], str(broker), [PROTOCOL_SETTING])]
    (found,) = client.ask(ApiKey.DESCRIBE_CONFIGS, broker=broker, resources=resources).results
    values = [each.value for each in found.configs if each.name == PROTOCOL_SETTING]
    release = RELEASE.match(values[0] or "") if values else None
    return None if release is None else release[0]


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


def configs_of(client: Client, subject: Subject) -> list[Any]:
    """The rows of all configs. Raises CommandFailed if there are none: then the broker has refused."""
    resources = [(*resource_of(subject), None)]
    (found,) = client.ask(ApiKey.DESCRIBE_CONFIGS, broker=broker_of(subject), resources=resources).results
    if found.error_code or not found.configs:
        brought = f", which came with {FIRST_WITH_GROUPS}" if subject.kind == "group" else ""
        raise CommandFailed(f"the broker did not return the configs of {subject}{brought}; see its log and its ACLs")
    rows: list[Any] = found.configs
    return rows
