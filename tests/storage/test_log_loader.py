"""Opening a directory that a clean stop, a crash, an interrupted compaction or damage leaves."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record_batch import size_at
from minibroker.storage.config import LogConfig
from minibroker.storage.log.log import Log
from minibroker.storage.segment.log_segment import LogSegment
from tests.refusals import refusal_of
from tests.storage.logs import (
    NOW_MS,
    SMALL,
    append,
    batch_of,
    end_transaction,
    names_in,
    offsets_of,
    open_log,
    roll_three,
    segment_bases,
    send,
    send_transactional,
    values_of,
)

NINE = [f"v{number}" for number in range(9)]
FIRST, SECOND, THIRD = (f"{base:020d}" for base in (0, 3, 6))


def closed_log(directory: Path) -> None:
    """Leave a directory of three segments, closed well; indexes have entries."""
    log = roll_three(directory, replace(SMALL, index_interval_bytes=0))
    log.close()


def reopen(directory: Path, *, is_after_clean_stop: bool = True, recovery_point: int = 9) -> Log:
    return open_log(directory, SMALL, is_after_clean_stop=is_after_clean_stop, recovery_point=recovery_point)


def assert_whole(log: Log) -> None:
    """The log serves all nine records, by offset and by time, and takes more."""
    assert values_of(log) == NINE
    assert offsets_of(log) == list(range(9))
    for number in range(9):
        assert log.convert_to_offset_metadata(number).segment_base_offset == number // 3 * 3
        assert log.fetch_offset_by_timestamp(NOW_MS + number) == (NOW_MS + number, number)
    assert append(log, "more").first_offset == 9


class TestEmpty:
    def test_without_files_a_log_is_empty_and_begins_at_its_start_offset(self, log: Log, tmp_path: Path) -> None:
        lost = open_log(tmp_path / "lost", log_start_offset=20)

        assert (log.log_start_offset, log.log_end_offset, segment_bases(log)) == (0, 0, [0])
        assert append(log, "a").first_offset == 0
        assert (lost.log_start_offset, lost.log_end_offset) == (20, 20)


class TestCleanStop:
    @pytest.mark.parametrize("is_after_clean_stop", [True, False])
    def test_a_log_comes_back_as_it_was(self, tmp_path: Path, is_after_clean_stop: bool) -> None:
        log = roll_three(tmp_path, replace(SMALL, index_interval_bytes=0))
        if is_after_clean_stop:
            log.close()

        log = reopen(tmp_path, is_after_clean_stop=is_after_clean_stop, recovery_point=9 if is_after_clean_stop else 0)

        assert (segment_bases(log), log.recovery_point) == ([0, 3, 6], 9 if is_after_clean_stop else 0)
        assert_whole(log)

    def test_a_clean_stop_trims_the_indexes(self, tmp_path: Path) -> None:
        closed_log(tmp_path)

        assert [(tmp_path / f"{base}.index").stat().st_size for base in (FIRST, SECOND, THIRD)] == [16] * 3
        assert [(tmp_path / f"{base}.timeindex").stat().st_size for base in (FIRST, THIRD)] == [24, 24]

    @pytest.mark.parametrize(("is_clean", "recovery_point", "read"), [(True, 9, []), (False, 4, [3, 6])])
    @pytest.mark.pure
    def test_segments_from_the_recovery_point_on_are_read_through_after_a_crash(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool, recovery_point: int, read: list[int]
    ) -> None:
        closed_log(tmp_path)
        recovered: list[int] = []
        recover = LogSegment.recover

        def note(segment: LogSegment, *given: Any) -> int:
            recovered.append(segment.base_offset)
            return recover(segment, *given)

        monkeypatch.setattr(LogSegment, "recover", note)
        reopen(tmp_path, is_after_clean_stop=is_clean, recovery_point=recovery_point)

        assert recovered == read

    @pytest.mark.parametrize("is_after_clean_stop", [True, False])
    def test_a_damaged_end_is_cut_off_after_a_clean_stop_too(self, tmp_path: Path, is_after_clean_stop: bool) -> None:
        closed_log(tmp_path)
        path = tmp_path / f"{THIRD}.log"
        path.write_bytes(path.read_bytes() + bytes(100))  # also what preallocation leaves

        assert_whole(reopen(tmp_path, is_after_clean_stop=is_after_clean_stop, recovery_point=6))

    def test_leader_epochs_beyond_the_end_are_forgotten(self, tmp_path: Path) -> None:
        closed_log(tmp_path)
        (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n5 9\n")

        assert reopen(tmp_path).leader_epochs.entries == ((0, 0),)

    def test_the_log_start_offset_is_kept_and_beyond_the_end_the_log_begins_anew(self, tmp_path: Path) -> None:
        closed_log(tmp_path)

        inside = open_log(tmp_path, SMALL, is_after_clean_stop=True, log_start_offset=4)
        assert (inside.log_start_offset, inside.high_watermark) == (4, 4)
        assert values_of(inside) == NINE[4:]
        inside.close()

        beyond = open_log(tmp_path, SMALL, log_start_offset=50)
        assert (beyond.log_start_offset, beyond.log_end_offset) == (50, 50)
        assert [path.name for path in tmp_path.glob("*.log")] == [f"{50:020d}.log"]
        assert append(beyond, "more").first_offset == 50

    def test_a_fence_outlives_its_segment_the_deletion_of_records_and_a_crash(self, tmp_path: Path) -> None:
        log = open_log(tmp_path)
        send_transactional(log, 7, 0, "1")
        end_transaction(log, 7, is_commit=False, epoch=1)
        log.update_high_watermark(2)
        log.delete_old_segments(NOW_MS + log.config.retention_ms + 1)
        append(log, "2")
        log.update_high_watermark(3)
        log.delete_records(3)

        again = open_log(tmp_path, log_start_offset=3)

        assert segment_bases(again) == [2]
        assert refusal_of(lambda: send_transactional(again, 7, 0, "3")) is ErrorCode.INVALID_PRODUCER_EPOCH


class TestIndexes:
    @pytest.mark.parametrize("is_after_clean_stop", [True, False])
    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda path: path.unlink(), id="missing"),
            pytest.param(lambda path: path.write_bytes(b""), id="empty"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes() + b"\0"), id="a byte too long"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="a byte too short"),
            pytest.param(lambda path: path.write_bytes(bytes(4096)), id="zeros"),
            pytest.param(lambda path: path.write_bytes(b"\xff" * 48), id="ones"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes() + bytes(4800)), id="room of a crash"),
        ],
    )
    def test_a_damaged_index_is_made_again(
        self, tmp_path: Path, suffix: str, damage: Callable[[Path], object], is_after_clean_stop: bool
    ) -> None:
        closed_log(tmp_path)
        for base in (FIRST, THIRD):
            damage(tmp_path / f"{base}{suffix}")

        assert_whole(reopen(tmp_path, is_after_clean_stop=is_after_clean_stop))

    def test_an_index_of_another_segment_is_made_again(self, tmp_path: Path) -> None:
        log = open_log(tmp_path, replace(SMALL, index_interval_bytes=0, segment_bytes=100_000))
        for number in range(9):
            append(log, f"v{number}" if number % 3 else "v" * number * 50, timestamp_ms=NOW_MS + number)
            if number % 3 == 2:
                log.roll(NOW_MS)
        expected = values_of(log)
        log.close()
        shutil.copyfile(tmp_path / f"{THIRD}.index", tmp_path / f"{FIRST}.index")
        shutil.copyfile(tmp_path / f"{THIRD}.timeindex", tmp_path / f"{FIRST}.timeindex")

        reopened = reopen(tmp_path)

        assert values_of(reopened) == expected
        assert [reopened.convert_to_offset_metadata(number)[0] for number in range(9)] == list(range(9))

    def test_an_index_without_its_log_is_deleted(self, tmp_path: Path) -> None:
        closed_log(tmp_path)
        for suffix in (".index", ".timeindex", ".txnindex"):
            (tmp_path / f"{77:020d}{suffix}").write_bytes(bytes(8))

        assert_whole(reopen(tmp_path))
        assert not [name for name in names_in(tmp_path) if name.startswith(f"{77:020d}")]


class TestCrash:
    def test_segments_behind_damage_are_quarantined(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        roll_three(tmp_path)
        damaged = tmp_path / f"{SECOND}.log"
        data = bytearray(damaged.read_bytes())
        data[len(data) // 3 + 50] ^= 1
        damaged.write_bytes(data)
        third = (tmp_path / f"{THIRD}.log").read_bytes()

        log = reopen(tmp_path, is_after_clean_stop=False, recovery_point=0)

        assert values_of(log) == NINE[:4]
        assert append(log, "more").first_offset == 4
        assert (tmp_path / f"{THIRD}.log.quarantined").read_bytes() == third
        assert "renaming it .quarantined" in caplog.text
        assert values_of(reopen(tmp_path, is_after_clean_stop=False, recovery_point=0)) == [*NINE[:4], "more"]

    def test_an_offset_no_index_can_hold_ends_the_log_and_a_copy_is_kept(self, log: Log, tmp_path: Path) -> None:
        append(log, "a")
        size = log.size_bytes
        append(log, "b")
        path = tmp_path / f"{FIRST}.log"
        data = bytearray(path.read_bytes())
        data[size] = 0x40  # the base offset, which no checksum covers
        path.write_bytes(data)

        reopened = open_log(tmp_path)

        assert values_of(reopened) == ["a"]
        assert (tmp_path / f"{FIRST}.log.quarantined").read_bytes() == bytes(data)


class TestEpochs:
    def test_epochs_are_read_off_the_batches_after_a_crash(self, log: Log, tmp_path: Path) -> None:
        for epoch in (1, 1, 4):
            send(log, batch_of(["a"]), leader_epoch=epoch)
        (tmp_path / "leader-epoch-checkpoint").unlink()

        reopened = open_log(tmp_path)

        assert [tuple(entry) for entry in reopened.leader_epochs.entries] == [(1, 0), (4, 2)]

    def test_a_damaged_file_of_epochs_is_made_again_even_after_a_clean_stop(self, log: Log, tmp_path: Path) -> None:
        for epoch in (1, 12):
            send(log, batch_of(["a"]), leader_epoch=epoch)
        log.close()
        path = tmp_path / "leader-epoch-checkpoint"
        whole = path.read_bytes()
        torn = [whole[:size] + rest for size in range(1, len(whole)) for rest in (b"", bytes(len(whole) - size))]

        # Kafka makes the file before it has an epoch: an empty one is not known to be torn.
        for content in (*torn, b"\xff\xfe", b"0\n1\nx y\n", b"9\n0\n", b""):
            path.write_bytes(content)
            reopened = open_log(tmp_path, is_after_clean_stop=True, recovery_point=2)

            expected = [(1, 0), (12, 1)] if content else []
            assert [tuple(entry) for entry in reopened.leader_epochs.entries] == expected, content
            assert values_of(reopened) == ["a", "a"]


class TestProducers:
    @pytest.mark.parametrize(
        "damage",
        [
            pytest.param(lambda path: None, id="whole"),
            pytest.param(lambda path: path.unlink(), id="missing"),
            pytest.param(lambda path: path.write_bytes(b""), id="empty"),
            pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="torn"),
            pytest.param(lambda path: path.write_bytes(b"\0" * 56), id="zeros"),
        ],
    )
    def test_producers_are_known_again_with_a_snapshot_and_without(
        self, tmp_path: Path, damage: Callable[[Path], object]
    ) -> None:
        log = open_log(tmp_path, SMALL)
        send(log, batch_of(["a"], producer_id=1, sequence=0))
        log.roll(NOW_MS)
        last = send(log, batch_of(["b"], producer_id=1, sequence=1))
        log.close()
        for path in tmp_path.glob("*.snapshot"):
            damage(path)

        reopened = open_log(tmp_path, SMALL)

        again = send(reopened, batch_of(["b"], producer_id=1, sequence=1))
        assert (again.is_duplicate, again.first_offset) == (True, last.first_offset)
        assert send(reopened, batch_of(["c"], producer_id=1, sequence=2)).first_offset == 2

    def test_an_open_transaction_is_open_again_and_aborted_ones_are_known(self, log: Log, tmp_path: Path) -> None:
        send_transactional(log, 1, 0, "aborted")
        end_transaction(log, 1, is_commit=False)
        send_transactional(log, 2, 0, "open")
        index = tmp_path / f"{FIRST}.txnindex"
        before = index.read_bytes()
        index.unlink()

        reopened = open_log(tmp_path)
        reopened.update_high_watermark(3)

        assert index.read_bytes() == before
        aborted = reopened.read(0, 10_000, include_aborted_txns=True).aborted_transactions
        assert [txn.producer_id for txn in aborted or ()] == [1]
        assert reopened.last_stable_offset == 2
        end_transaction(reopened, 2, is_commit=False)
        reopened.update_high_watermark(4)
        assert reopened.last_stable_offset == 4

    def test_a_snapshot_beyond_the_log_is_not_believed(self, log: Log, tmp_path: Path) -> None:
        send(log, batch_of(["a"], producer_id=1, sequence=0))
        end_of_a = log.size_bytes
        send(log, batch_of(["b"], producer_id=1, sequence=1))
        log.close()
        path = tmp_path / f"{FIRST}.log"
        path.write_bytes(path.read_bytes()[:end_of_a])

        reopened = open_log(tmp_path)

        assert not send(reopened, batch_of(["b"], producer_id=1, sequence=1)).is_duplicate
        assert f"{2:020d}.snapshot" not in names_in(tmp_path)

    def test_a_log_of_an_old_format_needs_no_reading(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = LogConfig(message_format_version="0.10.2")
        log = open_log(tmp_path, config)
        append(log, "a")
        log.close()
        replayed: list[object] = []
        monkeypatch.setattr(
            "minibroker.storage.producers.producer_state.ProducerStateManager.replay", lambda *a: replayed.append(a)
        )

        open_log(tmp_path, config, is_after_clean_stop=True)

        assert replayed == []


class TestInterruptedCompaction:
    """Log cleaning and splitting write `.cleaned`, rename to `.swap` from the last segment to the first, then the
    originals to `.deleted`, then `.swap` to nothing (as kafka's testRecoveryAfterCrashDuringSplitPhase1 to 5)."""

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        """A log of nine records in three segments, and beside it `new`: what they are to be replaced by."""
        closed_log(tmp_path / "log")
        new = open_log(tmp_path / "new", LogConfig())
        for number in range(9):
            append(new, f"v{number}", timestamp_ms=NOW_MS + number)
        new.close()
        return tmp_path / "log"

    def put(self, directory: Path, extra: str) -> None:
        """Put the files of the replacement into the log's directory under such a name."""
        for suffix in (".log", ".index", ".timeindex"):
            shutil.copyfile(directory.parent / "new" / f"{FIRST}{suffix}", directory / f"{FIRST}{suffix}{extra}")

    def rename(self, directory: Path, base: str, extra: str) -> None:
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{base}{suffix}").rename(directory / f"{base}{suffix}{extra}")

    @pytest.mark.parametrize(
        ("is_cleaned", "swap"),
        [
            pytest.param(True, None, id="while cleaning"),
            pytest.param(True, THIRD, id="while renaming to swap"),
            pytest.param(False, SECOND, id="one segment replaced by itself"),
        ],
    )
    def test_a_crash_before_it_counts_alters_nothing(self, directory: Path, is_cleaned: bool, swap: str | None) -> None:
        if is_cleaned:
            self.put(directory, ".cleaned")
        if swap is not None:
            shutil.copyfile(directory / f"{swap}.log", directory / f"{swap}.log.swap")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0, 3, 6]
        assert not [name for name in names_in(directory) if name.endswith((".cleaned", ".swap"))]
        assert_whole(log)

    def test_a_copy_is_dropped_while_one_of_the_same_segments_is_unfinished(self, directory: Path) -> None:
        data = (directory / f"{FIRST}.log").read_bytes()
        (directory / f"{FIRST}.log.swap").write_bytes(data[: size_at(data)])
        (directory / f"{FIRST}.log.cleaned").touch()

        assert_whole(reopen(directory))

    @pytest.mark.parametrize(
        ("renamed", "is_log_named"),
        [((), False), ((FIRST, SECOND), False), ((FIRST, SECOND, THIRD), False), ((FIRST, SECOND, THIRD), True)],
        ids=["none", "some", "all", "all, and one of the new names"],
    )
    def test_a_crash_amid_it_is_completed(self, directory: Path, renamed: tuple[str, ...], is_log_named: bool) -> None:
        self.put(directory, ".swap")
        for base in renamed:
            self.rename(directory, base, ".deleted")
        if is_log_named:
            (directory / f"{FIRST}.log.swap").rename(directory / f"{FIRST}.log")

        log = reopen(directory, is_after_clean_stop=False)

        assert segment_bases(log) == [0]
        assert not [name for name in names_in(directory) if name.endswith((".deleted", ".swap"))]
        assert not [name for name in names_in(directory) if name.startswith((SECOND, THIRD)) and ".log" in name]
        assert values_of(log) == NINE
        assert append(log, "more").first_offset == 9

    def test_leftovers_of_deletion_are_removed(self, directory: Path) -> None:
        self.rename(directory, FIRST, ".deleted")

        log = reopen(directory, is_after_clean_stop=False)

        assert (segment_bases(log), log.log_start_offset) == ([3, 6], 3)
        assert not [name for name in names_in(directory) if name.endswith(".deleted")]
        assert offsets_of(log) == [3, 4, 5, 6, 7, 8]
