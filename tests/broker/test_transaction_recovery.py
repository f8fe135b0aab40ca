"""Transactions across restarts, and while appends must be waited for or fail: what was decided is completed."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.transaction.transaction import COMPLETE_COMMIT, EMPTY, PREPARE_COMMIT, TransactionMetadata
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.protocol.transaction_records import TransactionRecord, encode_key, encode_value
from minibroker.storage.config import LogConfig
from minibroker.storage.files import disk
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.group_clients import GroupClient
from tests.broker.transactional import FEW, Producer, committed, started, state_of, with_open_transaction
from tests.storage.file_limits import failing


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    return make_broker(**FEW)


@pytest.mark.pure
async def test_a_decided_transaction_is_completed_at_the_start(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await with_open_transaction(broker := make_broker(tmp_path / "one", **FEW))
    monkeypatch.setattr(broker.parts.transactions, "_write_markers", lambda transaction: None)  # killed here
    assert await producer.end() is ErrorCode.NONE
    assert (state_of(broker), await committed(broker, "a")) == (PREPARE_COMMIT, [])
    broker.close()

    again = make_broker(tmp_path / "one", **FEW)

    assert (state_of(again), await committed(again, "a")) == (COMPLETE_COMMIT, [b"1"])


@pytest.mark.pure
async def test_markers_that_come_twice_change_nothing(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await with_open_transaction(broker := make_broker(tmp_path / "one", **FEW))
    monkeypatch.setattr(broker.parts.transactions, "_append_completion", lambda transaction: None)  # killed here
    await producer.end(is_commit=False)
    broker.close()

    again = make_broker(tmp_path / "one", **FEW)
    producer.broker = again
    assert await producer.initialize() is ErrorCode.NONE
    await producer.send("a", b"2")
    await producer.end()

    assert (state_of(again), await committed(again, "a")) == (COMPLETE_COMMIT, [b"2"])


async def test_a_producer_id_that_is_known_is_not_given_to_another(make_broker: MakeBroker, tmp_path: Path) -> None:
    """In a directory of Apache Kafka's, which keeps in ZooKeeper what it has given."""
    broker = make_broker(tmp_path / "one", **FEW)
    await broker.create_topic("a")
    producer = await started(broker)
    broker.close()
    producer.broker = broker = make_broker(tmp_path / "one", **FEW)
    assert (await started(broker, "second")).producer_id > producer.producer_id
    producer.producer_id = 5000
    assert await producer.write("a", b"1", is_transactional=False) is ErrorCode.NONE
    producer.producer_id, producer.sequences = 2**63 - 1, {}  # that of a client which means ill
    assert await producer.write("a", b"2", is_transactional=False) is ErrorCode.NONE
    broker.close()

    other = await started(make_broker(tmp_path / "one", **FEW), "other")

    assert other.producer_id == 5001


async def test_with_an_fsync_for_each_append_it_is_the_same(make_broker: MakeBroker) -> None:
    broker = make_broker(**FEW, log_flush_interval_messages=1)
    await broker.create_topic("a", 2)
    producer = await started(broker)

    for number in range(3):
        await producer.send("a", b"%d" % number)
        assert await producer.end(is_commit=number != 1) is ErrorCode.NONE
        while await producer.end(is_commit=number != 1) is not ErrorCode.NONE:
            await trio.lowlevel.checkpoint()

    assert await committed(broker, "a") == [b"0", b"2"]
    fenced = Producer(broker)
    await producer.send("a", b"3")
    assert await fenced.initialize() is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_client_that_hangs_up_does_not_leave_its_transaction_pending(make_broker: MakeBroker) -> None:
    broker = make_broker(**FEW, log_flush_interval_messages=1)
    producer = await with_open_transaction(broker)

    with trio.CancelScope() as hung_up:
        hung_up.cancel()
        await producer.end()
    while state_of(broker) is not COMPLETE_COMMIT:
        await trio.lowlevel.checkpoint()

    assert await committed(broker, "a") == [b"1"]


