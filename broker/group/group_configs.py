"""The configs of one group: what its members of the consumer protocol have in place of the broker's settings.

As kafka 4.4 GroupConfig and GroupConfigManager. A group may have configs before it has members. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.settings.changeable import SETTINGS
from minibroker.broker.config.settings.types import InvalidValueError
from minibroker.protocol.errors import ErrorCode, KafkaError

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL_MS: Final = "consumer.assignment.interval.ms"
NO_CONFIGS: Mapping[str, str] = {}


class GroupConfig(NamedTuple):
    """The broker's setting that holds for groups without the config, and the settings that bound it."""

    setting: str
    least: str
    most: str


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

    def check(self, configs: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_CONFIG) for configs that a group cannot have."""
        for name in configs:
            check_name(name)
        values = {name: parsed(name, text) for name, text in configs.items()}
        for name, value in values.items():
            least, most = self._bounds(name)
            if not least <= value <= most:
                raise invalid(f"{name} must be in the range {least} to {most} inclusive.")
        session, heartbeat = (
            values.get(name, self._default(name)) for name in (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)
        )
        if values and session <= heartbeat:
            raise invalid(f"{SESSION_TIMEOUT_MS} must be greater than {HEARTBEAT_INTERVAL_MS}")

    def _default(self, name: str) -> int:
        return self._setting(GROUP_CONFIGS[name].setting)

    def _bounds(self, name: str) -> tuple[int, int]:
        """The least and the greatest value that the broker allows."""
        return self._setting(GROUP_CONFIGS[name].least), self._setting(GROUP_CONFIGS[name].most)

    def _setting(self, name: str) -> int:
        return int(getattr(self._config, name.replace(".", "_")))


def check_name(name: str) -> None:
    """Raises KafkaError(INVALID_CONFIG) for an unknown config."""
    if name not in GROUP_CONFIGS:
        raise invalid(f"Unknown group config name: {name}")


def parsed(name: str, text: str) -> int:
    try:
        return int(SETTINGS[GROUP_CONFIGS[name].setting].read(text))
    except InvalidValueError as error:
        shown = text if error.shown is None else error.shown
        raise invalid(f"Invalid value {shown} for configuration {name}: {error}") from None


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
