"""A reader learns the same, whatever is written and whenever it is compacted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from minibroker.protocol.batches import iter_all_records
from minibroker.protocol.compression import Codec
from minibroker.protocol.record import Record
from minibroker.storage.compaction.cleaner_offset_map import BYTES_PER_KEY
from minibroker.storage.compaction.log_cleaner import CleanerConfig
from minibroker.storage.log.log import Log
from tests.protocol.batch_bytes import views_of
from tests.storage.cleaning import age_segments, clean, commit, config_of, latest_values, put, roll
from tests.storage.logs import UNBOUNDED, end_transaction, open_log, read_bytes

DAY_MS = 24 * 60 * 60 * 1000
VERSIONS = ("2.0", "2.0", "2.0", "0.10.2", "0.9.0")
CODECS = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.SNAPPY)


class Model:
    """A log and what its readers are to learn; keys and values by random."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.directory = directory
        version = self.random.choice(VERSIONS)
        self.config = config_of(
            message_format_version=version,
            segment_bytes=self.random.choice((600, 1200, 5000)),
            index_interval_bytes=self.random.choice((0, 100, 4096)),
            delete_retention_ms=DAY_MS,
        )
        self.log = open_log(directory, self.config)
        self.codec = self.random.choice(CODECS)
        self.has_producers = version == "2.0"
        self.known: dict[bytes | None, bytes] = {}
        self.written: dict[int, Record] = {}  # what was committed, by offset
        self.sequences = [0, 0, 0]

    def run(self) -> None:
        steps = (self.write, self.write, self.write, self.write_transaction, self.compact, self.reopen)
        for _ in range(40):
            self.random.choice(steps)()
            self.check()

    def pairs(self) -> list[tuple[str, str | None]]:
        count = self.random.randint(1, 8)
        values = [None if self.random.random() < 0.2 else str(self.random.random()) for _ in range(count)]
        return [(f"key-{self.random.randint(0, 12):0{self.random.choice((2, 20))}}", value) for value in values]

    def write(self) -> None:
        pairs = self.pairs()
        producer = self.random.randint(0, 2) if self.has_producers and self.random.random() < 0.5 else None
        if producer is None:
            self.learn(put(self.log, *pairs, codec=self.codec).first_offset, pairs)
        else:
            sequence = self.sequences[producer]
            info = put(self.log, *pairs, codec=self.codec, producer_id=producer, sequence=sequence)
            self.sequences[producer] += len(pairs)
            self.learn(info.first_offset, pairs)
        if self.random.random() < 0.3:
            roll(self.log)

    def write_transaction(self) -> None:
        """Its batches one after the other; `test_log_cleaner` has those of several at a time."""
        if not self.has_producers:
            return
        producer, written = 10 + self.random.randint(0, 1), []
        known = self.log.producer_state.producers.get(producer)
        sequence = 0 if known is None else known.last_sequence + 1
        for _ in range(self.random.randint(1, 3)):
            pairs = self.pairs()
            info = put(self.log, *pairs, producer_id=producer, sequence=sequence, is_transactional=True)
            written.append((info.first_offset, pairs))
            sequence += len(pairs)
            if self.random.random() < 0.3:
                roll(self.log)
            if self.random.random() < 0.3:
                self.compact()
        is_commit = self.random.random() < 0.5
        end_transaction(self.log, producer, is_commit=is_commit)
        commit(self.log)
        if is_commit:
            for first_offset, pairs in written:
                self.learn(first_offset, pairs)

    def learn(self, first_offset: int, pairs: list[tuple[str, str | None]]) -> None:
        for number, (key, value) in enumerate(pairs):
            record = Record(first_offset + number, 0, key.encode(), None if value is None else value.encode())
            self.written[record.offset] = record

    def compact(self) -> None:
        if self.random.random() < 0.5:
            roll(self.log)
        if self.random.random() < 0.3:
            age_segments(self.log, 2 * DAY_MS)
        keys = self.random.choice((3, 1000))
        size = self.random.choice((40, 512 * 1024))
        clean(self.log, config=CleanerConfig(keys * BYTES_PER_KEY, size, 1.0))

    def reopen(self) -> None:
        is_clean = self.random.random() < 0.5
        cleaned_offset = self.log.cleaned_offset
        if is_clean:
            self.log.close()
        self.log = open_log(self.directory, self.config, is_after_clean_stop=is_clean)
        self.log.cleaned_offset = cleaned_offset
        commit(self.log)

    def check(self) -> None:
        records = list(committed(self.log, 0))
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        assert all(same(record, self.written[record.offset]) for record in records)
        assert latest_values(records) == latest_values(self.written[offset] for offset in sorted(self.written))
        for _ in range(3):
            start = self.random.randint(0, self.log.log_end_offset)
            assert list(committed(self.log, start)) == [record for record in records if record.offset >= start]


def same(record: Record, other: Record) -> bool:
    return (record.key, record.value) == (other.key, other.value)


def committed(log: Log, start: int) -> Iterator[Record]:
    """Read as a read_committed consumer does, from an offset to the end."""
    position = start
    while position < log.last_stable_offset:
        fetched = log.read(
            position, UNBOUNDED, max_offset=log.last_stable_offset, min_one_message=True, include_aborted_txns=True
        )
        data = read_bytes(log, position, max_offset=log.last_stable_offset)
        aborted = sorted(fetched.aborted_transactions or [], key=lambda txn: txn.first_offset)
        under_way: set[int] = set()
        batches = views_of(data)
        if not batches:
            return
        for batch in batches:
            while aborted and aborted[0].first_offset <= batch.last_offset:
                under_way.add(aborted.pop(0).producer_id)
            if batch.is_control:
                under_way.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in under_way):
                records = iter_all_records(data, batch, max_decompressed_bytes=UNBOUNDED)
                yield from (record for record in records if record.offset >= start)
        position = batches[-1].next_offset


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_compaction_at_any_time_changes_nothing_a_reader_learns(tmp_path: Path, seed: int) -> None:
    Model(tmp_path / "log", seed).run()