async def test_a_change_that_cannot_be_stored_leaves_the_transaction_as_before(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("a")
    producer = await started(broker)
    with monkeypatch.context() as full:
        full.setattr(disk, "pwrite", failing(errno.ENOSPC))

        assert await producer.end() is ErrorCode.INVALID_TXN_STATE
        assert await producer.add("a") == [ErrorCode.NOT_COORDINATOR]

    await producer.send("a", b"1")
    assert await producer.end() is ErrorCode.NONE


async def test_markers_that_cannot_be_stored_are_retried(broker: InMemoryBroker, autojump_clock: MockClock) -> None:
    await broker.create_topic("a", 2)
    producer = await started(broker)
    await producer.add("a", 0, 1)
    await producer.write("a", b"1")
    log = broker.log_of("a", 1)
    config = log.config
    log.update_config(LogConfig.from_props({"min.insync.replicas": "2"}, config))

    assert await producer.end() is ErrorCode.NONE
    assert await producer.add("a") == [ErrorCode.CONCURRENT_TRANSACTIONS]
    described = await broker.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["t"])
    assert [tuple(each) for each in described.transactions[0].topics] == [("a", [1])]
    log.update_config(config)
    await trio.sleep(1)

    assert state_of(broker) is COMPLETE_COMMIT
    assert broker.log_of("a", 0).log_end_offset == 2


