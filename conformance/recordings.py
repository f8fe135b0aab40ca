"""The answers of a release of Apache Kafka to the conversations of books, and to generated ones: a digest for each.

A digest says only whether answers are Apache Kafka's. Field by field they come from a minibroker, which is asked once a
broker has answered otherwise: where Apache Kafka answered otherwise than that, the recording has the fields (`Delta`).
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.broker.config.profiles import RELEASES, profile_of
from minibroker.conformance.answers import Plain
from minibroker.conformance.generator import FAMILIES, generated
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.steps import Batch, Joined, Script, Step, Wrapper, read_script
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.schema import Array

FOLDER = Path(__file__).parent / "recorded"
BOOKS = "books.json.gz"
Name = int | str  # of a conversation: the seed of a generated one, the title of one of a book
NAMES = {
    "0.10": "0.10.2.2",
    "0.11": "0.11.0.3",
    "1.1": "1.1.1",
    "2.0": "2.0.1",
    "2.8": "2.8.2",
    "3.9": "3.9.1",
    "4.0": "4.0.1",
    "4.4": "4.4.0",
}
DIGEST_CHARACTERS = 10
FETCH, FIRST_VERSION_OF_BATCHES = 1, 4
# What 4.0 no longer takes: formats before batches, and segments of less than 1 MiB.
OF_OLD_FORMATS = ("message.format.version", "message.downconversion.enable", "segment.bytes")
PLACES = re.compile(r"\.?([^.\[]+)|\[(\d+)\]")


class Delta(NamedTuple):
    """A field that Apache Kafka answered otherwise than minibroker."""

    answer: int  # its number in the conversation
    path: str
    value: Plain


class Recording(NamedTuple):
    """The versions that a release offers, and of each conversation the digest of its answers."""

    name: str  # as in --as
    versions: Mapping[int, tuple[int, int]]
    digests: Mapping[Name, str]
    deltas: Mapping[Name, Sequence[Delta]]

    @property
    def release(self) -> str:
        return NAMES[self.name]

    @property
    def act_as(self) -> str | None:
        """The profile that a minibroker answers with in place of this release; None if it is the newest."""
        return self.name if self.name in RELEASES else None

    @property
    def settings(self) -> dict[str, str | int]:
        """The settings of the release, and of a broker beside it."""
        return {name: value for name, value in SETTINGS.items() if profile_of(self.name).has_setting(name)}

    def script(self, name: Name) -> Script:
        return script_of(name, self.versions)

    def family(self, name: Name) -> str:
        """The book of a conversation, or the family of a generated one; some books are called like a family."""
        return book_of(name) if isinstance(name, str) else list(FAMILIES)[name % len(FAMILIES)]


@cache
def books() -> dict[str, dict[str, str]]:
    """Of each book its conversations: by title their scripts as text."""
    found: dict[str, dict[str, str]] = json.loads(gzip.decompress((FOLDER / BOOKS).read_bytes()))
    return found


def book_of(title: str) -> str:
    return next(book for book, scripts in books().items() if title in scripts)


def read_recording(name: str) -> Recording:
    kept = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    versions = {int(key): (first, last) for key, (first, last) in kept["versions"].items()}
    digests = {name_of(text): digest for text, digest in kept["digests"].items()}
    deltas = {name_of(text): [Delta(*each) for each in rows] for text, rows in kept["deltas"].items()}
    return Recording(name, versions, digests, deltas)


def name_of(text: str) -> Name:
    return int(text) if text.isdecimal() else text


def script_of(name: Name, versions: Mapping[int, tuple[int, int]]) -> Script:
    """A conversation in versions that a release offers."""
    has_old_formats = versions[FETCH][0] < FIRST_VERSION_OF_BATCHES
    script = read_script(books()[book_of(name)][name]) if isinstance(name, str) else generated(name)
    return [in_versions(step, versions, has_old_formats=has_old_formats) for step in script]


def in_versions(step: Step, versions: Mapping[int, tuple[int, int]], *, has_old_formats: bool) -> Step:
    if step.kind in ("look", "take", "drop", "restart"):
        return step
    first, last = versions.get(step.key, (step.version, step.version))
    step = replace(step, version=min(max(step.version, first), last))
    return step if has_old_formats else replace(step, body=without_old_formats(step.body))


def without_old_formats(value: Any) -> Any:
    """A body whose records are batches of today, and whose configs name no old format."""
    if isinstance(value, Joined):
        return without_old_formats(value.parts[0])
    if isinstance(value, Batch):
        return replace(value, magic=2, first_offset=0)
    if isinstance(value, Wrapper):
        return Batch(value.rows)
    if isinstance(value, dict):
        return {name: without_old_formats(each) for name, each in value.items()}
    if isinstance(value, list):
        kept = [each for each in value if not (isinstance(each, tuple) and each and each[0] in OF_OLD_FORMATS)]
        return [without_old_formats(each) for each in kept]
    return tuple(map(without_old_formats, value)) if type(value) is tuple else value


def digest_of(script: Script, answers: Sequence[Plain]) -> str:
    """The digest of a conversation's answers: of the fields that its versions have."""
    asked = [step for step in script if step.kind != "drop"]
    whole = [of_version(step, answer) for step, answer in zip(asked, answers, strict=False)]  # none behind NO_ANSWER
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARACTERS]


def of_version(step: Step, answer: Plain) -> Plain:
    return answer if isinstance(answer, str) else pruned(API_TABLE[step.key].response.fields, step.version, answer)


def pruned(fields: Sequence[Any], version: int, answer: Plain) -> Plain:
    """An answer without the fields that its version lacks, which the declaration of a later one adds."""
    found = {}
    for field in fields:
        if field.is_in(version) and field.name in answer:
            kind, value = field.kind_in(version), answer[field.name]
            is_rows = isinstance(kind, Array) and kind.element is None and isinstance(value, list)
            found[field.name] = [pruned(kind.fields, version, row) for row in value] if is_rows else value
    return found


def patched(answer: Plain, path: str, value: Plain) -> Plain:
    """The answer with another value at a path, if it has that path."""
    places = [name or int(number) for name, number in PLACES.findall(path)]
    if not places:
        return value
    whole = copy.deepcopy(answer)
    row = whole
    try:
        for place in places[:-1]:
            row = row[place]
        if isinstance(row, dict | list):
            row[places[-1]] = value
    except (KeyError, IndexError, TypeError):  # an answer of another shape: a step before it is left out
        return answer
    return whole
