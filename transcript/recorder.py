"""Records requests and responses in a file that `minibroker transcript` prints.

Secrets are hidden (`secrets.py`). A frame keeps at most `max_record_bytes` of records, and MAX_OTHER_BYTES of
everything else. When a write to the file fails, or the file has `max_bytes`, recording ends with a line in the log, and
the broker goes on serving.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from minibroker.protocol.api import API_TABLE, decode_request
from minibroker.protocol.codegen import records_size
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.text import reason_of
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from minibroker.transcript.file import Entry, Frame, Gap, Kind, TranscriptWriter, encode_entry
from minibroker.transcript.secrets import (
    TOKEN,
    Asked,
    asked_by,
    hidden_request,
    hidden_response,
    is_understood,
    only_size,
)

logger = logging.getLogger(__name__)

MAX_OTHER_BYTES = 4 * 1024 * 1024

Chunks = list[Any] | None  # an encoded response; None where the request takes none


class Recorder:
    """Writes an entry for each connection, request and response. Its times are the machine's, never go back, and
    ignore what tests do to the broker's clock."""

    def __init__(self, writer: TranscriptWriter, *, max_record_bytes: int, max_bytes: int) -> None:
        self._writer: TranscriptWriter | None = writer
        self.path = writer.path.absolute()
        self._max_record_bytes = max_record_bytes
        self._max_bytes = max_bytes
        self.last_connection = writer.last_connection  # the greatest number that the file has from earlier brokers
        self._secrets: dict[int, Asked] = {}  # by connection, while a request with secrets is in hand
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    @property
    def is_recording(self) -> bool:
        """Whether the file goes on; not after a failed write, or at its largest size."""
        return self._writer is not None

    def started(self, what: str) -> None:
        """Record that a broker begins to serve; `what` describes it to people."""
        self._write(Kind.STARTED, 0, text=what)

    def opened(self, connection: int, address: str) -> None:
        self._write(Kind.OPENED, connection, text=address)

    def closed(self, connection: int, reason: str) -> None:
        self._write(Kind.CLOSED, connection, text=reason)

    def request(self, connection: int, frame: bytearray) -> None:
        """Record a request, and hide its secrets and those of its response."""
        if self._writer is None:
            return
        asked = asked_by(frame)
        if asked is None:
            chunks = request_chunks(frame, self._max_record_bytes)
            self._write(Kind.REQUEST, connection, frame=kept(chunks, self._max_record_bytes))
        else:
            self._secrets[connection] = asked
            self._write(Kind.REQUEST, connection, frame=hidden_request(frame))

    def request_before_login(self, connection: int, frame: bytearray, *, is_token: bool) -> None:
        """Record a request of a client that has not authenticated; of bytes that may be a token only the size."""
        if self._writer is None:
            return
        if not is_token and is_understood(frame):
            self.request(connection, frame)
        else:
            self._secrets[connection] = TOKEN
            self._write(Kind.REQUEST, connection, frame=only_size(len(frame)))

    def answered(self, connection: int, answer: Chunks) -> Chunks:
        """Record the response; return it to be sent, with the slices read that can be read only once."""
        if self._writer is None:
            return answer
        if answer is None:
            self._write(Kind.NO_RESPONSE, connection)
            return None
        for index, chunk in enumerate(answer):
            if isinstance(chunk, ConvertedSlice):
                answer[index] = chunk.read()
        asked = self._secrets.pop(connection, None) if self._secrets else None
        if asked is None:
            self._write(Kind.RESPONSE, connection, frame=kept(answer, self._max_record_bytes))
        else:
            self._write(Kind.RESPONSE, connection, frame=hidden_response(answer, asked))
        return answer

    def refused(self, connection: int, reason: str, torn_response: bytes = b"") -> None:
        """Record a request that closes its connection. A torn response, which a fault may send, is recorded as the
        answer; the reason then comes with the end of the connection."""
        self._secrets.pop(connection, None)
        if torn_response:
            self._write(Kind.RESPONSE, connection, frame=kept([torn_response], self._max_record_bytes))
        else:
            self._write(Kind.REFUSED, connection, text=reason)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, kind: Kind, connection: int, *, text: str = "", frame: Frame | None = None) -> None:
        if self._writer is None:
            return
        now_ns = self._epoch_ns + time.monotonic_ns()
        data = encode_entry(Entry(kind, now_ns, connection, text, frame))
        reason = ""
        if self._writer.size_bytes + len(data) > self._max_bytes:
            reason = f"it has reached {self._max_bytes} bytes; use another file, or raise --transcript-max-bytes"
            data = encode_entry(Entry(Kind.ENDED, now_ns, 0, reason))
        try:
            self._writer.write(data)
        except OSError as error:
            reason = reason_of(error)
        if reason:
            logger.error("the transcript %s ends here: %s", self._writer.path, reason)
            self.close()


def request_chunks(frame: bytearray, max_record_bytes: int) -> list[Any]:
    """Split a large request into the chunks of its encoder. Every second chunk is records. Keep a small one whole."""
    if len(frame) <= max_record_bytes:
        return [frame]
    try:
        request = decode_request(frame)
    except KafkaProtocolError:
        return [frame]
    if request.body is None:
        return [frame]
    chunks = API_TABLE[request.api_key].request.encode(request.api_version, request.body)
    header_bytes = len(frame) - sum(map(records_size, chunks))
    if len(chunks) < 2 or header_bytes < 0 or frame[header_bytes : header_bytes + len(chunks[0])] != chunks[0]:
        return [frame]  # it has unknown tagged fields, or bytes after its end
    return [bytes(frame[:header_bytes]) + chunks[0], *chunks[1:]]


def kept(chunks: Sequence[Any], max_record_bytes: int) -> Frame:
    """The part of these chunks to record; every other chunk is records, as an encoder returns them."""
    left = max_record_bytes
    position = 0
    parts: list[bytes] = []
    gaps: list[Gap] = []
    for index, chunk in enumerate(chunks):
        size = records_size(chunk)
        wanted = min(size, left) if index % 2 else size
        part = head_of(chunk, wanted)
        if index % 2:
            left -= wanted
            if len(part) < size:
                gaps.append(Gap(position + len(part), size - len(part)))
                left = 0
        parts.append(part)
        position += size
    frame = Frame(position, b"".join(parts), tuple(gaps))
    return cut_short(frame) if len(frame.kept) > max_record_bytes + MAX_OTHER_BYTES else frame


def cut_short(frame: Frame) -> Frame:
    """Keep only the beginning of a frame that has too much besides records."""
    end = frame.gaps[0].position if frame.gaps else frame.size_bytes
    return Frame(frame.size_bytes, frame.kept[: min(end, MAX_OTHER_BYTES)], is_end_missing=True)


def head_of(chunk: Any, size_bytes: int) -> bytes:
    """The first bytes of a chunk; fewer if its log was truncated in the meantime."""
    if isinstance(chunk, FileSlice):
        try:
            return FileSlice(chunk.file, chunk.position, size_bytes).read()
        except (OSError, EOFError):  # sending it raises the same error
            return b""
    return bytes(memoryview(chunk)[:size_bytes])
