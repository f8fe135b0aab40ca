"""The configs of one group: what its members have in place of the broker's settings.

As kafka 4.4 GroupConfig and GroupConfigManager. A group may have configs before it has members. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.types import InvalidValueError
from minibroker.protocol.errors import ErrorCode, KafkaError

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL_MS: Final = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT_MS: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL_MS: Final = "share.heartbeat.interval.ms"
RECORD_LOCK_MS: Final = "share.record.lock.duration.ms"
DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
ISOLATION_LEVEL: Final = "share.isolation.level"
RENEWS: Final = "share.renew.acknowledge.enable"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
COPIES_DEAD_LETTERS: Final = "errors.deadletterqueue.copy.record.enable"
NO_CONFIGS: Mapping[str, str] = {}


class GroupConfig(NamedTuple):
    """The broker's setting that holds for groups without the config, and the settings that bound it."""

    setting: str
    least: str
    most: str


class TextConfig(NamedTuple):
    """A config whose value is text: its default, and the pattern of a value."""

    default: str
    pattern: str
    problem: str
    type: str = "STRING"


TEXT_CONFIGS: Mapping[str, TextConfig] = {
    AUTO_OFFSET_RESET: TextConfig(
        "latest",
        r"latest|earliest|by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?",
        "must be latest, earliest or by_duration:, followed by a duration such as PT1H",
    ),
    ISOLATION_LEVEL: TextConfig(
        "read_uncommitted",
        "read_committed|read_uncommitted",
        "String must be one of (case insensitive): READ_COMMITTED, READ_UNCOMMITTED",
    ),
    RENEWS: TextConfig("true", "(?i)true|false", "Expected value to be either true or false", "BOOLEAN"),
    DEAD_LETTER_TOPIC: TextConfig(
        "", r"(?!__|\.\.?$)[a-zA-Z0-9._-]{0,249}", "must be a topic's name that does not start with '__'"
    ),
    COPIES_DEAD_LETTERS: TextConfig("false", "(?i)true|false", "Expected value to be either true or false", "BOOLEAN"),
}
GROUP_CONFIGS: Mapping[str, GroupConfig] = {
    ASSIGNMENT_INTERVAL_MS: GroupConfig(
        "group.consumer.assignment.interval.ms",
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    HEARTBEAT_INTERVAL_MS: GroupConfig(
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    SESSION_TIMEOUT_MS: GroupConfig(
        "group.consumer.session.timeout.ms",
        "group.consumer.min.session.timeout.ms",
        "group.consumer.max.session.timeout.ms",
    ),
    "share.session.timeout.ms": GroupConfig(
        "group.share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"
    ),
    "share.heartbeat.interval.ms": GroupConfig(
        "group.share.heartbeat.interval.ms",
        "group.share.min.heartbeat.interval.ms",
        "group.share.max.heartbeat.interval.ms",
    ),
    "share.record.lock.duration.ms": GroupConfig(
        "group.share.record.lock.duration.ms",
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": GroupConfig(
        "group.share.delivery.count.limit",
        "group.share.min.delivery.count.limit",
        "group.share.max.delivery.count.limit",
    ),
    "share.partition.max.record.locks": GroupConfig(
        "group.share.partition.max.record.locks",
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
}


class GroupConfigs:
    """Reads the configs of groups, as they are stored."""

    def __init__(self, config: KafkaConfig, stored: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        self._config = config
        self._stored = stored

    def of(self, group_id: str) -> Mapping[str, str]:
        """The configs that were set on a group."""
        return self._stored().get(group_id, NO_CONFIGS)

    def names(self) -> Iterable[str]:
        """The groups on which configs were set."""
        return self._stored()

    def value(self, group_id: str, name: str) -> int:
        """The value that holds for a group: within the bounds, which may have changed since it was set."""
        text = self.of(group_id).get(name)
        if text is None:
            return self._default(name)
        least, most = self._bounds(name)
        return min(max(int(text), least), most)

    def text(self, group_id: str, name: str) -> str:
        """The value of a config whose value is text."""
        return self.of(group_id).get(name, TEXT_CONFIGS[name].default)

    def is_on(self, group_id: str, name: str) -> bool:
        return self.text(group_id, name).lower() == "true"

    def check(self, configs: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_CONFIG) for configs that a group cannot have."""
        for name in configs:
            check_name(name)
        values = {name: parsed(name, text) for name, text in configs.items() if name in GROUP_CONFIGS}
        for name in configs.keys() & TEXT_CONFIGS.keys():
            rule = TEXT_CONFIGS[name]
            if not re.fullmatch(rule.pattern, configs[name]):
                raise invalid(f"Invalid value {configs[name]} for configuration {name}: {rule.problem}")
        for name, value in values.items():
            least, most = self._bounds(name)
            if not least <= value <= most:
                raise invalid(f"{name} must be in the range {least} to {most} inclusive.")
        for names in (
            (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS),
            (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS),
        ):
            session, heartbeat = (values.get(name, self._default(name)) for name in names)
            if values and session <= heartbeat:
                raise invalid(f"{names[0]} must be greater than {names[1]}")

    def _default(self, name: str) -> int:
        return self._setting(GROUP_CONFIGS[name].setting)

    def _bounds(self, name: str) -> tuple[int, int]:
        """The least and the greatest value that the broker allows."""
        return self._setting(GROUP_CONFIGS[name].least), self._setting(GROUP_CONFIGS[name].most)

    def _setting(self, name: str) -> int:
        return int(getattr(self._config, name.replace(".", "_")))


def check_name(name: str) -> None:
    """Raises KafkaError(INVALID_CONFIG) for an unknown config."""
    if name not in GROUP_CONFIGS and name not in TEXT_CONFIGS:
        raise invalid(f"Unknown group config name: {name}")


def parsed(name: str, text: str) -> int:
    try:
        return int(SETTINGS[GROUP_CONFIGS[name].setting].read(text))
    except InvalidValueError as error:
        shown = text if error.shown is None else error.shown
        raise invalid(f"Invalid value {shown} for configuration {name}: {error}") from None


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
