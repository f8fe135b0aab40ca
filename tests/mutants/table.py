"""The mutants: small faults planted in the source, each of which a fast test must notice.

A table (`broker.toml`, `storage.toml` ...) lists the mutants of a package: the file, the behaviour that breaks, the
text that is replaced, which is unique in the file, and what it becomes. A module with logic has a mutant, or a reason
why it has none.
"""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent


class MutantError(Exception):
    """A mutant does not fit the source."""


@dataclass(frozen=True)
class Mutant:
    table: str
    file: str  # from the root, as in `storage/log/log.py`
    behaviour: str  # that it breaks
    text: str
    becomes: str

    def __str__(self) -> str:
        return f"{self.file}: {self.behaviour}"

    def planted(self, root: Path = ROOT) -> str:
        """Return the source of the file with the fault. Raise MutantError if the text is not there exactly once."""
        path = root / self.file
        if not path.is_file():
            raise MutantError(f"{self}: {self.file} does not exist; update tests/mutants/{self.table}")
        source = path.read_text(encoding="utf-8")
        if (count := source.count(self.text)) != 1:
            raise MutantError(
                f"{self}: the text is in {self.file} {count} times, not once; update tests/mutants/{self.table}:\n"
                f"{self.text}"
            )
        return source.replace(self.text, self.becomes)


@cache
def tables() -> dict[str, dict[str, list[dict[str, str]]]]:
    return {path.name: tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(TABLES.glob("*.toml"))}


def mutants() -> list[Mutant]:
    return [Mutant(name, **row) for name, table in tables().items() for row in table["mutant"]]


def modules_without() -> dict[str, str]:
    """The modules that have no mutant on purpose, with the reason."""
    return {row["file"]: row["reason"] for table in tables().values() for row in table.get("without", [])}


def lines_of_code(path: Path) -> int:
    """The lines of statements, without docstrings, comments, imports and blank lines."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Import | ast.ImportFrom) and not is_text(node):
            # Of a compound statement its head; the statements inside count for themselves.
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) and body else node.end_lineno
            lines.update(range(node.lineno, max(end or node.lineno, node.lineno) + 1))
    return len(lines)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
