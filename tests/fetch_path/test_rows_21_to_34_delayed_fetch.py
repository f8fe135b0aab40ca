"""Rows 21-34 of kafka 2.0.1's fetch path: a fetch that waits, the cases A to E that end it, once and on time.

Time is jumped. "t" has three partitions.
"""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetch import DelayedFetch
from minibroker.broker.replica.partition import FetchedPartition
from minibroker.broker.replica.partition_read import FetchParams, FetchRow
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer, TimerTask
from minibroker.storage.index.fetch_data import LogOffsetMetadata
from tests.broker.asking import LONG_MS, UNLIMITED, codes, fill, row_of, rows, seconds, sizes
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker, fetch_body
from tests.broker.scripted_follower import assign, follow, partition_of
from tests.broker.transactional import started

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


async def test_row_21_a_fetch_that_waits_is_watched_under_each_of_its_partitions(broker: InMemoryBroker) -> None:
    await broker.park(broker.fetch, *EVERY, max_wait_ms=LONG_MS)

    statistics = purgatory_of(broker).statistics()

    assert (statistics.delayed, statistics.watched) == (1, 3)


@pytest.mark.parametrize("partition", range(3))
async def test_row_21_each_of_its_partitions_wakes_it(broker: InMemoryBroker, partition: int) -> None:
    parked = await broker.park(broker.fetch, *EVERY, max_wait_ms=LONG_MS)

    batch = await fill(broker, "t", partition=partition)

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


async def test_row_23_row_24_a_leader_or_a_topic_that_goes_answers_who_waits_for_one_of_its_partitions(
    broker: InMemoryBroker,
) -> None:
    await broker.create_topic("u")
    await broker.create_topic("v")
    of_leader = await broker.park(broker.fetch, ("v", 0, 0), max_wait_ms=LONG_MS)
    of_topic = await broker.park(broker.fetch, ("u", 0, 0), ("t", 1, 0), max_wait_ms=LONG_MS, min_bytes=10_000)

    broker.parts.replica_manager.stop_replica(TopicPartition("v", 0), delete=False)
    when_the_leader_went = (codes(await of_leader.seen()), await of_topic.seen())
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["t"], timeout_ms=1000)

    assert when_the_leader_went == ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], None)
    assert codes(await of_topic.seen()) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_row_28_case_e_a_disk_that_fails_answers_everyone_who_waits(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("u")
    parked = await broker.park(broker.fetch, ("u", 0, 0), max_wait_ms=LONG_MS)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", fail)
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

    assert partition_of(broker, "t").high_watermark.segment_base_offset == 1
    assert await parked.seen() is None


async def test_row_27_row_30_case_d_the_bytes_of_all_partitions_add_up_and_are_read_when_the_wait_ends(
    broker: InMemoryBroker,
) -> None:
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


async def test_row_29_a_consumer_waits_for_the_high_watermark_and_who_reads_to_the_end_does_not(
    broker: InMemoryBroker,
) -> None:
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


class Operation(DelayedOperation):
    """Waits for `is_ready`, and counts its answers."""

    def __init__(self) -> None:
        super().__init__(1000)
        self.is_ready = False
        self.answers = self.expirations = 0

    def try_complete(self) -> bool:
        return self.is_ready and self.force_complete()

    def on_complete(self) -> None:
        self.answers += 1

    def on_expiration(self) -> None:
        self.expirations += 1


def test_row_32_of_condition_deadline_and_force_only_the_first_answers() -> None:
    timer = Timer(start_ms=0)
    purgatory = Purgatory("test", timer)
    operation = Operation()
    purgatory.try_complete_else_watch(operation, ["a", "b"], now_ms=0)

    operation.is_ready = True
    completed = [purgatory.check_and_complete(key) for key in ("a", "b", "a")]
    timer.advance(10_000)

    assert completed == [1, 0, 0]
    assert not operation.force_complete()
    assert (operation.answers, operation.expirations) == (1, 0)


def test_row_32_a_check_that_comes_while_the_condition_is_tried_answers_no_second_time() -> None:
    purgatory = Purgatory("test", Timer(start_ms=0))

    class Reentrant(Operation):
        is_being_tried = False

        def try_complete(self) -> bool:
            if not self.is_ready:
                return False
            if not self.is_being_tried:
                self.is_being_tried = True
                purgatory.check_and_complete("a")  # completes it before this try does
            return self.force_complete()

    operation = Reentrant()
    purgatory.try_complete_else_watch(operation, ["a"], now_ms=0)
    operation.is_ready = True

    purgatory.check_and_complete("a")

    assert operation.answers == 1


async def test_row_32_data_and_the_deadline_at_one_moment_are_one_answer(broker: InMemoryBroker) -> None:
    parked = await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=500)
    await trio.sleep(0.5)
    await fill(broker, "t")
    await trio.sleep(1)

    statistics = purgatory_of(broker).statistics()
    assert not parked.waits
    assert (statistics.delayed, statistics.completed + statistics.expired) == (0, 1)


