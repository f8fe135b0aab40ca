"""Recorded books: text files of scripts, each under a title that states a behaviour, with what came of their steps.

Broker conversations, judged settings, histories of logs and commands of a terminal are books, in tests/golden/. Each
kind has a module that runs scripts; run by itself, it runs the books again and writes down what comes: read the diff.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

MARK = re.compile(r"(\d\.\d)< ?")  # before an answer of that release of Apache Kafka
GOLDEN = Path(__file__).parent.parent / "golden"


class Script(NamedTuple):
    """A script as the file has it: its lines, and those of them that are steps."""

    title: str
    settings: dict[str, str]
    versions: range | None
    after: str
    heads: list[str]
    steps: list[str]
    text: str
    changes: dict[str, str]
    answers: list[list[str]]  # of each step
    marks: list[dict[str, list[str]]]  # the answers of releases of Apache Kafka that answer otherwise
    rows: list[str]  # of docs/differences.md that say why
    said: dict[str, str]  # the first words of its heads, with what follows
    configs: Mapping[str, str] = MappingProxyType({})

    def changed(self, name: str) -> Script:
        """The same with one of the settings or configs of topics in `changes`."""
        change = {name: self.changes[name]}
        if "**configs" in self.text:
            return self._replace(configs=change)
        return self._replace(settings=self.settings | change)


class Book(NamedTuple):
    """A file of scripts."""

    path: Path
    head: str
    settings: dict[str, str]
    defaults: dict[str, str]
    scripts: dict[str, Script]

    def steps_before(self, script: Script) -> list[str]:
        """The steps of the script that another comes after."""
        before = self.scripts[script.after] if script.after else None
        return [] if before is None else [*self.steps_before(before), *before.steps]


def settings_of(line: str) -> dict[str, str]:
    return {name: value for name, _, value in (each.partition("=") for each in line.split())}


def read_book(path: Path) -> Book:
    head, *parts = read_texts(path)
    settings: dict[str, str] = {}
    defaults: dict[str, str] = {}
    for line in head.splitlines():
        word, _, rest = line.partition(" ")
        if word == "settings":
            settings |= settings_of(rest)
        elif word == "defaults":
            api, _, fields = rest.partition(" ")
            defaults[api] = fields
    scripts = [read_script(part) for part in parts]
    return Book(path, head, settings, defaults, {each.title: each for each in scripts})


def read_script(text: str) -> Script:
    first, *lines = text.rstrip("\n").splitlines()
    heads = [line for line in lines if line and line[0] not in "<> " and not MARK.match(line)]
    said = {word: rest for word, _, rest in (line.partition(" ") for line in heads)}
    steps: list[str] = []
    answers: list[list[str]] = []
    marks: list[dict[str, list[str]]] = []
    for line in lines:
        if line.startswith("> "):
            steps.append(line[2:])
            answers.append([])
            marks.append({})
        elif line.startswith("  "):
            steps[-1] += "\n" + line
        elif line.startswith("< "):
            answers[-1].append(line[2:])
        elif marked := MARK.match(line):
            marks[-1].setdefault(marked[1], []).append(line[marked.end() :])
    bounds = [int(each) for each in said["versions"].split("-")] if "versions" in said else []
    return Script(
        title=first.removeprefix("== "),
        settings=settings_of(said.get("settings", "")),
        versions=range(bounds[0], bounds[-1] + 1) if bounds else None,
        after=said.get("after", ""),
        heads=heads,
        steps=steps,
        text=text,
        changes=settings_of(said.get("changes", "")),
        answers=answers,
        marks=marks,
        rows=[line.removeprefix("row ") for line in heads if line.startswith("row ")],
        said=said,
    )


def read_texts(path: Path) -> list[str]:
    """Split a file into the lines above the first title and the text of each script."""
    return re.split(r"^(?=== )", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def cases(folder: Path, marks_of: Callable[[Book, Script], Sequence[Any]] = lambda book, script: ()) -> list[Any]:
    """Parameters: each script with its book."""
    return [
        pytest.param(book, script, id=f"{book.path.stem}: {script.title}", marks=marks_of(book, script))
        for book in map(read_book, sorted(folder.glob("*.txt")))
        for script in book.scripts.values()
    ]


def as_recorded(script: Script, answers: Iterable[Sequence[str]]) -> str:
    """The script with what came of each step, as a file has it."""
    lines = [f"== {script.title}", *script.heads]
    for step, answer, marks in zip(script.steps, answers, script.marks, strict=True):
        lines += [f"> {step}", *(f"< {each}" for each in answer)]
        lines += [f"{release}< {each}" for release, marked in marks.items() for each in marked]
    return "\n".join(lines)


def record_books(folder: Path, texts_of: Callable[[Book], Iterable[str]]) -> None:
    """Write the books that the command names, or all, with the texts that their scripts have now."""

    def whole(path: Path) -> Iterator[str]:
        book = read_book(path)
        yield book.head
        yield from texts_of(book)

    record_files(folder, whole)


def record_files(folder: Path, texts_of: Callable[[Path], Iterable[str]]) -> None:
    """As `record_books`; the first text is that above the first title."""
    for path in [folder / f"{name}.txt" for name in sys.argv[1:]] or sorted(folder.glob("*.txt")):
        written(path, texts_of(path))


def written(path: Path, texts: Iterable[str]) -> None:
    path.write_text("\n".join(text.rstrip("\n") + "\n" for text in texts), encoding="utf-8")
