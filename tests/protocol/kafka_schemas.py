"""Kafka's own message schemas, as layouts that compare: which fields of which type a version has, in order.

They are kept in tests/golden/ in a compact form: for each message the schema of kafka 3.9, and that of 4.4 where it has
later versions. To add those of a directory of Kafka's `common/message/*.json`, if they have versions that are not kept:
python -m tests.protocol.kafka_schemas DIRECTORY
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

KEPT = Path(__file__).parent.parent / "golden" / "kafka-messages.json.gz"
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
KEPT_OF_A_FIELD = ("name", "type", "versions", "nullableVersions", "tag", "taggedVersions")
LAST_OF_ALL = 2**15

Json = Any


class WireField(NamedTuple):
    """One field of one version. `inside` are the fields of a row, or of an array's rows; `tag` is -1 without one."""

    name: str
    type: str  # int32, string, [] in front of an array's element; a row is `row`
    is_nullable: bool
    tag: int
    inside: tuple[WireField, ...]


class KafkaSchema:
    """One of Kafka's schemas."""

    def __init__(self, document: Json) -> None:
        self._fields = document["fields"]
        self._flexible = document.get("flexibleVersions", "none")
        self.versions = document["validVersions"]

    def has_version(self, version: int) -> bool:
        return is_in(version, self.versions)

    def is_flexible(self, version: int) -> bool:
        return is_in(version, self._flexible)

    def fields(self, version: int) -> tuple[WireField, ...]:
        """Return the fields on the wire of a version, in order, those with a tag at the end."""
        return tuple(sorted(wire_fields(self._fields, version), key=lambda field: field.tag))


def wire_fields(fields: Json, version: int) -> Iterator[WireField]:
    for field in fields:
        if is_in(version, field["versions"]):
            is_row = "fields" in field
            prefix = "[]" if field["type"].startswith("[]") else ""
            inside = sorted(wire_fields(field["fields"], version), key=lambda each: each.tag) if is_row else ()
            yield WireField(
                snake_case(field["name"]),
                f"{prefix}row" if is_row else field["type"],
                is_in(version, field.get("nullableVersions", "none")),
                field["tag"] if is_in(version, field.get("taggedVersions", "none")) else -1,
                tuple(inside),
            )


def is_in(version: int, versions: str) -> bool:
    """Whether a version is in "3", "0-4", "2+" or "none"."""
    if versions == "none":
        return False
    first, dash, last = versions.rstrip("+").partition("-")
    return int(first) <= version <= (LAST_OF_ALL if versions.endswith("+") else int(last if dash else first))


def snake_case(name: str) -> str:
    """FirstOffset as first_offset."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def kafka_schemas() -> dict[str, list[KafkaSchema]]:
    """By name, FetchRequest; in the order of Kafka's releases."""
    return {name: [KafkaSchema(document) for document in documents] for name, documents in kept_documents().items()}


def kept_documents() -> dict[str, list[Json]]:
    documents: dict[str, list[Json]] = json.loads(gzip.decompress(KEPT.read_bytes()))
    return documents


def last_version(document: Json) -> int:
    return int(document["validVersions"].rpartition("-")[2])


def keep(directory: Path) -> None:
    """Add the compact form of the schemas in a directory that have later versions than those that are kept."""
    kept = kept_documents()
    for path in sorted(directory.glob("*.json")):
        document = json.loads(COMMENT.sub("", path.read_text(encoding="utf-8")))
        structs = {struct["name"]: struct["fields"] for struct in document.get("commonStructs", ())}
        documents = kept.setdefault(document["name"], [])
        if document["validVersions"] != "none" and last_version(document) > max(
            map(last_version, documents), default=-1
        ):
            documents.append(
                {
                    "validVersions": document["validVersions"],
                    "flexibleVersions": document.get("flexibleVersions", "none"),
                    "fields": [compact(field, structs) for field in document["fields"]],
                }
            )
    # No time in the file: the same schemas are the same bytes.
    text = json.dumps(kept, separators=(",", ":"))
    KEPT.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def compact(field: Json, structs: dict[str, Json]) -> Json:
    """A field without its prose; a struct that several fields share is put in their places."""
    shared = structs.get(field["type"].removeprefix("[]"))
    inside = field.get("fields", shared)
    short = {key: field[key] for key in KEPT_OF_A_FIELD if key in field}
    return short if inside is None else {**short, "fields": [compact(each, structs) for each in inside]}


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