def test_row_33_what_is_done_leaves_the_lists_when_more_than_a_thousand_have_gathered() -> None:
    interval = KafkaConfig({"log.dirs": "/nowhere"}).fetch_purgatory_purge_interval_requests
    purgatory = Purgatory("Fetch", Timer(start_ms=0), purge_interval=interval)
    operations = [Operation() for _ in range(1001)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, ["quiet", f"busy {number}"], now_ms=0)
        operation.is_ready = True

    watched = []
    for number in range(1001):
        purgatory.check_and_complete(f"busy {number}")
        watched.append(purgatory.statistics().watched)

    assert interval == 1000
    assert watched[998:] == [1003, 1002, 0]


async def test_row_33_the_interval_is_a_setting(make_broker: MakeBroker) -> None:
    broker = make_broker(fetch_purgatory_purge_interval_requests=1)
    await broker.create_topic("t", 2)
    for _ in range(2):
        await broker.park(broker.fetch, *BOTH, max_wait_ms=LONG_MS)

    await fill(broker, "t")

    assert purgatory_of(broker).statistics().watched == 0


# On both sides of where one of Kafka's wheels (20 slots each) or of ours (256) goes over into the next.
DEADLINES_MS = sorted(
    {edge**level + step for edge in (20, 256) for level in (1, 2, 3, 4) for step in (-1, 0, 1)} | {1, 2, 2**31}
)


class Noted(TimerTask):
    """Notes when it fired."""

    def __init__(self, fired: list[int]) -> None:
        super().__init__()
        self._fired = fired

    def on_timeout(self) -> None:
        self._fired.append(self.deadline_ms)


@pytest.mark.parametrize("start_ms", [0, 1, 19, 255, 1_000_003])
def test_row_34_every_deadline_is_met_to_the_millisecond(start_ms: int) -> None:
    timer, fired = Timer(start_ms), list[int]()
    for delay_ms in reversed(DEADLINES_MS):
        timer.add(Noted(fired), start_ms + delay_ms)

    for number, delay_ms in enumerate(DEADLINES_MS):
        timer.advance(start_ms + delay_ms - 1)
        assert len(fired) == number
        timer.advance(start_ms + delay_ms)
        assert fired[number:] == [start_ms + delay_ms]


@pytest.mark.parametrize("max_wait_ms", [1, 19, 20, 21, 399, 400, 401, 8_001, 65_537])
async def test_row_34_a_fetch_waits_as_long_as_it_says(broker: InMemoryBroker, max_wait_ms: int) -> None:
    took, _ = await seconds(broker.fetch(("t", 0, 0), max_wait_ms=max_wait_ms))

    assert max_wait_ms <= took * 1000 + 0.001 < max_wait_ms + 2


async def test_row_34_row_58_a_produce_waits_as_long_as_it_says_and_has_its_offset(
    broker: InMemoryBroker,
) -> None:
    await assign(broker, "r", [0, 1])
    await follow(broker, "r", 0)

    took, answer = await seconds(broker.produce("r", [b"x"], acks=-1))

    told = (answer.error_code, answer.base_offset, answer.log_start_offset)
    assert (told, broker.log_of("r").log_end_offset) == ((ErrorCode.REQUEST_TIMED_OUT, 0, 0), 1)
    assert took == pytest.approx(1.0, abs=0.002)  # the timeout_ms that `produce` says
