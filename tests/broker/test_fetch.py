"""Fetch, as fetch-path rows 1-34 and 70 of kafka 2.0.1 have it. Time is jumped."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker


def rows(answer: Any) -> list[Any]:
    return [(topic.topic, row) for topic in answer.topics for row in topic.partitions]


async def test_every_version_of_fetch_is_answered(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a", b"b"])

    for version in range(13):
        answer = await broker.fetch(("t", 0, 0), version=version)
        ((_, row),) = rows(answer)
        assert row.error_code == ErrorCode.NONE, version
        assert row.high_watermark == 2
        assert b"a" in bytes(row.records)


async def test_partitions_are_answered_in_request_order_and_unknown_ones_last(broker: InMemoryBroker) -> None:
    await broker.create_topic("a", 3)
    await broker.create_topic("b")

    answer = await broker.fetch(("nope", 0, 0), ("a", 2, 0), ("b", 0, 0), ("a", 9, 0), ("a", 0, 0))

    assert [(name, row.partition, row.error_code) for name, row in rows(answer)] == [
        ("a", 2, ErrorCode.NONE),
        ("b", 0, ErrorCode.NONE),
        ("a", 0, ErrorCode.NONE),
        ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


async def test_an_error_row_has_no_offsets_no_aborted_list_and_no_records(broker: InMemoryBroker) -> None:
    ((_, row),) = rows(await broker.fetch(("nope", 0, 0)))

    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)
    assert row.aborted_transactions is None
    assert bytes(row.records) == b""


async def test_the_end_of_the_log_is_no_error_and_one_beyond_is(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a", b"b"])

    codes = [rows(await broker.fetch(("t", 0, offset)))[0][1].error_code for offset in (-1, 0, 2, 3)]

    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE, ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_the_first_batch_may_exceed_every_limit_and_later_ones_may_not(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)
    for partition in (0, 1):
        await broker.produce("t", [b"x" * 1000], partition=partition)

    answer = await broker.fetch(("t", 0, 0), ("t", 1, 0), max_bytes=10, max_partition_bytes=10)

    sizes = [len(row.records) for _, row in rows(answer)]
    assert sizes[0] > 1000
    assert sizes[1] == 0


async def test_old_versions_take_the_limit_literally(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_format_version="0.9.0")
    await broker.produce("t", [b"x" * 1000])

    ((_, row),) = rows(await broker.fetch(("t", 0, 0), version=2, max_partition_bytes=100))

    assert len(row.records) == 100


async def test_several_batches_come_at_once_and_the_last_may_be_cut(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    for _ in range(3):
        await broker.produce("t", [b"x" * 100])
    whole = len(rows(await broker.fetch(("t", 0, 0)))[0][1].records)

    ((_, row),) = rows(await broker.fetch(("t", 0, 0), max_partition_bytes=whole - 1))

    assert len(row.records) == whole - 1


async def test_max_wait_zero_is_answered_at_once(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    with trio.move_on_after(0) as scope:
        await broker.fetch(("t", 0, 0), max_wait_ms=0, min_bytes=1)

    assert not scope.cancelled_caught


async def test_a_fetch_without_enough_waits_for_max_wait(broker: InMemoryBroker, autojump_clock: MockClock) -> None:
    await broker.create_topic("t")
    started = trio.current_time()

    answer = await broker.fetch(("t", 0, 0), max_wait_ms=700, min_bytes=1)

    assert 0.7 <= trio.current_time() - started <= 0.75
    assert rows(answer)[0][1].error_code == ErrorCode.NONE


async def test_new_data_wakes_a_waiting_fetch(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    answers = []

    async def wait() -> None:
        answers.append((trio.current_time(), await broker.fetch(("t", 0, 0), max_wait_ms=60_000)))

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    await broker.produce("t", [b"woken"])
    await trio.testing.wait_all_tasks_blocked()

    ((_, answer),) = answers
    assert b"woken" in bytes(rows(answer)[0][1].records)


async def test_data_below_min_bytes_does_not_wake_and_adds_up(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    answers = []

    async def wait() -> None:
        answers.append(await broker.fetch(("t", 0, 0), ("t", 1, 0), max_wait_ms=60_000, min_bytes=2000))

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    await broker.produce("t", [b"x" * 1000], partition=0)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == []
    await broker.produce("t", [b"x" * 1000], partition=1)
    await trio.testing.wait_all_tasks_blocked()

    assert [len(row.records) > 1000 for _, row in rows(answers[0])] == [True, True]


async def test_a_produce_to_another_partition_wakes_nobody(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    nursery.start_soon(lambda: broker.fetch(("t", 0, 0), max_wait_ms=60_000))
    await trio.testing.wait_all_tasks_blocked()

    await broker.produce("t", [b"elsewhere"], partition=1)
    await trio.testing.wait_all_tasks_blocked()

    assert broker.parts.replica_manager.fetch_purgatory.statistics().delayed == 1


async def test_case_b_a_deleted_topic_ends_the_wait(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    answers = []

    async def wait() -> None:
        answers.append(await broker.fetch(("t", 0, 0), max_wait_ms=60_000))

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)
    await trio.testing.wait_all_tasks_blocked()

    ((_, row),) = rows(answers[0])
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_case_c_a_rolled_segment_ends_the_wait(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", segment_bytes=1000)
    await broker.produce("t", [b"x" * 800])
    answers = []

    async def wait() -> None:
        answers.append(await broker.fetch(("t", 0, 0), max_wait_ms=60_000, min_bytes=10_000))

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert answers == []
    await broker.produce("t", [b"y" * 800])
    await trio.testing.wait_all_tasks_blocked()

    ((_, row),) = rows(answers[0])
    assert b"x" * 800 in bytes(row.records)


async def test_an_error_in_one_partition_is_not_waited_with(broker: InMemoryBroker, autojump_clock: MockClock) -> None:
    await broker.create_topic("t", 2)
    started = trio.current_time()

    await broker.fetch(("t", 0, 0), ("t", 1, 99), max_wait_ms=5000)

    assert trio.current_time() == started


async def test_an_unknown_partition_does_not_cut_the_wait_of_others(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("t")
    started = trio.current_time()

    await broker.fetch(("t", 0, 0), ("nope", 0, 0), max_wait_ms=500)

    assert trio.current_time() - started >= 0.5


async def test_a_session_that_is_not_known_is_refused(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")

    answer = await broker.fetch(("t", 0, 0), version=7, session_id=7, session_epoch=3)

    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert list(answer.topics) == []


async def test_a_topic_may_forbid_down_conversion(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_downconversion_enable="false")
    await broker.produce("t", [b"a"])

    codes = [rows(await broker.fetch(("t", 0, 0), version=version))[0][1].error_code for version in (1, 3, 4)]

    assert codes == [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE]


async def test_a_topic_that_packs_with_zstd_is_refused_to_who_does_not_know_it(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", compression_type="zstd")
    await broker.produce("t", [b"a" * 1000])

    for version in range(13):
        codes = [rows(await broker.fetch(("t", 0, offset), version=version))[0][1].error_code for offset in (0, 1)]
        expected = ErrorCode.NONE if version >= 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert codes == [expected] * 2, version


async def test_zstd_that_a_producer_chose_cannot_be_converted_for_old_clients(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = build_batch([Record(0, NOW_MS, None, b"a" * 1000, ())], codec=Codec.ZSTD)
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, batch)])])

    codes = {version: rows(await broker.fetch(("t", 0, 0), version=version))[0][1].error_code for version in range(13)}

    assert codes == {
        version: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if version < 4 else ErrorCode.NONE for version in range(13)
    }


async def test_consumers_are_never_sent_to_another_replica(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"a"])

    for offset in (0, 1):
        ((_, row),) = rows(await broker.fetch(("t", 0, offset), version=11, rack_id="elsewhere"))
        assert row.preferred_read_replica == -1
