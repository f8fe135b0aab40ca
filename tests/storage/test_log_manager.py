"""A data directory: its lock, its logs, their upkeep and checkpoints, and a failing disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.checkpoints import OffsetCheckpointFile
from minibroker.storage.files.storage_errors import LogDirectoryError, LogFlushError, map_storage_errors
from minibroker.storage.log.log import Log
from tests.refusals import refusal_of
from tests.storage.file_limits import failing, no_file_beyond, no_space_in
from tests.storage.logs import NOW_MS, append, batch_of, names_in, segment_bases, send, values_of
from tests.storage.managers import CONFIG, MARKER, ORDERS, OTHERS, crash, log_in, opened, remove_deleted

RECOVERY_POINTS, START_OFFSETS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"


class TestDirectory:
    def test_a_missing_directory_is_made_and_a_second_broker_is_refused(self, tmp_path: Path) -> None:
        directory = tmp_path / "a" / "b"
        first = opened(directory)
        assert (directory / "meta.properties").exists()

        with pytest.raises(LogDirectoryError, match="in use by another broker"):
            opened(directory)

        first.close()
        opened(directory)

    def test_the_lock_holds_against_a_process_locking_as_java_does(self, manager: LogManager, tmp_path: Path) -> None:
        program = (
            "import fcntl, sys\n"
            "try: fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
            "except OSError: sys.exit(7)\n"
        )

        def lock_elsewhere() -> int:
            return subprocess.run([sys.executable, "-c", program, str(tmp_path / ".lock")], check=False).returncode

        assert lock_elsewhere() == 7
        manager.close()
        assert lock_elsewhere() == 0

    def test_another_brokers_directory_is_refused(self, tmp_path: Path) -> None:
        opened(tmp_path, broker_id=1).close()

        with pytest.raises(LogDirectoryError, match=r"broker.id 2 doesn't match stored broker.id 1"):
            opened(tmp_path, broker_id=2)
        opened(tmp_path, broker_id=1)

    @pytest.mark.parametrize("content", ["", "version=1\nbroker.id=0\n", "version=2\nnode.id=0\n", "version=0\n"])
    def test_a_damaged_meta_file_is_refused(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "meta.properties").write_text(content)

        with pytest.raises(LogDirectoryError, match=r"meta\.properties"):
            opened(tmp_path)

    @pytest.mark.parametrize(
        "directory",
        [
            pytest.param("{}/file", id="a file"),
            pytest.param(
                "/proc/self/data",  # root may write everywhere but here
                marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who can write anywhere else"),
                id="unwritable",
            ),
        ],
    )
    def test_a_directory_that_cannot_be_made_is_one_line_for_the_operator(self, tmp_path: Path, directory: str) -> None:
        (tmp_path / "file").touch()

        with pytest.raises(
            LogDirectoryError, match=r"cannot use data directory .*: (not a|No such file or) directory$"
        ):
            opened(Path(directory.format(tmp_path)))

    def test_logs_that_the_cluster_does_not_know_are_set_aside_and_stay(self, tmp_path: Path) -> None:
        first = opened(tmp_path)
        append(log_in(first), "kept")
        first.close()
        manager = LogManager(tmp_path, default_config=CONFIG, broker_id=0)
        manager.load(NOW_MS, strays=[ORDERS])

        assert remove_deleted(manager, NOW_MS + 10_000_000) == 0
        (stray,) = tmp_path.glob("orders-0.*-stray")
        assert manager.logs == {}
        manager.close()
        stray.rename(tmp_path / "orders-0")
        assert values_of(log_in(opened(tmp_path))) == ["kept"]

    def test_directories_that_are_no_partitions_are_left_alone(self, tmp_path: Path) -> None:
        for name in ("lost+found", "no-partition-", "orders-0.abc-future"):
            (tmp_path / name).mkdir()

        manager = opened(tmp_path)

        assert dict(manager.logs) == {}
        assert manager.partitions_on_disk() == []


class TestLogs:
    def test_a_log_is_made_once_with_the_settings_of_its_topic_and_new_ones_reach_it(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, max_message_bytes="300")
        assert manager.logs.get(ORDERS) is None
        log = log_in(manager)
        assert log_in(manager) is log is manager.logs.get(ORDERS)
        assert manager.partitions_on_disk() == [ORDERS]
        assert log.config.max_message_bytes == 300
        assert log_in(manager, OTHERS).config.max_message_bytes == CONFIG.max_message_bytes
        append(log, "x" * 200)

        code = refusal_of(lambda: manager.set_topic_overrides("orders", {"segment.bytes": "1"}))
        assert (code, log.config.max_message_bytes) == (ErrorCode.INVALID_CONFIG, 300)

        manager.set_topic_overrides("orders", {"max.message.bytes": "100"})
        assert refusal_of(lambda: append(log, "x" * 200)) is ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.pure
    def test_a_log_that_cannot_be_made_leaves_no_directory(self, manager: LogManager) -> None:
        with no_space_in("minibroker.storage.segment.log_segment.LogSegment.open"):
            log_in(manager)

        assert manager.partitions_on_disk() == []
        assert append(log_in(manager), "a").first_offset == 0


class TestDeletion:
    def test_it_is_renamed_at_once_and_removed_later(self, manager: LogManager, tmp_path: Path) -> None:
        log = log_in(manager)
        append(log, "a")

        manager.delete_log(ORDERS)

        (renamed,) = (name for name in names_in(tmp_path) if name.endswith("-delete"))
        assert renamed.startswith("orders-0.")
        assert manager.logs.get(ORDERS) is None
        for action in (lambda: append(log, "b"), lambda: log.read(0, 100)):
            assert refusal_of(action) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        remove_deleted(manager, NOW_MS)
        assert remove_deleted(manager, NOW_MS + 999) == 0
        assert renamed in names_in(tmp_path)
        assert remove_deleted(manager, NOW_MS + 1000) == 1
        assert renamed not in names_in(tmp_path)

    @pytest.mark.parametrize("is_late", [False, True])  # the thread that writes the checkpoints may be slow
    def test_offsets_of_the_former_log_are_forgotten(self, manager: LogManager, tmp_path: Path, is_late: bool) -> None:
        log = log_in(manager)
        append(log, *"abcdef")
        log.flush()
        log.update_high_watermark(6)
        log.delete_records(5)
        writes = manager.checkpoint_log_start_offsets(), manager.checkpoint_recovery_points()
        for write in () if is_late else writes:
            write()
        manager.delete_log(ORDERS)
        append(log_in(manager), "new")
        for write in writes if is_late else ():
            write()
        crash(manager)

        again = opened(tmp_path).logs[ORDERS]

        assert (again.log_start_offset, values_of(again)) == (0, ["new"])

    def test_snapshots_of_the_former_log_are_not_looked_for_in_the_new_one(self, manager: LogManager) -> None:
        former = log_in(manager)
        append(former, *"abcdef")
        manager.delete_log(ORDERS)
        log = log_in(manager)
        send(log, batch_of(["a"], producer_id=7, sequence=0))
        log.roll(NOW_MS)

        former.delete_snapshots_before(6)  # in a thread that was slow

        assert "00000000000000000001.snapshot" in names_in(log.directory)

    def test_renamed_directories_that_a_crash_left_are_removed_after_a_start(
        self, manager: LogManager, tmp_path: Path
    ) -> None:
        append(log_in(manager), "a")
        manager.delete_log(ORDERS)
        crash(manager)

        again = opened(tmp_path)
        remove_deleted(again, NOW_MS)
        remove_deleted(again, NOW_MS + 1000)

        assert not [name for name in names_in(tmp_path) if name.endswith("-delete")]
        assert dict(again.logs) == {}


class TestStops:
    def test_a_stop_leaves_checkpoints_and_a_marker_until_a_start(self, manager: LogManager, tmp_path: Path) -> None:
        log = log_in(manager)
        append(log, *"abcdef")
        log.update_high_watermark(6)
        log.delete_records(2)
        append(log_in(manager, OTHERS), "a")
        assert MARKER not in names_in(tmp_path)

        manager.close()

        assert MARKER in names_in(tmp_path)
        assert OffsetCheckpointFile(tmp_path / RECOVERY_POINTS).read() == {ORDERS: 6, OTHERS: 1}
        assert OffsetCheckpointFile(tmp_path / START_OFFSETS).read() == {ORDERS: 2}
        again = opened(tmp_path)
        assert MARKER not in names_in(tmp_path)
        assert (again.logs[ORDERS].log_start_offset, values_of(again.logs[ORDERS])) == (2, [*"abcdef"])

    def test_the_high_watermark_is_kept_but_never_beyond_the_end(self, manager: LogManager, tmp_path: Path) -> None:
        append(log_in(manager), *"abc")
        append(log_in(manager, OTHERS), "a")
        manager.write_high_watermarks({ORDERS: 2, OTHERS: 9})
        manager.close()

        again = opened(tmp_path)

        assert [again.logs[key].high_watermark for key in (ORDERS, OTHERS)] == [2, 1]

    @pytest.mark.slow
    @pytest.mark.parametrize("trial", range(3))
    def test_acknowledged_records_survive_a_kill(self, tmp_path: Path, trial: int) -> None:
        """A process appends and reports each offset; it is killed in the middle of that."""
        program = (
            "import sys; from dataclasses import replace; from pathlib import Path\n"
            "from tests.storage.logs import append; from tests.storage.managers import *\n"
            "log = log_in(opened(Path(sys.argv[1]), replace(CONFIG, segment_bytes=20_000)))\n"
            "while True:\n"
            "    info = append(log, 'value %d' % log.log_end_offset, 'x' * 300)\n"
            "    print(info.last_offset, flush=True)\n"
        )
        root = Path(__file__).parents[2]
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, cwd=root, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) > 300 + 137 * trial:
                process.kill()
                break
        acknowledged = int((process.stdout.readlines() or [line])[-1].strip() or line)
        process.stdout.close()
        process.wait()

        log = opened(tmp_path).logs[ORDERS]

        values = values_of(log)
        assert len(values) > acknowledged
        assert values[::2] == [f"value {offset}" for offset in range(0, len(values), 2)]
        assert append(log, "more").first_offset == len(values)


class TestUpkeep:
    def test_retention_reaches_every_log(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, replace(CONFIG, retention_ms=1000))
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")
            log_in(manager, key).update_high_watermark(1)

        assert manager.cleanup_logs(NOW_MS + 1000) == 0
        assert manager.cleanup_logs(NOW_MS + 1001) == 2
        assert [segment_bases(log) for log in manager.logs.values()] == [[1], [1]]
        assert remove_deleted(manager, NOW_MS + 5000) == 2

    def test_idle_producers_are_forgotten(self, tmp_path: Path) -> None:
        manager = LogManager(tmp_path, default_config=CONFIG, broker_id=0, producer_expiration_ms=1000)
        manager.load(NOW_MS)
        send(log_in(manager), batch_of(["a"], producer_id=1, sequence=0))

        manager.cleanup_logs(NOW_MS + 1000)
        assert set(log_in(manager).producer_state.producers) == {1}
        manager.remove_expired_producers(NOW_MS + 1000)

        assert dict(log_in(manager).producer_state.producers) == {}

    def test_flush_ms_forces_old_records_and_rolled_segments_at_once(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, replace(CONFIG, flush_ms=1000))
        log = log_in(manager)
        append(log, "a")

        manager.flush_dirty_logs(NOW_MS + 999)
        assert log.unflushed_messages == 1
        manager.flush_dirty_logs(NOW_MS + 1000)
        assert log.unflushed_messages == 0

        append(log, "b")
        log.roll(NOW_MS)
        append(log, "c")
        manager.flush_dirty_logs(NOW_MS)
        assert log.recovery_point == 2

    def test_each_flush_of_each_log_counts_with_its_time(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, replace(CONFIG, flush_ms=0))
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")
            manager.flush_dirty_logs(NOW_MS)
        manager.flush_dirty_logs(NOW_MS)  # has nothing to do

        times = manager.flush_times
        assert (times.count, len(times.newest_seconds)) == (2, 2)
        assert times.total_seconds == sum(times.newest_seconds) > 0

    def test_snapshots_no_recovery_needs_go_with_the_checkpoint(self, manager: LogManager) -> None:
        log = log_in(manager)
        for _ in range(5):
            append(log, "a")
            log.roll(NOW_MS)

        def snapshots() -> list[int]:
            return sorted(int(path.name[:20]) for path in log.directory.glob("*.snapshot"))

        manager.checkpoint_recovery_points()()
        assert snapshots() == [1, 2, 3, 4, 5]
        log.flush()
        manager.checkpoint_recovery_points()()
        assert snapshots() == [4, 5]

    @pytest.mark.parametrize("cut", ["truncate_log", "begin_log_anew"])
    def test_a_recovery_point_beyond_the_end_of_a_log_is_not_kept(
        self, manager: LogManager, tmp_path: Path, cut: str
    ) -> None:
        log = log_in(manager)
        for _ in range(2):
            append(log, "a")
        log.flush()
        manager.checkpoint_recovery_points()()

        getattr(manager, cut)(log, 1, now_ms=NOW_MS)
        append(log, "b")  # after a crash this record is recovered, as none that was flushed

        assert OffsetCheckpointFile(tmp_path / RECOVERY_POINTS).read()[ORDERS] == 1

    def test_pending_deletions_are_looked_at_often_enough(self, tmp_path: Path) -> None:
        for delay_ms, interval_ms in ((0, 1000), (5000, 5000), (60_000, 30_000)):
            config = replace(CONFIG, file_delete_delay_ms=delay_ms)
            manager = LogManager(tmp_path, default_config=config, broker_id=0)

            assert manager.delete_check_interval_ms == interval_ms


def fail_for_orders(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have a method of one of the two logs find the disk full."""
    real, full = getattr(Log, name), failing(errno.ENOSPC)
    monkeypatch.setattr(Log, name, lambda log, *given: (full if log.topic_partition == ORDERS else real)(log, *given))