@pytest.mark.pure
async def test_a_completion_that_cannot_be_written_down_is_tried_again(
    broker: InMemoryBroker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await with_open_transaction(broker)
    log = broker.parts.transactions._log
    append = log.append

    def refuse(transactional_id: str, metadata: TransactionMetadata) -> Any:
        if metadata.state is COMPLETE_COMMIT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return append(transactional_id, metadata)

    monkeypatch.setattr(log, "append", refuse)
    assert await producer.end() is ErrorCode.NONE
    assert (state_of(broker), await committed(broker, "a")) == (PREPARE_COMMIT, [b"1"])
    monkeypatch.undo()
    await trio.sleep(1)

    assert state_of(broker) is COMPLETE_COMMIT


async def test_unreadable_records_are_logged_and_passed_over(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Kafka's admin client may write to internal topics, and disks may forget."""
    broker = make_broker(tmp_path / "one", transaction_state_log_num_partitions=1)
    await started(broker, "t")
    value = encode_value(TransactionRecord(1, 0, 1000, 0, frozenset(), 0, -1))
    rows = [(b"", value), (encode_key("cut"), value[:-1]), (encode_key("dead"), value.replace(b"\0\xff", b"\6\0"))]
    records = [Record(number, NOW_MS, *row) for number, row in enumerate(rows)]
    await broker.write("__transaction_state", build_batch(records), client_id="__admin_client")
    broker.close()

    again = make_broker(tmp_path / "one")

    assert list(again.parts.transactions.transactions) == ["t"]
    assert caplog.text.count("skipped an unreadable record") == 3


async def test_a_partition_that_cannot_be_read_does_not_keep_the_broker_from_starting(
    make_broker: MakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(tmp_path / "one", transaction_state_log_num_partitions=1)
    await started(broker, "t")
    broker.close()
    log = tmp_path / "one" / "__transaction_state-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-20] + b"\xff" * 20)

    again = make_broker(tmp_path / "one")

    assert again.parts.transactions.transactions == {}
    assert "cannot read __transaction_state-0" in caplog.text


@pytest.mark.pure
async def test_a_coordinator_loads_again_what_the_disk_did_not_let_it_read(
    broker: InMemoryBroker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = await started(broker)
    await broker.create_topic("a")
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="g")
    await broker.call(ApiKey.OFFSET_COMMIT, 2, group_id="g", member_id="", topics=[("a", [(0, 5, -1, -1, None)])])
    coordinators = (broker.parts.transactions, "__transaction_state"), (broker.parts.groups, "__consumer_offsets")

    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "pread", full)
    for coordinator, topic in coordinators:
        for partition, is_leader in ((0, False), (1, False), (0, True), (1, True)):
            coordinator.on_leadership(TopicPartition(topic, partition), is_leader)
    fetch: dict[str, Any] = {"group_id": "g", "topics": [("a", [0])]}
    assert (await broker.call(ApiKey.OFFSET_FETCH, 2, **fetch)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await producer.add("a") == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    monkeypatch.undo()
    await trio.sleep(2)

    assert (await broker.call(ApiKey.OFFSET_FETCH, 2, **fetch)).topics[0].partitions[0].committed_offset == 5
    assert state_of(broker) is EMPTY


async def test_a_coordinator_whose_log_directory_has_failed_decides_nothing(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision may be in the log: the next start finds what the failed append has left."""
    producer = await with_open_transaction(broker)
    group = GroupClient(broker)
    await group.find()
    joined = await group.join()
    with monkeypatch.context() as failing_disk:
        failing_disk.setattr(disk, "pwrite", failing(errno.EIO))
        assert await producer.end() is ErrorCode.NOT_COORDINATOR

    broker.clock.wall_now_ms += 10 * 60_000
    broker.parts.transactions.abort_timed_out()

    assert await producer.end() is ErrorCode.NOT_COORDINATOR
    assert await group.heartbeat(joined) == ErrorCode.NOT_COORDINATOR


async def nothing(broker: InMemoryBroker) -> None:
    """Leave the broker as the abort left it."""


async def roll(broker: InMemoryBroker) -> None:
    broker.log_of("a").roll(NOW_MS)


async def sweep(broker: InMemoryBroker) -> None:
    """Forget idle producers, as each ten minutes."""
    broker.parts.replica_manager.log_manager.remove_expired_producers(broker.clock.wall_ms())


async def delete_records(broker: InMemoryBroker) -> None:
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("a", [(0, -1)])], timeout_ms=1000)


async def delete_by_age(broker: InMemoryBroker) -> None:
    log = broker.log_of("a")
    log.delete_old_segments(broker.clock.wall_ms() + log.config.retention_ms + 1)


async def delete_by_age_and_more(broker: InMemoryBroker) -> None:
    """Then begin the log within its first segment."""
    await delete_by_age(broker)
    await broker.produce("a", [b"4"])
    await delete_records(broker)


@pytest.mark.parametrize("restart", ["no restart", "clean stop", "kill -9", "kill -9 after checkpoints"])
@pytest.mark.parametrize("change", [nothing, roll, sweep, delete_records, delete_by_age, delete_by_age_and_more])
async def test_a_producer_of_which_a_timeout_left_only_a_marker_is_fenced(
    make_broker: MakeBroker,
    tmp_path: Path,
    autojump_clock: MockClock,
    change: Callable[[InMemoryBroker], Awaitable[None]],
    restart: str,
) -> None:
    zombie = await with_open_transaction(broker := make_broker(tmp_path / "one", **FEW), timeout_ms=5000)
    broker.clock.wall_now_ms += 5001
    broker.parts.transactions.abort_timed_out()
    await change(broker)
    if restart == "clean stop":
        broker.close()
        broker = make_broker(tmp_path / "one", **FEW)
    elif restart != "no restart":
        if restart == "kill -9 after checkpoints":
            log_manager = broker.parts.replica_manager.log_manager
            log_manager.checkpoint_log_start_offsets()()
            log_manager.checkpoint_recovery_points()()
        broker = make_broker(shutil.copytree(tmp_path / "one", tmp_path / "two"), **FEW)
    zombie.broker = broker
    log = broker.log_of("a")

    for version, sequence in ((9, 1), (9, 0), (7, 0)):
        zombie.sequences["a", 0] = sequence
        assert await zombie.write("a", b"2", version=version) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.last_stable_offset == log.log_end_offset

    assert await zombie.initialize() is ErrorCode.NONE
    await zombie.send("a", b"3")
    assert await zombie.end() is ErrorCode.NONE
    assert log.last_stable_offset == log.log_end_offset
