"""Whether settings that are said to change nothing are read nowhere, and all others somewhere: read off the source."""

from __future__ import annotations

import ast
from pathlib import Path

from minibroker.broker.config.kafka_settings import KafkaSettings
from minibroker.broker.config.settings import Setting
from minibroker.broker.config.unused_settings import ONLY_CHECKED, UNUSED_SETTINGS, reason_unused

ROOT = Path(__file__).parent.parent.parent
ATTRIBUTES = {attribute: row.name for attribute, row in vars(KafkaSettings).items() if isinstance(row, Setting)}
# Lists of settings, and rules that hold between them: to stand there is not to be obeyed.
LISTS = {f"broker/config/{name}.py" for name in ("dynamic_config", "dynamic_settings", "rules", "unused_settings")} | {
    "broker/config/profiles.py"
}
# What these forbid a broker is refused at its start, and that is all there is to obey.
OBEYED_BY_RULES = {"broker.id.generation.enable", "reserved.broker.max.id"}


def settings_read() -> set[str]:
    """By attribute, or by name where a topic has a setting of its own beside the broker's."""
    found: set[str] = set()
    for path in [*(ROOT / "broker").rglob("*.py"), *(ROOT / "storage").rglob("*.py")]:
        if str(path.relative_to(ROOT)) in LISTS:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
                found.add(ATTRIBUTES[node.attr])
            elif isinstance(node, ast.Constant) and node.value in ATTRIBUTES.values():
                found.add(str(node.value))
    return found


def test_a_setting_that_changes_nothing_is_said_to() -> None:
    read = settings_read() | OBEYED_BY_RULES

    assert sorted(name for name in ATTRIBUTES.values() if name not in read and reason_unused(name) is None) == []


def test_a_setting_that_is_said_to_change_nothing_is_read_nowhere() -> None:
    assert sorted(settings_read() & (ONLY_CHECKED.keys() | UNUSED_SETTINGS.keys())) == []
    assert ONLY_CHECKED.keys() <= set(ATTRIBUTES.values())
    assert not UNUSED_SETTINGS.keys() & set(ATTRIBUTES.values())
