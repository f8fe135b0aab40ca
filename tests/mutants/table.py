"""The mutants: small faults planted in the source, each of which a fast test must notice.

A table (`broker.toml`, `storage.toml` ...) lists the mutants of a package: the file, the behaviour that breaks, the
text that is replaced, which is unique in the file, and what it becomes. A module with logic has a mutant, or a reason
why it has none.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLES = Path(__file__).parent
PACKAGES = (
    "broker",
    "protocol",
    "purgatory",
    "simulation",
    "conformance",
    "spark_jobs",
    "storage",
    "transcript",
    "zookeeper",
    "src/minibroker",
)
DOCSTRING = re.compile(r'"""(?:.|\n)*?"""')
NO_CODE = ("#", "import ", "from ")


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


def modules() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def lines_of_code(path: Path) -> int:
    """The lines without docstrings, comments, imports and blank lines."""
    source = DOCSTRING.sub("", path.read_text(encoding="utf-8"))
    lines = (line.strip() for line in source.splitlines())
    return sum(bool(line) and not line.startswith(NO_CODE) for line in lines)
