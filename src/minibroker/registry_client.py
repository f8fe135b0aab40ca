"""A schema registry, as commands and the console use it: records become JSON, and JSON becomes records.

A record of a serializer begins with a zero byte and the id of its schema. Any other bytes stay as they are.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from minibroker.any_cluster.shortfalls import lacks
from minibroker.errors import BadValue, CommandFailed
from minibroker.protocol.text import OTHER_FORM

if TYPE_CHECKING:
    from minibroker.schemas.schema import Schema

FRAMING = struct.Struct(">bI")  # a zero, and the id
TIMEOUT_SECONDS = 10.0
TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


class Undecodable(CommandFailed):
    """The registry has no schema for a record, or the record is not of its schema."""


class SchemaRegistry:
    """The registry at a URL, which may have a user and a password, quoted (`https://user:p%40ss@host:8081`)."""

    def __init__(self, url: str) -> None:
        """Raises BadValue."""
        bad = BadValue(f"{url!r} is not the address of a schema registry, such as http://127.0.0.1:8081")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            _ = parts.port
        except ValueError as error:
            raise bad from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise bad
        self._headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        self._url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._schemas: dict[int, Schema | Undecodable] = {}

    def shown(self, data: bytes | None) -> bytes | None:
        """The JSON of a record's key or value; others as they are, and a line why. Raises CommandFailed."""
        try:
            return self.decoded(data)
        except Undecodable as error:
            lacks(str(error))
            return data

    def decoded(self, data: bytes | None) -> bytes | None:
        """The JSON of a record's key or value; bytes without a schema are unchanged. Raises CommandFailed."""
        from minibroker.schemas.schema import SchemaError

        if data is None or len(data) < FRAMING.size or data[0]:
            return data
        schema_id = FRAMING.unpack_from(data)[1]
        try:
            value = self._schema(schema_id).decode(memoryview(data)[FRAMING.size :])
        except SchemaError as error:
            raise Undecodable(f"schema {schema_id}: {error}") from error
        return json.dumps(value, ensure_ascii=False).encode()

    def encoder(self, subject: str, path: Path | None) -> Callable[[bytes], bytes]:
        """A function that makes a value of its JSON, by a schema that it registers, or the latest of the subject.

        Both raise CommandFailed.
        """
        from minibroker.schemas.schema import SchemaError

        address = f"/subjects/{quote(subject, safe='')}/versions"
        asked = (f"{address}/latest",) if path is None else (address, schema_in(path))
        schema_id = self._in(self._ask(*asked), "id", int)
        schema = self._schema(schema_id)
        start = FRAMING.pack(0, schema_id)

        def encode(text: bytes) -> bytes:
            try:
                return start + schema.encode(json.loads(text))
            except (SchemaError, ValueError) as error:
                shown = text[:60].decode(errors="replace")
                raise CommandFailed(f"{shown!r} is no value of schema {schema_id} ({subject}): {error}") from error

        return encode

    def _schema(self, schema_id: int) -> Schema:
        """Raises CommandFailed, each time for a schema that cannot be had."""
        from minibroker.schemas.schema import SchemaError, parse

        if schema_id not in self._schemas:
            try:
                found = self._ask(f"/schemas/ids/{schema_id}")
                text = self._in(found, "schema", str)
                self._schemas[schema_id] = parse(found.get("schemaType", "AVRO"), text, self._referred(found, set()))
            except (SchemaError, ModuleNotFoundError) as error:
                self._schemas[schema_id] = Undecodable(f"schema {schema_id}: {error}")
            except Undecodable as error:
                self._schemas[schema_id] = error
        schema = self._schemas[schema_id]
        if isinstance(schema, Undecodable):
            raise schema
        return schema

    def _referred(self, found: Mapping[str, Any], begun: set[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for each in found.get("references", ()):
            subject, version = self._in(each, "subject", str), self._in(each, "version", int)
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true"
            if path not in begun:
                begun.add(path)
                referred = self._ask(path)
                text = self._in(referred, "schema", str)
                texts |= {**self._referred(referred, begun), self._in(each, "name", str): text}
        return texts

    def _in(self, answer: object, field: str, kind: type) -> Any:
        """A field of an answer. Raises CommandFailed."""
        value = answer.get(field) if isinstance(answer, dict) else None
        if not isinstance(value, kind):
            raise CommandFailed(f"{self._url} answers as no schema registry does (no {field}); correct the address")
        return value

    def _ask(self, path: str, body: object = None) -> Any:
        """Raises CommandFailed."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, urlopen  # half as much to load as all else of a command

        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(self._url + path, data, self._headers), timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            try:
                message = json.loads(text)["message"]
            except OTHER_FORM:
                message = text[:200] or error.reason
            raise Undecodable(f"the schema registry refuses: {message}") from error
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise CommandFailed(f"no schema registry answers at {self._url} ({reason}); correct the address") from error


def schema_in(path: Path) -> dict[str, str]:
    """The schema in a file, whose type its name ends with. Raises CommandFailed, BadValue."""
    if path.suffix not in TYPES:
        raise BadValue(f"--schema {path}: name it {', '.join(f'*{each} ({kind})' for each, kind in TYPES.items())}")
    try:
        return {"schema": path.read_text("utf-8"), "schemaType": TYPES[path.suffix]}
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"cannot read --schema {path}: {error}; name another") from error
