"""The Avro schemas of subjects in a Confluent schema registry, which the jobs ask by themselves.

An address is read, and a refusal told, as by `minibroker.registry_client`, which the jobs run without.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from minibroker.spark_jobs.errors import JobFailed

TIMEOUT_SECONDS = 10.0


class Subjects:
    """The subjects of a registry, whose URL may have a user and a password."""

    def __init__(self, url: str, names: Sequence[str]) -> None:
        """Raises JobFailed."""
        bad = JobFailed(f"{url!r} is not the address of a schema registry, such as http://127.0.0.1:8081")
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            _ = parts.port
        except ValueError as error:
            raise bad from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise bad
        self._names = names
        self._url = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))
        self._headers = {}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
        self._known: dict[tuple[str, int], tuple[int, str]] = {}

    def schemas(self) -> dict[int, str]:
        """Return all schemas by their ids, those of each subject oldest first, also of versions that were deleted.

        Only versions that are new since the last call are asked for. Raises JobFailed.
        """
        found: dict[int, str] = {}
        for subject in self._names:
            address = f"/subjects/{quote(subject, safe='')}/versions"
            versions = self._ask(f"{address}?deleted=true")
            if not (isinstance(versions, list) and all(isinstance(each, int) for each in versions)):
                raise self._no_registry()
            for version in versions:
                if (subject, version) not in self._known:
                    match self._ask(f"{address}/{version}?deleted=true&format=resolved"):
                        case {"schemaType": kind} if kind != "AVRO":
                            raise JobFailed(f"{subject} has schemas of {kind}, and only Avro's are read")
                        case {"id": int(schema_id), "schema": str(schema)}:
                            self._known[subject, version] = (schema_id, schema)
                        case _:
                            raise self._no_registry()
                schema_id, schema = self._known[subject, version]
                found[schema_id] = schema
        return found

    def _no_registry(self) -> JobFailed:
        return JobFailed(f"{self._url} answers as no schema registry does; correct the address")

    def _ask(self, path: str) -> Any:
        try:
            with urlopen(Request(self._url + path, headers=self._headers), timeout=TIMEOUT_SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            try:
                message = json.loads(text)["message"]
            except (ValueError, KeyError, TypeError, RecursionError):
                message = text[:200] or error.reason
            raise JobFailed(f"the schema registry refuses: {message}") from error
        except (OSError, ValueError, RecursionError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise JobFailed(f"no schema registry answers at {self._url} ({reason}); correct the address") from error
