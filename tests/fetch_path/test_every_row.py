"""Every row has a test or a conversation that names it, or a reason in docs/differences.md why it has none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
ROWS = range(1, 96)
TABLE = "## Fetch-path rows that do not apply yet"
NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")


def names_of_tests(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def rows_named_in(name: str) -> set[int]:
    """`test_row_25_...` is about row 25, `test_row_11_row_12_...` about both."""
    return {int(number) for number in re.findall(r"_row_(\d+)(?=_)", name)}


@cache
def rows_with_tests() -> frozenset[int]:
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = (name for source in sources if "_row_" in source for name in names_of_tests(source))
    conversations = (path.read_text(encoding="utf-8") for path in (ROOT / "tests/golden/conversations").glob("*.txt"))
    titles = (int(row) for text in conversations for row in re.findall(r"^== row (\d+):", text, re.MULTILINE))
    return frozenset({*titles, *(row for name in named for row in rows_named_in(name))})


def explained_rows(document: str) -> set[int]:
    """The numbers in the first column of the table, such as "13, 14" and "60-66"."""
    _, _, section = document.partition(f"{TABLE}\n")
    rows: set[int] = set()
    for line in section.partition("\n## ")[0].splitlines():
        if line.startswith("|"):
            for first, last in NUMBERS.findall(line.split("|")[1]):
                rows.update(range(int(first), int(last or first) + 1))
    return rows


def test_every_row_has_a_test_or_a_reason() -> None:
    explained = explained_rows((ROOT / "docs" / "differences.md").read_text(encoding="utf-8"))

    missing = sorted(set(ROWS) - rows_with_tests() - explained)

    assert missing == [], (
        f"neither a test_row_NN_... in tests/, nor a conversation `row NN:`, nor a line under {TABLE!r}: {missing}"
    )


def test_there_are_no_rows_beyond_the_last() -> None:
    assert rows_with_tests() <= set(ROWS)


def test_names_and_tables_are_read_as_they_are_meant() -> None:
    source = "class A:\n    async def test_row_07_a(self): ...\ndef test_row_11_row_12_b(): ...\ndef row_9_c(): ...\n"
    document = (
        f"# x\n| 1 | no |\n{TABLE}\n\n| row | what |\n|---|---|\n| 13, 14 | 99 |\n| 60-62 | y |\n\n## z\n| 7 | no |"
    )

    assert {row for name in names_of_tests(source) for row in rows_named_in(name)} == {7, 11, 12}
    assert explained_rows(document) == {13, 14, 60, 61, 62}