class TestFailingDisk:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EFBIG])
    def test_a_full_disk_is_an_answer_and_passes(self, manager: LogManager, number: int) -> None:
        with pytest.raises(KafkaError) as refusal, map_storage_errors(manager):
            raise OSError(number, os.strerror(number))

        assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not manager.is_offline
        assert append(log_in(manager), "a").first_offset == 0

    @pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOENT])
    def test_a_broken_disk_takes_the_directory_offline(self, manager: LogManager, tmp_path: Path, number: int) -> None:
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

    def test_a_failed_fsync_takes_it_offline_even_if_the_disk_is_only_full(self, tmp_path: Path) -> None:
        manager = opened(tmp_path, replace(CONFIG, flush_ms=0))
        log = log_in(manager)
        append(log, "a")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("minibroker.storage.files.disk.fdatasync", failing(errno.ENOSPC))
            manager.flush_dirty_logs(NOW_MS)

        assert manager.is_offline
        assert refusal_of(lambda: append(log, "b")) is ErrorCode.KAFKA_STORAGE_ERROR

    def test_a_failed_flush_is_a_storage_error_with_its_reason_and_other_exceptions_pass_through(self) -> None:
        with pytest.raises(KafkaError, match="fsync of somewhere"), map_storage_errors():
            raise LogFlushError(errno.EIO, "fsync of somewhere")
        with pytest.raises(ZeroDivisionError), map_storage_errors():
            raise ZeroDivisionError
        with pytest.raises(KafkaError, match="not this"), map_storage_errors():
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "not this")

    def test_a_log_that_fails_keeps_no_other_from_upkeep(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        manager = opened(tmp_path, replace(CONFIG, retention_ms=0))
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")
            log_in(manager, key).update_high_watermark(1)
        fail_for_orders(monkeypatch, "delete_old_segments")

        assert manager.cleanup_logs(NOW_MS + 1000) == 1

    def test_on_a_full_disk_every_append_is_whole_or_not_there(self, manager: LogManager, tmp_path: Path) -> None:
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
        self, manager: LogManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")

        fail_for_orders(monkeypatch, "close")
        with pytest.raises(OSError, match="No space"):
            manager.close()
        monkeypatch.undo()

        assert MARKER not in names_in(tmp_path)
        again = opened(tmp_path)
        assert [values_of(again.logs[key]) for key in (ORDERS, OTHERS)] == [["a"], ["a"]]

    def test_logs_wait_for_the_disk_together(self, manager: LogManager, monkeypatch: pytest.MonkeyPatch) -> None:
        for key in (ORDERS, OTHERS):
            append(log_in(manager, key), "a")
        both = threading.Barrier(2, timeout=10)
        flush = os.fdatasync
        met: list[int] = []

        def flush_with_another(fd: int) -> None:
            if not met:
                both.wait()
            met.append(fd)
            flush(fd)

        monkeypatch.setattr("minibroker.storage.files.disk.fdatasync", flush_with_another)

        manager.close()

        assert len(met) >= 2
