"""The mutants: small faults planted in the source, each of which a fast test must notice.

A table (`broker.toml`, `storage.toml` ...) lists the mutants of a package: the file, the behaviour that breaks, the
text that is replaced, which is unique in the file, and what it becomes. `killer` is the test that failed first last
time, as `make mutants` writes it down. A module with logic has a mutant, or a reason
why it has none.
"""

from __future__ import annotations

import json
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
    "schemas",
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
    killer: str = ""  # the node id of a test

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

    def remember(self, killer: str, tables: Path = TABLES) -> None:
        """Write the killer into the mutant's table."""
        path = tables / self.table
        source = path.read_text(encoding="utf-8")
        head = f'file = "{self.file}"\nbehaviour = {json.dumps(self.behaviour, ensure_ascii=False)}\n'
        old = f"{head}killer = '''{self.killer}'''\n" if self.killer else head
        if source.count(old) != 1:
            raise MutantError(f"{self}: {self.table} does not begin it with these lines, once:\n{old}")
        path.write_text(source.replace(old, f"{head}killer = '''{killer}'''\n"), encoding="utf-8")

    def has_killer(self, root: Path = ROOT) -> bool:
        """Return whether the test that killed the mutant exists; of one with parameters, its function."""
        file, *_, function = self.killer.partition("[")[0].split("::")
        return function in tests_of(root / file)


@cache
def tests_of(path: Path) -> frozenset[str]:
    """Return the names of the test functions in a file: none if there is no such file."""
    source = path.read_text(encoding="utf-8") if path.is_file() else ""
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)\(", source, re.MULTILINE))


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
