"""A transcript's file: every frame that a broker received and sent, as it was on the wire, in order.

    the line `minibroker transcript 1` | entries, each:
        size: uint32, of what follows | kind: uint8 | time: int64, ns since 1970 | connection: uint32 | its content

The content of a request or a response is a frame: `size: uint32 | is its end missing: uint8 | gaps: uint32
| each (position: uint32, missing: uint32) | the bytes that were kept`; of anything else it is a text. Each entry is
one write, so that a broker killed with -9 leaves at most the last one torn. Gaps are cut only into records, and after
the first gap of a frame all later records are left out: so a reader knows which records are missing.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, NamedTuple

MAGIC = b"minibroker transcript 1\n"
HEAD = struct.Struct(">IBqI")
SIZE_BYTES = 4
FRAME_HEAD = struct.Struct(">IBI")
GAP = struct.Struct(">II")
# The most a recorder writes, so a reader takes a larger size for damage.
MAX_ENTRY_BYTES = 32 * 1024 * 1024
# Of a frame with gaps, which a reader fills.
MAX_FILLED_BYTES = 128 * 1024 * 1024


class TranscriptError(Exception):
    """The file is not a transcript, or is damaged; the message names the place, in one line."""


class Kind(IntEnum):
    """The kind of an entry."""

    STARTED = 0  # a broker, with its version
    OPENED = 1  # a connection, with the client's address
    CLOSED = 2  # a connection, with the reason if the broker closed it
    REQUEST = 3
    RESPONSE = 4  # to the connection's latest request
    NO_RESPONSE = 5  # the latest request takes none
    REFUSED = 6  # the latest request, with the reason: the connection is closed
    ENDED = 7  # the recording, with the reason; the broker goes on


class Gap(NamedTuple):
    """`missing` bytes at `position` of a frame were not recorded."""

    position: int
    missing: int


class Frame(NamedTuple):
    """A frame of `size_bytes` on the wire. Some of these bytes may not have been kept."""

    size_bytes: int
    kept: bytes
    gaps: tuple[Gap, ...] = ()
    is_end_missing: bool = False

    def filled(self) -> bytearray:
        """The frame with zeros in its gaps. Raises TranscriptError when it is too large, or its end is missing."""
        if self.is_end_missing:
            raise TranscriptError(f"only its first {len(self.kept)} of {self.size_bytes} bytes were recorded")
        if self.gaps and self.size_bytes > MAX_FILLED_BYTES:
            raise TranscriptError(f"a frame of {self.size_bytes} bytes is too large to be read")
        filled = bytearray(self.size_bytes)
        position = taken = 0
        for gap in (*self.gaps, Gap(self.size_bytes, 0)):
            size = gap.position - position
            filled[position : gap.position] = self.kept[taken : taken + size]
            position, taken = gap.position + gap.missing, taken + size
        return filled


class Entry(NamedTuple):
    """One entry; requests and responses have a `frame`, the others a `text`."""

    kind: Kind
    time_ns: int
    connection: int
    text: str = ""
    frame: Frame | None = None


def encode_entry(entry: Entry) -> bytes:
    frame = entry.frame
    content = entry.text.encode() if frame is None else encode_frame(frame)
    size = HEAD.size - SIZE_BYTES + len(content)
    return HEAD.pack(size, entry.kind, entry.time_ns, entry.connection) + content


def encode_frame(frame: Frame) -> bytes:
    gaps = b"".join(GAP.pack(*gap) for gap in frame.gaps)
    return FRAME_HEAD.pack(frame.size_bytes, frame.is_end_missing, len(frame.gaps)) + gaps + frame.kept


def decode_entry(data: bytes) -> Entry:
    """The entry in `data`, which begins with its size. Raises TranscriptError."""
    _, kind, time_ns, connection = HEAD.unpack_from(data)
    if kind not in tuple(Kind):
        raise TranscriptError(f"an entry of kind {kind}")
    if kind in (Kind.REQUEST, Kind.RESPONSE):
        return Entry(Kind(kind), time_ns, connection, frame=decode_frame(data[HEAD.size :]))
    return Entry(Kind(kind), time_ns, connection, data[HEAD.size :].decode(errors="replace"))


def decode_frame(data: bytes) -> Frame:
    """Raises TranscriptError."""
    if len(data) < FRAME_HEAD.size:
        raise TranscriptError(f"a frame in {len(data)} bytes")
    size, is_end_missing, count = FRAME_HEAD.unpack_from(data)
    begin = FRAME_HEAD.size + count * GAP.size
    if begin > len(data):
        raise TranscriptError(f"{count} gaps in {len(data)} bytes")
    gaps = tuple(Gap(*pair) for pair in GAP.iter_unpack(data[FRAME_HEAD.size : begin]))
    frame = Frame(size, data[begin:], gaps, bool(is_end_missing))
    check_frame(frame)
    return frame


def check_frame(frame: Frame) -> None:
    """Raises TranscriptError unless the kept and the missing bytes make up the frame."""
    end = 0
    for gap in frame.gaps:
        if gap.position < end:
            raise TranscriptError("gaps of a frame that overlap")
        end = gap.position + gap.missing
    size = len(frame.kept) + sum(gap.missing for gap in frame.gaps)
    if end > frame.size_bytes or size > frame.size_bytes or (size < frame.size_bytes and not frame.is_end_missing):
        raise TranscriptError(f"{size} bytes of a frame of {frame.size_bytes}")


# -- reading --------------------------------------------------------------------------------------------------


class TranscriptReader:
    """Reads entries from the beginning; after the last one it can be asked again. Close it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and TranscriptError for a file that is not a transcript."""
        self._path = path
        self._file: BinaryIO = path.open("rb")
        magic = self._file.read(len(MAGIC))
        self._position = len(magic)
        if not MAGIC.startswith(magic):
            self._file.close()
            raise TranscriptError(f"{path}: not a transcript of this version of minibroker")

    def entries(self) -> Iterator[Entry]:
        """Whole entries, up to the present end of the file. Raises TranscriptError where the file is damaged."""
        while (data := self._next()) is not None:
            try:
                entry = decode_entry(data)
            except TranscriptError as error:
                raise self._damage(str(error)) from None
            self._position += len(data)
            yield entry

    @property
    def torn_bytes(self) -> int:
        """The number of bytes after the last whole entry."""
        return max(0, os.fstat(self._file.fileno()).st_size - self._position)

    @property
    def position(self) -> int:
        """The position after the last entry read."""
        return self._position

    def close(self) -> None:
        self._file.close()

    def _next(self) -> bytes | None:
        self._file.seek(self._position)
        size_bytes = self._file.read(SIZE_BYTES)
        if len(size_bytes) < SIZE_BYTES:
            return None
        size = int.from_bytes(size_bytes, "big")
        if not HEAD.size - SIZE_BYTES <= size <= MAX_ENTRY_BYTES:
            raise self._damage(f"an entry of {size} bytes")
        data = self._file.read(size)
        return size_bytes + data if len(data) == size else None

    def _damage(self, reason: str) -> TranscriptError:
        return TranscriptError(f"{self._path} is damaged at byte {self._position}: {reason}")


# -- writing --------------------------------------------------------------------------------------------------


class TranscriptWriter:
    """Appends entries to a file, which it locks. It first cuts off the torn entry of a killed broker."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and TranscriptError for a file that is not a transcript: it overwrites nothing."""
        self.path = path
        self.last_connection = 0  # in what the file holds already
        self.size_bytes = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take_over()
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, entry: bytes) -> None:
        """Append an encoded entry. Raises OSError; the file may then end in a torn entry."""
        self._write(entry)

    def close(self) -> None:
        os.close(self._fd)

    def _take_over(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TranscriptError(f"another broker is writing {self.path}") from None
        if os.fstat(self._fd).st_size < len(MAGIC) and MAGIC.startswith(os.pread(self._fd, len(MAGIC), 0)):
            self._write(MAGIC)
            return
        reader = TranscriptReader(self.path)
        try:
            for entry in reader.entries():
                self.last_connection = max(self.last_connection, entry.connection)
            os.ftruncate(self._fd, reader.position)
            os.lseek(self._fd, reader.position, os.SEEK_SET)
            self.size_bytes = reader.position
        finally:
            reader.close()

    def _write(self, data: bytes) -> None:
        written = os.write(self._fd, data)
        if written < len(data):  # a regular file: the disk is full, or a limit is reached
            raise OSError(f"wrote only {written} of {len(data)} bytes")
        self.size_bytes += written
