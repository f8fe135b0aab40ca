"""Other images of Kafka, and Kafka 4: their variables and files, as settings of this broker. `serve` asks it first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from minibroker.broker.wings.images.environment import check_quorum, settings_of_environment, without_quorum
from minibroker.broker.wings.images.other_images import CREATE_TOPICS, CREATE_TOPICS_SEPARATOR, mounted_file


class Images:
    """The settings in an environment, which is empty without `--environment`.

    `is_alone`: the broker joins no other, so settings of a quorum with other nodes are an error.
    """

    def __init__(self, environment: Mapping[str, str], *, is_alone: bool = True) -> None:
        self._environment = environment
        self._is_alone = is_alone

    def file(self) -> Path | None:
        """Return the server.properties that is mounted where another image reads it."""
        return mounted_file(self._environment) if self._environment else None

    def topics(self) -> tuple[str, str | None, str | None]:
        """Return the variable of first topics, its value, and what separates them there."""
        return CREATE_TOPICS, self._environment.get(CREATE_TOPICS), self._environment.get(CREATE_TOPICS_SEPARATOR)

    def add(self, given: dict[str, str], sources: dict[str, str]) -> tuple[list[str], list[str]]:
        """Add the settings to those of a file; return warnings and notes. Raises ConfigError."""
        notes: list[str] = []
        if "process.roles" in given:  # a file of Kafka 4
            notes.append(self._leave_quorum_out(given, sources))
        if not self._environment:
            return [], notes
        found = settings_of_environment(self._environment, is_alone=self._is_alone, of_file=given)
        for name, (value, variable) in found.settings.items():
            given[name], sources[name] = value, variable
        return found.warnings, notes + found.notes

    def _leave_quorum_out(self, given: dict[str, str], sources: dict[str, str]) -> str:
        """Drop the settings of Kafka 4's quorum from a file's; return a note. Raises ConfigError."""
        found = {name: (value, sources[name]) for name, value in given.items()}
        check_quorum(found, is_alone=self._is_alone)
        kept = without_quorum(found)
        left_out = sorted(given.keys() - kept.keys() - {"node.id"})
        given.clear()
        for name, (value, source) in kept.items():
            given[name], sources[name] = value, source
        return f"{', '.join(left_out)}: no effect, this broker is its own controller"
