"""Rows 21-34 of kafka 2.0.1's fetch path: a fetch that waits, the cases A to E that end it, once and on time.

Time is jumped. "t" has three partitions. What the purgatory and its timer do by themselves is in tests/purgatory, also
by row.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest
import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.pending import Pending
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.asking import LONG_MS, codes, fill, row_of, rows, seconds, sizes
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker, fetch_body
from tests.broker.scripted_follower import assign, follow, lead_elsewhere, partition_of
from tests.broker.transactional import started
from tests.storage.file_limits import failing

pytestmark = pytest.mark.time_jumps

T0 = TopicPartition("t", 0)
FUTURE_REPLICA = -3
BOTH = (("t", 0, 0), ("t", 1, 0))
EVERY = (*BOTH, ("t", 2, 0))


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker()
    await broker.create_topic("t", 3)
    return broker


def purgatory_of(broker: InMemoryBroker) -> Any:
    return broker.parts.replica_manager.fetch_purgatory


@pytest.mark.parametrize("partition", range(3))
async def test_row_21_each_partition_of_a_waiting_fetch_wakes_it(broker: InMemoryBroker, partition: int) -> None:
    parked = await broker.park(broker.fetch, *EVERY, max_wait_ms=LONG_MS)
    statistics = purgatory_of(broker).statistics()

    batch = await fill(broker, "t", partition=partition)

    assert (statistics.delayed, statistics.watched) == (1, 3)
    assert sizes(await parked.seen()) == [batch if each == partition else 0 for each in range(3)]


async def test_row_21_it_is_watched_before_anything_else_is_done_so_nothing_is_missed(broker: InMemoryBroker) -> None:
    parked = broker.dispatch(ApiKey.FETCH, 8, **fetch_body(("t", 0, 0), max_wait_ms=LONG_MS))
    assert isinstance(parked, Pending)
    batch = await fill(broker, "t")

    assert parked.is_known
    answer = b"".join(chunk.read() if hasattr(chunk, "read") else bytes(chunk) for chunk in parked.result() or ())
    assert sizes(decode_response(ApiKey.FETCH, 8, answer[4:])[1]) == [batch]


async def test_row_22_new_data_is_answered_when_it_comes_and_not_at_max_wait(broker: InMemoryBroker) -> None:
    waiting_since = trio.current_time()
    parked = await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)

    await trio.sleep(3)
    await broker.produce("t", [b"woken"])

    assert b"woken" in bytes(row_of(await parked.seen()).records)
    assert trio.current_time() - waiting_since == 3


async def test_row_23_row_24_a_leader_or_a_topic_that_goes_answers_who_waits_for_it(broker: InMemoryBroker) -> None:
    await broker.create_topic("u")
    await broker.create_topic("v")
    of_leader = await broker.park(broker.fetch, ("v", 0, 0), max_wait_ms=LONG_MS)
    of_topic = await broker.park(broker.fetch, ("u", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS, min_bytes=10_000)

    lead_elsewhere(broker, "v")
    when_the_leader_went = (codes(await of_leader.seen()), await of_topic.seen())
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    assert when_the_leader_went == ([ErrorCode.NOT_LEADER_FOR_PARTITION], None)
    assert codes(await of_topic.seen()) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_row_28_case_e_a_failed_disk_answers_all(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("u")
    parked = await broker.park(broker.fetch, ("u", 0, 0), max_wait_ms=LONG_MS)

    monkeypatch.setattr(os, "pwrite", failing(errno.EIO))
    written = await broker.produce("t", [b"x"])

    assert written.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert codes(await parked.seen()) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_row_25_case_c_an_offset_on_an_older_segment_than_the_end_is_read_at_once(broker: InMemoryBroker) -> None:
    await broker.create_topic("s", segment_bytes=1000)
    first = await fill(broker, "s", size=800)
    parked = await broker.park(broker.fetch, ("s", 0, 0), max_wait_ms=LONG_MS, min_bytes=10_000)

    await fill(broker, "s", size=800)
    took, late = await seconds(broker.fetch(("s", 0, 0), max_wait_ms=LONG_MS, min_bytes=10_000))

    assert sizes(await parked.seen()) == [first]  # a read does not go beyond a segment
    assert (took, sizes(late)) == (0, [first])
    assert len(broker.log_of("s").segments) == 2


async def test_row_25_case_c_a_log_cut_below_the_offset_answers_who_waits(broker: InMemoryBroker) -> None:
    await broker.create_topic("s", segment_bytes=1000)
    await fill(broker, "s", size=800, batches=2)
    parked = await broker.park(broker.fetch, ("s", 0, 2), replica_id=FUTURE_REPLICA, max_wait_ms=LONG_MS)

    broker.log_of("s").truncate_to(0, now_ms=NOW_MS)
    broker.parts.replica_manager.complete_delayed(TopicPartition("s", 0))

    assert codes(await parked.seen()) == [ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_row_26_a_segment_rolled_at_the_offset_is_no_case_c(broker: InMemoryBroker) -> None:
    await fill(broker, "t")
    parked = await broker.park(broker.fetch, ("t", 0, 1), max_wait_ms=LONG_MS)

    broker.log_of("t").roll(NOW_MS)
    assert partition_of(broker, "t").maybe_increment_high_watermark(0)
    broker.parts.replica_manager.complete_delayed(T0)

    assert partition_of(broker, "t").log.high_watermark_metadata.segment_base_offset == 1
    assert await parked.seen() is None


async def test_row_27_row_30_case_d_bytes_of_all_partitions_add_up_and_are_read_at_last(broker: InMemoryBroker) -> None:
    batch = await fill(broker, "t")  # there from the start: it counts from the offset, not from the end
    parked = await broker.park(broker.fetch, *BOTH, max_wait_ms=LONG_MS, min_bytes=3 * batch)

    await fill(broker, "t", partition=1)
    assert await parked.seen() is None
    await fill(broker, "t")

    facts = [(len(row.records), row.high_watermark) for _, row in rows(await parked.seen())]
    assert facts == [(2 * batch, 2), (batch, 1)]


async def test_row_27_case_d_a_partition_counts_no_more_than_its_own_limit(broker: InMemoryBroker) -> None:
    limits = {"max_partition_bytes": 200, "min_bytes": 400}
    parked = await broker.park(broker.fetch, *BOTH, max_wait_ms=LONG_MS, **limits)

    await fill(broker, "t", batches=20)
    assert await parked.seen() is None
    await fill(broker, "t", partition=1, batches=20)

    assert sizes(await parked.seen()) == [200, 200]


async def test_row_27_case_d_what_is_counted_is_the_difference_of_positions(broker: InMemoryBroker) -> None:
    await broker.produce("t", [b"x" * 100] * 10)
    whole = row_of(await broker.fetch(("t", 0, 0))).records
    parked = await broker.park(broker.fetch, ("t", 0, 9), max_wait_ms=LONG_MS, min_bytes=len(whole) + 100)

    batch = await fill(broker, "t")

    # The offset is the last of its batch, and the batch counts from its first byte.
    assert sizes(await parked.seen()) == [len(whole) + batch]


async def test_row_29_consumers_wait_for_the_high_watermark_and_the_future_replica_not(broker: InMemoryBroker) -> None:
    await assign(broker, "r", [0, 1])
    await follow(broker, "r", 0)
    consumer, debugger, future = [
        await broker.park(broker.fetch, ("r", 0, 0), replica_id=replica_id, max_wait_ms=LONG_MS)
        for replica_id in (-1, -2, FUTURE_REPLICA)
    ]

    batch = await fill(broker, "r")
    assert sizes(await future.seen()) == [batch]
    assert [await consumer.seen(), await debugger.seen()] == [None, None]
    await follow(broker, "r", 1)

    assert [sizes(await consumer.seen()), sizes(await debugger.seen())] == [[batch], [batch]]


async def test_row_29_read_committed_waits_for_the_last_stable_offset(broker: InMemoryBroker) -> None:
    producer = await started(broker)
    reader = await broker.park(broker.fetch, ("t", 0, 0), isolation_level=1, max_wait_ms=LONG_MS)
    other = await broker.park(broker.fetch, ("t", 0, 0), isolation_level=0, max_wait_ms=LONG_MS)

    await producer.send("t", b"not yet committed")
    assert await reader.seen() is None
    assert sizes(await other.seen())[0] > 0
    await producer.end()

    assert b"not yet committed" in bytes(row_of(await reader.seen()).records)


async def test_row_30_an_error_that_came_meanwhile_is_answered(broker: InMemoryBroker) -> None:
    await fill(broker, "t")
    parked = await broker.park(broker.fetch, *BOTH, max_wait_ms=LONG_MS, min_bytes=250)

    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(0, 1)])], timeout_ms=1000)
    await fill(broker, "t", partition=1, batches=2)

    assert codes(await parked.seen()) == [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NONE]


async def test_row_31_at_max_wait_what_is_there_is_answered(broker: InMemoryBroker) -> None:
    batch = await fill(broker, "t")
    began = trio.current_time()
    parked = await broker.park(broker.fetch, *BOTH, max_wait_ms=500, min_bytes=10_000)

    await fill(broker, "t", partition=1)
    assert await parked.seen() is None
    await trio.sleep(0.501)

    assert sizes(await parked.seen()) == [batch, batch]
    assert trio.current_time() - began < 0.51


async def test_row_31_expired_and_completed_are_counted_apart(broker: InMemoryBroker) -> None:
    await broker.fetch(("t", 0, 0), max_wait_ms=10)
    await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)
    await fill(broker, "t")

    statistics = purgatory_of(broker).statistics()
    assert (statistics.expired, statistics.completed) == (1, 1)


async def test_row_32_data_and_the_deadline_at_one_moment_are_one_answer(broker: InMemoryBroker) -> None:
    parked = await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=500)
    await trio.sleep(0.5)
    await fill(broker, "t")
    await trio.sleep(1)

    statistics = purgatory_of(broker).statistics()
    assert not parked.waits
    assert (statistics.delayed, statistics.completed + statistics.expired) == (0, 1)


async def test_row_33_the_interval_of_a_thousand_is_a_setting(make_broker: MakeBroker) -> None:
    broker = make_broker(fetch_purgatory_purge_interval_requests=1)
    await broker.create_topic("t", 2)
    for _ in range(2):
        await broker.park(broker.fetch, *BOTH, max_wait_ms=LONG_MS)

    await fill(broker, "t")

    assert purgatory_of(broker).statistics().watched == 0
    assert KafkaConfig({"log.dirs": "/nowhere"}).fetch_purgatory_purge_interval_requests == 1000


@pytest.mark.parametrize("max_wait_ms", [1, 19, 20, 21, 399, 400, 401, 8_001, 65_537])
async def test_row_34_a_fetch_waits_for_its_max_wait_ms(broker: InMemoryBroker, max_wait_ms: int) -> None:
    took, _ = await seconds(broker.fetch(("t", 0, 0), max_wait_ms=max_wait_ms))

    assert max_wait_ms <= took * 1000 + 0.001 < max_wait_ms + 2


async def test_row_34_row_58_a_produce_waits_for_its_timeout_ms_and_has_its_offset(broker: InMemoryBroker) -> None:
    await assign(broker, "r", [0, 1])
    await follow(broker, "r", 0)

    took, answer = await seconds(broker.produce("r", [b"x"], acks=-1))

    told = (answer.error_code, answer.base_offset, answer.log_start_offset)
    assert (told, broker.log_of("r").log_end_offset) == ((ErrorCode.REQUEST_TIMED_OUT, 0, 0), 1)
    assert took == pytest.approx(1.0, abs=0.002)  # the timeout_ms that `produce` says
