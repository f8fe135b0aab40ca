"""What a disk that is full, or broken, means for the logs on it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.files.storage_errors import LogFlushError, map_storage_errors
from minibroker.storage.log.log import Log
from tests.storage.file_limits import no_file_beyond
from tests.storage.logs import NOW_MS, append, names_in, refusal_of, values_of
from tests.storage.managers import CONFIG, MARKER, ORDERS, OTHERS, log_in, opened


class TestFailingDisk:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EFBIG])
    def test_a_full_disk_is_an_answer_and_passes(self, tmp_path: Path, number: int) -> None:
        manager = opened(tmp_path)

        with pytest.raises(KafkaError) as refusal, map_storage_errors(manager):
            raise OSError(number, os.strerror(number))

        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not manager.is_offline
        assert append(log_in(manager), "a").first_offset == 0

    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOENT])
    def test_a_broken_disk_takes_the_directory_offline(self, tmp_path: Path, number: int) -> None:
        manager = opened(tmp_path)
        log = log_in(manager)
        append(log, "a")

        with pytest.raises(KafkaError), map_storage_errors(manager):
            raise OSError(number, os.strerror(number))

        assert manager.is_offline
        for action in (
            lambda: append(log, "b"),
            lambda: log.read(0, 100),
            lambda: log_in(manager, OTHERS),
            manager.checkpoint_recovery_points,
            lambda: manager.write_high_watermarks({}),
        ):
            assert refusal_of(action) is ErrorCode.KAFKA_STORAGE_ERROR
        manager.close()
        assert MARKER not in names_in(tmp_path)

    def test_a_failed_fsync_takes_it_offline_even_if_the_disk_is_only_full(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = opened(tmp_path, replace(CONFIG, flush_ms=0))
        log = log_in(manager)
        append(log, "a")

        def full(fd: int) -> None:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr(os, "fdatasync", full)
        manager.flush_dirty_logs(NOW_MS)

        assert manager.is_offline
        assert refusal_of(lambda: append(log, "b")) is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_failed_flush_is_a_storage_error_with_its_reason(self, tmp_path: Path) -> None:
        error = LogFlushError(errno.EIO, "fsync of somewhere")

        with pytest.raises(KafkaError, match="fsync of somewhere"), map_storage_errors():
            raise error

    def test_other_exceptions_pass_through(self) -> None:
        with pytest.raises(ZeroDivisionError), map_storage_errors():
            raise ZeroDivisionError
        with pytest.raises(KafkaError, match="not this"), map_storage_errors():
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "not this")

    def test_one_log_that_fails_does_not_keep_the_others_from_upkeep(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = opened(tmp_path, replace(CONFIG, retention_ms=0))
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")
            log_in(manager, key).update_high_watermark(1)
        real = Log.delete_old_segments

        def full(log: Log, now_ms: int) -> int:
            if log.topic_partition == ORDERS:
                raise OSError(errno.ENOSPC, "no space")
            return real(log, now_ms)

        monkeypatch.setattr(Log, "delete_old_segments", full)

        assert manager.cleanup_logs(NOW_MS + 1000) == 1

    def test_on_a_full_disk_every_append_is_whole_or_not_there(self, tmp_path: Path) -> None:
        manager = opened(tmp_path)
        log = log_in(manager)
        accepted = []
        with no_file_beyond(3000):
            for number in range(60):
                try:
                    with map_storage_errors(manager):
                        append(log, "v" * (number % 90))
                except KafkaError as error:
                    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    accepted.append("v" * (number % 90))
            assert 20 < len(accepted) < 60
            assert values_of(log) == accepted

        append(log, "room again")
        manager.close()

        assert values_of(opened(tmp_path).logs[ORDERS]) == [*accepted, "room again"]

    def test_a_log_that_cannot_be_closed_leaves_no_marker_and_the_others_closed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        manager = opened(tmp_path)
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")
        real = Log.close

        def full(log: Log) -> None:
            if log.topic_partition == ORDERS:
                raise OSError(errno.ENOSPC, "no space")
            real(log)

        monkeypatch.setattr(Log, "close", full)
        with pytest.raises(OSError, match="no space"):
            manager.close()
        monkeypatch.undo()

        assert MARKER not in names_in(tmp_path)
        again = opened(tmp_path)
        assert [values_of(again.logs[key]) for key in (ORDERS, OTHERS)] == [["a"], ["a"]]
