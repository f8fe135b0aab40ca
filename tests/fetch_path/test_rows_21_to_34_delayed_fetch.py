"""Rows 21-34 of kafka 2.0.1's fetch path: a fetch that waits, the cases A to E that end it, once and on time.

Time is jumped. "t" has three partitions. What the purgatory and its timer do by themselves is in tests/purgatory, also
by row.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.pending import Pending
from minibroker.broker.replica.replication_quota import LEADER_RATE
from minibroker.conformance.requests import fetch_body
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.asking import LONG_MS, codes, fill, seconds, sizes
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import assign, follow, partition_of
from tests.storage.file_limits import failing

pytestmark = pytest.mark.time_jumps

T0 = TopicPartition("t", 0)
FUTURE_REPLICA = -3
BOTH = (("t", 0, 0), ("t", 1, 0))


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker()
    await broker.create_topic("t", 3)
    return broker


def purgatory_of(broker: InMemoryBroker) -> Any:
    return broker.parts.replica_manager.fetch_purgatory


async def test_row_21_it_is_watched_before_anything_else_is_done_so_nothing_is_missed(broker: InMemoryBroker) -> None:
    parked = broker.dispatch(ApiKey.FETCH, 8, **fetch_body(("t", 0, 0), max_wait_ms=LONG_MS))
    assert isinstance(parked, Pending)
    batch = await fill(broker, "t")

    assert parked.is_known
    answer = b"".join(chunk.read() if hasattr(chunk, "read") else bytes(chunk) for chunk in parked.result() or ())
    assert sizes(decode_response(ApiKey.FETCH, 8, answer[4:])[1]) == [batch]


async def test_row_28_case_e_a_failed_disk_answers_all(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("u")
    parked = await broker.park(broker.fetch, ("u", 0, 0), max_wait_ms=LONG_MS)

    monkeypatch.setattr("minibroker.storage.files.disk.pwrite", failing(errno.EIO))
    written = await broker.produce("t", [b"x"])

    assert written.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert codes(await parked.seen()) == [ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize(("replica_id", "offset"), [(FUTURE_REPLICA, 2), (1, 1)])
async def test_row_25_case_c_a_log_cut_below_the_offset_answers_who_waits(
    broker: InMemoryBroker, replica_id: int, offset: int
) -> None:
    """Also a follower that is throttled."""
    await assign(broker, "s", [0, 1], segment_bytes=1000, **{"leader.replication.throttled.replicas": "*"})
    quota = broker.parts.replica_manager.leader_quota
    quota.set_limit({LEADER_RATE: "1"}, LEADER_RATE)
    quota.record(1000, 0)
    await fill(broker, "s", size=800, batches=2)
    parked = await broker.park(broker.fetch, ("s", 0, offset), replica_id=replica_id, max_wait_ms=LONG_MS)

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


async def test_row_31_expired_and_completed_are_counted_apart(broker: InMemoryBroker) -> None:
    await broker.fetch(("t", 0, 0), max_wait_ms=10)
    await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)
    await fill(broker, "t")

    assert purgatory_of(broker).endings == {"completed": 1, "expired": 1, "cancelled": 0}


async def test_row_32_data_and_the_deadline_at_one_moment_are_one_answer(broker: InMemoryBroker) -> None:
    parked = await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=500)
    await trio.sleep(0.5)
    await fill(broker, "t")
    await trio.sleep(1)

    purgatory = purgatory_of(broker)
    assert not parked.waits
    assert (purgatory.delayed, purgatory.endings["completed"] + purgatory.endings["expired"]) == (0, 1)


async def test_row_33_the_interval_of_a_thousand_is_a_setting(make_broker: MakeBroker) -> None:
    broker = make_broker(fetch_purgatory_purge_interval_requests=1)
    await broker.create_topic("t", 2)
    for _ in range(2):
        await broker.park(broker.fetch, *BOTH, max_wait_ms=LONG_MS)

    await fill(broker, "t")

    assert purgatory_of(broker).watched == 0
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
