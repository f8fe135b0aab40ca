"""A transcript's file: everything a broker was sent and has answered, as it was on the wire, in order.

    the line `minibroker transcript 1` | entries, each:
        size: uint32, of what follows | kind: uint8 | time: int64, ns since 1970 | connection: uint32 | its content

The content of a request or a response is a frame: `size: uint32 | is its end missing: uint8 | gaps: uint32
| each (position: uint32, missing: uint32) | the bytes that were kept`; of anything else it is a text. Each entry is
one write, so that a broker killed with -9 leaves all of them but for a torn last one. A gap is only ever cut into
records, and once there is one in a frame all records behind it are left out: whoever reads it can tell which they are.
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
# What a recorder may write at most, and so what a reader believes.
MAX_ENTRY_BYTES = 32 * 1024 * 1024
# Of a frame with gaps: when it is read, they are filled.
MAX_FILLED_BYTES = 128 * 1024 * 1024


class TranscriptError(Exception):
    """The file is no transcript, or is damaged; the message says where, in one line."""


class Kind(IntEnum):
    """What an entry tells."""

    STARTED = 0  # a broker, and of which version
    OPENED = 1  # a connection, and by which address
    CLOSED = 2  # a connection, and why if that was not the client's wish
    REQUEST = 3
    RESPONSE = 4  # to the connection's latest request
    NO_RESPONSE = 5  # the latest request wants none
    REFUSED = 6  # the latest request, and why: the connection is closed


class Gap(NamedTuple):
    """`missing` bytes that were at `position` of a frame."""

    position: int
    missing: int


class Frame(NamedTuple):
    """A frame of `size_bytes` on the wire, of which some may not have been kept."""

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
    """One entry; `frame` of a request or response, `text` of the others."""

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
    """The entry of `data`, its size in front. Raises TranscriptError."""
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
    """Raises TranscriptError unless what was kept and what is missing are a frame."""
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
    """Entries from the beginning on; when there are no more, it can be asked again. Close it."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and TranscriptError for a file that is no transcript."""
        self._path = path
        self._file: BinaryIO = path.open("rb")
        magic = self._file.read(len(MAGIC))
        self._position = len(magic)
        if not MAGIC.startswith(magic):
            self._file.close()
            raise TranscriptError(f"{path} is no transcript of this version of minibroker")

    def entries(self) -> Iterator[Entry]:
        """Whole entries, up to the end as it is now. Raises TranscriptError where the file is damaged."""
        while (data := self._next()) is not None:
            try:
                entry = decode_entry(data)
            except TranscriptError as error:
                raise self._damage(str(error)) from None
            self._position += len(data)
            yield entry

    @property
    def torn_bytes(self) -> int:
        """How many bytes there are behind the last whole entry."""
        return max(0, os.fstat(self._file.fileno()).st_size - self._position)

    @property
    def position(self) -> int:
        """The end of the last whole entry that was read."""
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
        return TranscriptError(f"{self._path} is damaged at {self._position}: {reason}")


# -- writing --------------------------------------------------------------------------------------------------


class TranscriptWriter:
    """Appends entries to a file, for itself alone. What a killed broker has torn is cut off first."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and TranscriptError for a file that is no transcript: nothing is ever overwritten."""
        self.path = path
        self.last_connection = 0  # of those who have written to it before
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take_over()
        except BaseException:
            os.close(self._fd)
            raise

    def write(self, entry: Entry) -> None:
        """Raises OSError; then the file may end in a torn entry."""
        self._write(encode_entry(entry))

    def close(self) -> None:
        os.close(self._fd)

    def _take_over(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TranscriptError(f"{self.path} is being written by another broker") from None
        if os.fstat(self._fd).st_size < len(MAGIC) and MAGIC.startswith(os.pread(self._fd, len(MAGIC), 0)):
            self._write(MAGIC)
            return
        reader = TranscriptReader(self.path)
        try:
            for entry in reader.entries():
                self.last_connection = max(self.last_connection, entry.connection)
            os.ftruncate(self._fd, reader.position)
            os.lseek(self._fd, reader.position, os.SEEK_SET)
        finally:
            reader.close()

    def _write(self, data: bytes) -> None:
        written = os.write(self._fd, data)
        if written < len(data):  # of a regular file that is a full disk, or a limit
            raise OSError(f"only {written} of {len(data)} bytes could be written")
