"""The newest offset of each key in the part of a log that is about to be compacted, in bounded memory.

As kafka 2.0.1 SkimpyOffsetMap, made of what is fast in Python: dicts from the key to its offset. A long key is
represented by a digest of 128 bits (BLAKE2b), as a number, so that no key can be taken for the digest of another;
a short one by itself, which takes no more memory. An entry with its key and its offset takes up to `BYTES_PER_KEY`,
where Kafka's table of digests takes 24: of the same `log.cleaner.dedupe.buffer.size` fewer keys are held, and a log
with more keys than that is compacted in several rounds.

There are many dicts, because one that grows, or is given up, keeps all other threads waiting until it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from minibroker.protocol.batch_filter import KeyedRecord

BYTES_PER_KEY = 192  # measured: 186 at the worst fill
_KEYS_PER_DICT = 16_384  # a millisecond to give up
_LONGEST_KEPT_BYTES = 31  # up to here Python's allocator makes no difference
_DIGEST_BYTES = 16


class OffsetMap:
    """Offsets by key, and `latest_offset`: up to which offset the log has been read into it, -1 for not at all."""

    __slots__ = ("_dicts", "_max_keys", "_room", "latest_offset")

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self.latest_offset = -1
        self._max_keys = max(int(memory_bytes // BYTES_PER_KEY * load_factor), 1)
        self._room = self._max_keys  # so many records can come, even if all their keys are new
        count = 1 << (self._max_keys // _KEYS_PER_DICT).bit_length()
        self._dicts: list[dict[bytes | int, int]] = [{} for _ in range(count)]

    def __len__(self) -> int:
        return sum(map(len, self._dicts))

    @property
    def is_full(self) -> bool:
        """Whether no further batch is to be put in; the last one may have gone beyond."""
        if self._room <= 0:
            self._room = self._max_keys - len(self)
        return self._room <= 0

    def put(self, records: list[KeyedRecord], first_offset: int) -> None:
        """Note the records from an offset on, in the order of the log."""
        dicts, mask = self._dicts, len(self._dicts) - 1
        for offset, full_key, _, _, _, _ in records:
            if full_key is not None and offset >= first_offset:
                key = full_key if len(full_key) <= _LONGEST_KEPT_BYTES else _digest(full_key)
                dicts[hash(key) & mask][key] = offset
        self._room -= len(records)

    def without_superseded(self, records: Iterable[KeyedRecord], *, retain_deletes: bool) -> list[KeyedRecord]:
        """Return the records that stay (as kafka 2.0.1 Cleaner.shouldRetainRecord).

        A record goes that has no key, or a newer one with its key; a tombstone too when they are not retained.
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

    def give_up(self, breathe: Callable[[], None]) -> None:
        """Forget all keys, calling `breathe` in between."""
        while self._dicts:
            self._dicts.pop()
            breathe()


def _digest(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=_DIGEST_BYTES).digest())
