"""The words of messages: plurals are counted, and an error says what is wrong, not what something is no case of."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.config import LogConfig
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.transcript.text import data_text

ROOT = Path(__file__).parent.parent.parent
COUNTED = "partition record topic group member byte batch file line broker log key offset message entry second error"
# A number and a plural: `{count} partitions` would print `1 partitions`.
PLURAL = re.compile(rf"^ ({'|'.join(COUNTED.split())})s\b")
CONSTANTS = re.compile(r"[A-Z_]+$")  # such as {JOIN_SECONDS} seconds: always several
ODD = re.compile(r"\bit is no |\bis no (JSON|file|number|topic|address)\b|\b(nobody|whoever|somebody)\b", re.IGNORECASE)


def sources() -> list[Path]:
    return sorted((ROOT / "src" / "minibroker" / "cli").glob("*.py"))


def messages(path: Path) -> Iterator[str]:
    """The strings of a module but its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_a_number_before_a_plural_goes_through_counted(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
                    plural = PLURAL.match(str(after.value))
                    assert plural is None or CONSTANTS.match(ast.unparse(value.value)), ast.unparse(node)


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_messages_have_no_odd_words(path: Path) -> None:
    assert [text for text in messages(path) if ODD.search(text)] == []


def test_one_log_and_one_byte_are_singular(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        manager = LogManager(tmp_path, default_config=LogConfig(), broker_id=0)
        manager.load(now_ms=0)
        manager.get_or_create_log(TopicPartition("orders", 0), now_ms=0)
        manager.close()

    assert "opened 1 log after a clean stop" in caplog.text
    assert data_text(b"\xff", None) == "1 byte ff |.|"
