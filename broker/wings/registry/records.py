"""The records of `_schemas` as Confluent's registry writes them, and the state that they make.

Keys and values are JSON. A key's bytes are always the same: the topic is compacted by them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from minibroker.protocol.text import OTHER_FORM

TOPIC = "_schemas"
SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT = "SCHEMA", "CONFIG", "MODE", "DELETE_SUBJECT", "CLEAR_SUBJECT"
MAGIC = {SCHEMA: 1}  # 0 for the others
AVRO = "AVRO"

logger = logging.getLogger(__name__)


class Reference(NamedTuple):
    """`name` is the name by which the text uses the schema of another subject."""

    name: str
    subject: str
    version: int


class Version(NamedTuple):
    """A version of a subject: a schema under its id. A deleted one is only hidden."""

    subject: str
    version: int
    id: int
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    is_deleted: bool = False

    def shown(self) -> dict[str, Any]:
        """As the REST interface shows it."""
        return {"subject": self.subject, "version": self.version, **self.shown_schema(), "id": self.id}

    def shown_schema(self) -> dict[str, Any]:
        """The schema alone; AVRO is what has no type."""
        found: dict[str, Any] = {} if self.kind == AVRO else {"schemaType": self.kind}
        if self.references:
            found["references"] = [each._asdict() for each in self.references]
        return {**found, "schema": self.text}

    def record(self) -> tuple[bytes, bytes]:
        value = {"subject": self.subject, "version": self.version, "id": self.id}
        return schema_key(self.subject, self.version), as_bytes(
            {**value, **self.shown_schema(), "deleted": self.is_deleted}
        )


def as_bytes(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def key_of(kind: str, subject: str | None, **rest: object) -> bytes:
    return as_bytes({"keytype": kind, "subject": subject, **rest, "magic": MAGIC.get(kind, 0)})


def schema_key(subject: str, version: int) -> bytes:
    return key_of(SCHEMA, subject, version=version)


def text_in(row: Mapping[str, Any], name: str) -> str:
    """The string of a field. Raises KeyError, and TypeError for a value of another type."""
    value = row[name]
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a string")
    return value


class Contents:
    """The state that the records make: versions by subject; levels and modes by subject, None for all subjects."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, Mapping[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.highest_id = 0

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record; one that Confluent's registry could not read either is logged, and left out."""
        try:
            named = json.loads(key or b"")
            self._take(named["keytype"], named, None if value is None else json.loads(value))
        except OTHER_FORM as error:
            logger.error("%s: skipped an unreadable record: %r", TOPIC, error)

    def _take(self, kind: str, key: Mapping[str, Any], value: Any) -> None:
        subject = None if key.get("subject") is None else text_in(key, "subject")
        if kind == SCHEMA:
            self._take_version(subject or "", int(key["version"]), value)
        elif kind in (DELETE_SUBJECT, CLEAR_SUBJECT) and value is not None:
            versions = self.subjects.get(text_in(value, "subject"), {})
            if kind == CLEAR_SUBJECT:
                versions.clear()
            for number in [each for each in versions if each <= value["version"]]:
                versions[number] = versions[number]._replace(is_deleted=True)
        elif kind in (CONFIG, MODE):
            kept: dict[str | None, Any] = self.configs if kind == CONFIG else self.modes
            if value is None:
                kept.pop(subject, None)
            else:
                kept[subject] = text_in(value, "mode") if kind == MODE else {**value}

    def _take_version(self, subject: str, number: int, value: Any) -> None:
        versions = self.subjects.setdefault(subject, {})
        if value is None:
            versions.pop(number, None)
            return
        references = tuple(
            Reference(text_in(each, "name"), text_in(each, "subject"), int(each["version"]))
            for each in value.get("references") or ()
        )
        kind = text_in(value, "schemaType") if value.get("schemaType") else AVRO
        schema_id, text = int(value["id"]), text_in(value, "schema")
        versions[number] = Version(subject, number, schema_id, kind, text, references, bool(value.get("deleted")))
        self.highest_id = max(self.highest_id, schema_id)

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject from the first, hidden ones too if `deleted`."""
        kept = self.subjects.get(subject, {})
        return [kept[number] for number in sorted(kept) if deleted or not kept[number].is_deleted]

    def all(self, *, deleted: bool = False) -> Iterator[Version]:
        """The versions of all subjects, by the subjects' names."""
        for subject in sorted(self.subjects):
            yield from self.versions(subject, deleted=deleted)

    def referring(self, subject: str, version: int) -> list[Version]:
        """The versions that refer to this one."""
        return [
            each
            for each in self.all()
            if any((row.subject, row.version) == (subject, version) for row in each.references)
        ]
