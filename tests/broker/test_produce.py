"""Produce and InitProducerId at the handlers: acks, refusals, what becomes of a failed one.

What versions up to 6 refuse is in tests/fetch_path (rows 79-83) and
tests/golden/conversations/kafka-2.0.1/producing.txt.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from minibroker.broker.pending import Pending
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import batch_of
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker


async def test_records_that_a_start_finds_are_served_before_they_are_fsynced_again(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tmp_path / "one")
    await broker.create_topic("t", flush_messages=1)
    await broker.write("t", batch_of())

    again = make_broker(shutil.copytree(tmp_path / "one", tmp_path / "crashed"))

    assert (again.log_of("t").recovery_point, again.log_of("t").high_watermark) == (0, 1)


async def test_an_append_of_nothing_commits_no_records_that_wait_for_their_fsync(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", flush_messages=1)
    replica_manager, where = broker.parts.replica_manager, TopicPartition("t", 0)

    appends = [
        replica_manager.append({where: memoryview(records)}, required_acks=1, timeout_ms=1000)
        for records in (batch_of(), bytearray())
    ]

    assert broker.log_of("t").high_watermark == 0
    for each in appends:
        assert isinstance(each, Pending)
        await each.wait()
    assert broker.log_of("t").high_watermark == 1


async def test_no_more_than_a_hundred_wrong_records_are_answered(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", cleanup_policy="compact")
    batch = build_batch([Record(offset, NOW_MS, None, b"") for offset in range(5000)])

    row = await broker.write("t", batch, version=9)

    assert [each.batch_index for each in row.record_errors] == list(range(100))
