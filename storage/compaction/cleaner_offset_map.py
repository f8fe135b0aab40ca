"""Maps each key in the dirty part of a log to its newest offset, in bounded memory.

As kafka 2.0.1 SkimpyOffsetMap, but with dicts, which are fast in Python. A short key is stored as it is, which takes
no more memory than a digest; a long one as a digest of 128 bits (BLAKE2b), a number, so that it cannot equal a key. An
entry takes up to `BYTES_PER_KEY` bytes, against 24 in Kafka's table: the same `log.cleaner.dedupe.buffer.size` has
room for fewer keys, and a log with more keys is compacted in several rounds.

There are many dicts, because a dict that grows, or is freed, blocks all other threads until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from minibroker.protocol.batch_filter import KeyedRecord

BYTES_PER_KEY = 192  # measured: 186 at the worst fill
_KEYS_PER_DICT = 16_384  # freeing them takes a millisecond
_LONGEST_KEPT_BYTES = 31  # up to here a key takes no more memory than a digest
_DIGEST_BYTES = 16


class OffsetMap:
    """Offsets by key. `latest_offset` is the last offset of the log that has been read; -1 for none."""

    __slots__ = ("_dicts", "_max_keys", "_room", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self.latest_offset = -1
        keys = memory_bytes // BYTES_PER_KEY
        self._max_keys = int(min(max(1, keys * load_factor), 1 << 62))  # the factor may be NaN, or infinite
        self._room = self._max_keys  # for so many records, even if all their keys are new
        count = 1 << (self._max_keys // _KEYS_PER_DICT).bit_length()
        self._dicts: list[dict[bytes | int, int]] = [{} for _ in range(count)]

    def note_read(self, last_offset: int) -> None:
        """Note the end of a batch that has been read."""
        self.latest_offset = last_offset

    def __len__(self) -> int:
        return sum(map(len, self._dicts))

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another batch; the last one may have exceeded the limit."""
        if self._room <= 0:
            self._room = self._max_keys - len(self)
        return self._room <= 0

    def put(self, records: list[KeyedRecord], first_offset: int) -> None:
        """Add the records from an offset on, in the order of the log."""
        dicts, mask = self._dicts, len(self._dicts) - 1
        for offset, full_key, _, _, _, _ in records:
            if full_key is not None and offset >= first_offset:
                key = full_key if len(full_key) <= _LONGEST_KEPT_BYTES else _digest(full_key)
                dicts[hash(key) & mask][key] = offset
        self._room -= len(records)

    def without_superseded(self, records: Iterable[KeyedRecord], *, retain_deletes: bool) -> list[KeyedRecord]:
        """Return the records that stay (as kafka 2.0.1 Cleaner.shouldRetainRecord).

        Removed are records without a key, or with a newer one of the same key, and tombstones unless retained.
        """
        dicts, mask = self._dicts, len(self._dicts) - 1
        kept = []
        for record in records:
            offset, full_key, has_value, _, _, _ = record
            if full_key is None:
                continue
            key = full_key if len(full_key) <= _LONGEST_KEPT_BYTES else _digest(full_key)
            if dicts[hash(key) & mask].get(key, -1) <= offset and (has_value or retain_deletes):
                kept.append(record)
        return kept

    def clear(self, yield_gil: Callable[[], None]) -> None:
        """Free all keys, and call `yield_gil` in between."""
        while self._dicts:
            self._dicts.pop()
            yield_gil()


def _digest(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=_DIGEST_BYTES).digest())
