"""Rows 21-30 of kafka 2.0.1's fetch path: a fetch that waits, and the cases A to E that end it. Time is jumped."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetch import DelayedFetch
from minibroker.broker.replica.partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchParams, FetchRow
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from tests.broker.conftest import NOW_MS, InMemoryBroker
from tests.broker.scripted_follower import assign, follow, park, partition_of
from tests.broker.transactional import started
from tests.fetch_path.asking import LONG_MS, UNLIMITED, fetch_rows, fill, row_of, rows, seconds, sizes, wanted

T0 = TopicPartition("t", 0)
FUTURE_REPLICA = -3


def purgatory_of(broker: InMemoryBroker) -> Any:
    return broker.parts.replica_manager.fetch_purgatory


# -- rows 21 and 22: watched, and woken -----------------------------------------------------------------------


async def test_row_21_a_fetch_that_waits_is_watched_under_each_of_its_partitions(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 3)
    await park(nursery, fetch_rows, broker, ("t", [wanted(each, 0) for each in range(3)]), max_wait_ms=LONG_MS)

    statistics = purgatory_of(broker).statistics()

    assert (statistics.delayed, statistics.watched) == (1, 3)


@pytest.mark.parametrize("partition", range(3))
async def test_row_21_each_of_its_partitions_wakes_it(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery, partition: int
) -> None:
    await broker.create_topic("t", 3)
    every = ("t", [wanted(each, 0) for each in range(3)])
    parked = await park(nursery, fetch_rows, broker, every, max_wait_ms=LONG_MS)

    batch = await fill(broker, "t", partition=partition)

    assert sizes(await parked.seen()) == [batch if each == partition else 0 for each in range(3)]


async def test_row_21_it_is_watched_before_anything_else_is_done_so_nothing_is_missed(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    body = API_TABLE[ApiKey.FETCH].request(
        replica_id=-1, max_wait_ms=LONG_MS, min_bytes=1, max_bytes=UNLIMITED, topics=[("t", [wanted(0, 0)])]
    )
    frame = bytearray(encode_request(ApiKey.FETCH, 8, 1, "test", body)[4:])

    parked = broker.registry.dispatch(frame, broker.client)
    assert isinstance(parked, Pending)
    batch = await fill(broker, "t")

    assert parked.is_known
    answer = b"".join(chunk.read() if hasattr(chunk, "read") else bytes(chunk) for chunk in parked.result() or ())
    assert sizes(decode_response(ApiKey.FETCH, 8, answer[4:])[1]) == [batch]


async def test_row_22_new_data_is_answered_when_it_comes_and_not_at_max_wait(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    waiting_since = trio.current_time()
    parked = await park(nursery, broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)

    await trio.sleep(3)
    await broker.produce("t", [b"woken"])

    assert b"woken" in bytes(row_of(await parked.seen()).records)
    assert trio.current_time() - waiting_since == 3


# -- rows 23, 24 and 28: cases A, B and E ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(ErrorCode.NOT_LEADER_FOR_PARTITION, id="A"),
        pytest.param(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, id="B"),
        pytest.param(ErrorCode.KAFKA_STORAGE_ERROR, id="E"),
    ],
)
def test_row_23_row_24_row_28_cases_a_b_and_e_a_partition_that_cannot_be_read_completes_the_fetch(
    code: ErrorCode,
) -> None:
    class Leader:
        partitions: ClassVar[dict[TopicPartition, Any]] = {}
        log_manager = SimpleNamespace(is_offline=False)

        def leader_partition(self, topic_partition: TopicPartition) -> Any:
            raise KafkaError(code)

    params = FetchParams(-1, LONG_MS, 10_000, UNLIMITED, False, 0)
    at_start = FetchedPartition(T0, ErrorCode.NONE, 0, 0, 0, None, b"", LogOffsetMetadata(0, 0, 0))
    delayed = DelayedFetch(params, [FetchRow(T0, 0, 0, UNLIMITED)], [at_start], Leader())  # type: ignore[arg-type]

    assert delayed.try_complete()
    assert [row.error for row in delayed.pending.result()] == [code]


async def test_row_23_case_a_a_broker_that_leads_no_more_answers_who_waits(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    parked = await park(nursery, broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)

    broker.parts.replica_manager.stop_replica(T0, delete=False)

    assert row_of(await parked.seen()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_row_24_case_b_a_topic_that_is_deleted_answers_who_waits_for_one_of_its_partitions(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    await broker.create_topic("u")
    parked = await park(nursery, broker.fetch, ("u", 0, 0), ("t", 0, 0), max_wait_ms=LONG_MS, min_bytes=10_000)

    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    codes = [row.error_code for _, row in rows(await parked.seen())]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_row_28_case_e_a_disk_that_fails_answers_everyone_who_waits(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")
    await broker.create_topic("u")
    parked = await park(nursery, broker.fetch, ("u", 0, 0), max_wait_ms=LONG_MS)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", fail)
    written = await broker.produce("t", [b"x"])

    assert written.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert row_of(await parked.seen()).error_code == ErrorCode.KAFKA_STORAGE_ERROR


# -- rows 25 and 26: case C -----------------------------------------------------------------------------------


async def test_row_25_case_c_an_offset_on_an_older_segment_than_the_end_is_read_at_once(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", segment_bytes=1000)
    first = await fill(broker, "t", size=800)
    parked = await park(nursery, broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS, min_bytes=10_000)

    await fill(broker, "t", size=800)

    assert sizes(await parked.seen()) == [first]  # a read does not go beyond a segment
    assert len(broker.log_of("t").segments) == 2


async def test_row_25_case_c_a_fetch_that_begins_on_an_older_segment_does_not_wait(
    broker: InMemoryBroker, autojump_clock: MockClock
) -> None:
    await broker.create_topic("t", segment_bytes=1000)
    await fill(broker, "t", size=800, batches=2)

    took, answer = await seconds(broker.fetch(("t", 0, 0), max_wait_ms=LONG_MS, min_bytes=10_000))

    assert (took, sizes(answer)[0] > 800) == (0, True)


async def test_row_25_case_c_a_log_cut_below_the_offset_answers_who_waits(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", segment_bytes=1000)
    await fill(broker, "t", size=800, batches=2)
    to_the_end = {"replica_id": FUTURE_REPLICA, "max_wait_ms": LONG_MS}
    parked = await park(nursery, broker.fetch, ("t", 0, 2), **to_the_end)

    broker.log_of("t").truncate_to(0, now_ms=NOW_MS)
    broker.parts.replica_manager.complete_delayed(T0)

    assert row_of(await parked.seen()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_row_26_a_segment_rolled_at_the_offset_is_no_case_c(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    await fill(broker, "t")
    parked = await park(nursery, broker.fetch, ("t", 0, 1), max_wait_ms=LONG_MS)

    broker.log_of("t").roll(NOW_MS)
    assert partition_of(broker, "t").maybe_increment_high_watermark(0)
    broker.parts.replica_manager.complete_delayed(T0)

    assert partition_of(broker, "t").high_watermark.segment_base_offset == 1
    assert await parked.seen() is None


# -- row 27: case D -------------------------------------------------------------------------------------------


async def test_row_27_case_d_the_bytes_of_all_partitions_add_up(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    both = ("t", [wanted(0, 0), wanted(1, 0)])
    batch = await fill(broker, "t")  # there from the start: it counts from the offset, not from the end
    parked = await park(nursery, fetch_rows, broker, both, max_wait_ms=LONG_MS, min_bytes=3 * batch)

    await fill(broker, "t", partition=1)
    assert await parked.seen() is None
    await fill(broker, "t")

    assert sizes(await parked.seen()) == [2 * batch, batch]


async def test_row_27_case_d_a_partition_counts_no_more_than_its_own_limit(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    both = ("t", [wanted(0, 0, max_bytes=200), wanted(1, 0, max_bytes=200)])
    parked = await park(nursery, fetch_rows, broker, both, max_wait_ms=LONG_MS, min_bytes=400)

    await fill(broker, "t", batches=20)
    assert await parked.seen() is None
    await fill(broker, "t", partition=1, batches=20)

    assert sizes(await parked.seen()) == [200, 200]


async def test_row_27_case_d_what_is_counted_is_the_difference_of_positions(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    await broker.produce("t", [b"x" * 100] * 10)
    whole = row_of(await broker.fetch(("t", 0, 0))).records
    parked = await park(nursery, broker.fetch, ("t", 0, 9), max_wait_ms=LONG_MS, min_bytes=len(whole) + 100)

    batch = await fill(broker, "t")

    # The offset is the last of its batch, and the batch counts from its first byte.
    assert sizes(await parked.seen()) == [len(whole) + batch]


# -- row 29: up to which end ----------------------------------------------------------------------------------


async def test_row_29_a_consumer_waits_for_the_high_watermark_and_who_reads_to_the_end_does_not(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)
    consumer = await park(nursery, broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)
    debugger = await park(nursery, broker.fetch, ("t", 0, 0), replica_id=-2, max_wait_ms=LONG_MS)
    future = await park(nursery, broker.fetch, ("t", 0, 0), replica_id=FUTURE_REPLICA, max_wait_ms=LONG_MS)

    batch = await fill(broker, "t")
    assert sizes(await future.seen()) == [batch]
    assert [await consumer.seen(), await debugger.seen()] == [None, None]
    await follow(broker, "t", 1)

    assert [sizes(await consumer.seen()), sizes(await debugger.seen())] == [[batch], [batch]]


async def test_row_29_read_committed_waits_for_the_last_stable_offset(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    producer = await started(broker)
    reader = await park(nursery, broker.fetch, ("t", 0, 0), isolation_level=1, max_wait_ms=LONG_MS)
    other = await park(nursery, broker.fetch, ("t", 0, 0), isolation_level=0, max_wait_ms=LONG_MS)

    await producer.send("t", b"not yet committed")
    assert await reader.seen() is None
    assert sizes(await other.seen())[0] > 0
    await producer.end()

    assert b"not yet committed" in bytes(row_of(await reader.seen()).records)


# -- row 30: read anew ----------------------------------------------------------------------------------------


async def test_row_30_what_is_answered_is_read_when_the_wait_ends(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    both = ("t", [wanted(0, 0), wanted(1, 0)])
    batch = await fill(broker, "t")
    parked = await park(nursery, fetch_rows, broker, both, max_wait_ms=LONG_MS, min_bytes=3 * batch)

    await fill(broker, "t", partition=1)
    await fill(broker, "t")

    facts = [(len(row.records), row.high_watermark) for _, row in rows(await parked.seen())]
    assert facts == [(2 * batch, 2), (batch, 1)]


async def test_row_30_an_error_that_came_meanwhile_is_answered(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    both = ("t", [wanted(0, 0), wanted(1, 0)])
    await fill(broker, "t")
    parked = await park(nursery, fetch_rows, broker, both, max_wait_ms=LONG_MS, min_bytes=250)

    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(0, 1)])], timeout_ms=1000)
    await fill(broker, "t", partition=1, batches=2)

    codes = [row.error_code for _, row in rows(await parked.seen())]
    assert codes == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]
