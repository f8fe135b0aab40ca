"""Transcripts of conversations that nobody has had: requests and responses of the API table, a millisecond apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.cli.app import main
from minibroker.protocol.api import Request, encode_request, encode_response, joined
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.transcript.file import Entry, Frame, Kind, TranscriptWriter, encode_entry

BEGIN_NS = 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z
MS = 1_000_000
CLIENT_ID = "tower"
TIMESTAMP_MS = 1_357_020_000_000  # 2013-01-01T06:00:00Z


class Conversation:
    """Writes a transcript; every step takes a millisecond. Connection 1 is open from the beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = TranscriptWriter(path)
        self._now_ns = BEGIN_NS
        self._correlation_id = 0
        self._is_closed = False
        self.tell(Kind.STARTED, "process 7, data in data", connection=0)
        self.tell(Kind.OPENED, "127.0.0.1:50000")

    def tell(self, kind: Kind, text: str = "", *, connection: int = 1, frame: Frame | None = None) -> None:
        self._writer.write(encode_entry(Entry(kind, self._now_ns, connection, text, frame)))
        self._now_ns += MS

    def ask(self, api_key: int, version: int, body: Any, *, connection: int = 1, client_id: str = CLIENT_ID) -> Request:
        self._correlation_id += 1
        frame = encode_request(api_key, version, self._correlation_id, client_id, body)[4:]
        self.ask_bytes(frame, connection=connection)
        return Request(api_key, version, self._correlation_id, client_id, body)

    def ask_bytes(self, frame: bytes, *, connection: int = 1) -> None:
        self.tell(Kind.REQUEST, connection=connection, frame=Frame(len(frame), frame))

    def answer(self, request: Request, body: Any, *, connection: int = 1) -> None:
        self.answer_bytes(joined(encode_response(request, body)), connection=connection)

    def answer_bytes(self, frame: bytes, *, connection: int = 1) -> None:
        self.tell(Kind.RESPONSE, connection=connection, frame=Frame(len(frame), frame))

    def close(self) -> Path:
        """No more is said. May be called again."""
        if not self._is_closed:
            self._writer.close()
            self._is_closed = True
        return self.path


class Screen:
    """Runs `minibroker transcript` in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.err = ""

    def text(self, conversation: Conversation, *arguments: object, status: int = 0) -> str:
        assert main(["transcript", str(conversation.path), *map(str, arguments)]) == status
        printed = self._capsys.readouterr()
        self.err = printed.err
        return printed.out

    def exchanges(self, conversation: Conversation, *arguments: object) -> str:
        """Without what is told of brokers and connections."""
        lines = self.text(conversation, *arguments).splitlines(keepends=True)
        return "".join(line for line in lines if " s  a broker" not in line and " opened by " not in line)

    def rows(self, conversation: Conversation, *arguments: object) -> list[Any]:
        return [json.loads(line) for line in self.text(conversation, "-o", "json", *arguments).splitlines()]


def records(count: int, **options: Any) -> bytes:
    each = [
        Record(index, TIMESTAMP_MS + index, b"UA", b"value %d" % index, (("source", b"tower"),))
        for index in range(count)
    ]
    return bytes(build_batch(each, **options))
