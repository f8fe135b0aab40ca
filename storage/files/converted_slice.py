"""A slice of a `.log` that is converted for an older client while it is being sent (KIP-283).

Its size is promised before all of it is converted: the size of the slice, or of the first converted batch if that is
larger. If conversion saves bytes, the rest is filled with the head of a batch that is too long to be whole, which
every client drops as the usual partial batch at the end. If it adds bytes, the end is cut off.

As kafka 2.0.1 LazyDownConversionRecords and LazyDownConversionRecordsSend, with two oddities: a slice with control
batches only is 12 bytes of filler, and after control batches at the start the first batch comes twice.
With `at_once`, all is converted before its size is promised, as kafka 1.1 does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from minibroker.protocol.batches import BatchView, scan_batches
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.record_batch import (
    HEADER_SIZE_UP_TO_MAGIC,
    LOG_OVERHEAD,
    OFFSET_AND_LENGTH,
    RECORD_BATCH_OVERHEAD,
    size_at,
)
from minibroker.storage.files.records_file import FileSlice

logger = logging.getLogger(__name__)

MAX_DECOMPRESSED_BATCH_BYTES = 64 * 1024 * 1024
READ_BYTES = 128 * 1024  # read at a time, unless a batch is longer; the longest filler too
PIECE_BYTES = 32 * 1024  # of uncompressed records, which take about a millisecond to convert


class ConvertedSlice:
    """Sent as `size_bytes` in `pieces`, which can be iterated once, as the first batch is not kept.

    Of uncompressed batches, records before `fetch_offset` are left out. Raises KafkaError if the first batch cannot be
    converted; a later one ends the answer, and is the first one of the client's next fetch.
    """

    __slots__ = ("_fetch_offset", "_first", "records", "size_bytes", "to_magic")

    def __init__(self, records: FileSlice, to_magic: int, fetch_offset: int, *, at_once: bool = False) -> None:
        self.records = records
        self.to_magic = to_magic
        self._fetch_offset = fetch_offset
        converted = (self._convert(buffer, view) for buffer, view in whole_batches(records))
        self._first: bytes | bytearray = b"".join(converted) if at_once else next(filter(None, converted), b"")
        if at_once:
            self.size_bytes = len(self._first)
            return
        self.size_bytes = max(records.size_bytes, len(self._first)) if self._first else LOG_OVERHEAD

    def pieces(self) -> Iterator[bytes | bytearray]:
        """Iterate over all bytes, each converted when it is requested. Raises OSError."""
        missing_bytes = self.size_bytes
        for piece in self._converted_pieces():
            yield piece[:missing_bytes]
            missing_bytes -= len(piece)
            if missing_bytes <= 0:
                return
        while missing_bytes > 0:
            filling = filler(missing_bytes)
            yield filling
            missing_bytes -= len(filling)

    def read(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.pieces())

    def _converted_pieces(self) -> Iterator[bytearray]:
        if not self._first:
            return
        piece, self._first = bytearray(self._first), b""
        if len(piece) == self.size_bytes:
            yield piece
            return
        batches = whole_batches(self.records)
        next(batches)  # the first one, which is not always the one that was converted: see above
        try:
            for buffer, view in batches:
                if len(piece) >= PIECE_BYTES or view.codec is not Codec.NONE:
                    yield piece
                    piece = bytearray()
                piece += self._convert(buffer, view)
        except KafkaError as error:
            logger.warning("ending %r at a batch that cannot be converted: %s", self, error)
        yield piece

    def _convert(self, buffer: bytes, view: BatchView) -> bytearray:
        return down_convert(
            buffer,
            view.position,
            view.end_position,
            to_magic=self.to_magic,
            first_offset=self._fetch_offset,
            max_decompressed_bytes=MAX_DECOMPRESSED_BATCH_BYTES,
        )

    def __repr__(self) -> str:
        return f"ConvertedSlice({self.records!r} to magic {self.to_magic})"


def whole_batches(records: FileSlice) -> Iterator[tuple[bytes, BatchView]]:
    """Iterate over the whole batches of the slice, each with its buffer of about `READ_BYTES`.

    Raises OSError, KafkaError.
    """
    position, end = records.position, records.position + records.size_bytes
    wanted_bytes = READ_BYTES
    while position < end:
        buffer = records.file.read(position, min(wanted_bytes, end - position))
        read_bytes = 0
        for view in scan_batches(buffer, 0, len(buffer)):
            yield buffer, view
            read_bytes = view.end_position
        if read_bytes:
            position += read_bytes
            wanted_bytes = READ_BYTES
            continue
        if len(buffer) < min(wanted_bytes, end - position) or len(buffer) < HEADER_SIZE_UP_TO_MAGIC:
            return
        wanted_bytes = size_at(buffer)
        if wanted_bytes > end - position:
            return


def filler(missing_bytes: int) -> bytes:
    """Return at most `missing_bytes` that every client takes for the beginning of a batch."""
    # An offset that no record has, and a size that makes it partial.
    head = OFFSET_AND_LENGTH.pack(-1, max(missing_bytes + 1, RECORD_BATCH_OVERHEAD))
    return head.ljust(min(missing_bytes, READ_BYTES), b"\0")[:missing_bytes]
