"""Produce and InitProducerId at the handlers: acks, refusals, what becomes of a failed one.

What versions up to 6 refuse is in tests/fetch_path (rows 79-83) and tests/conformance/scripts/producing.py.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.api import ApiKey
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, InMemoryBroker


async def produced(broker: InMemoryBroker, batch: bytes | bytearray, *, version: int = 7) -> Any:
    topics = [("t", [(0, batch)])]
    answer = await broker.call(ApiKey.PRODUCE, version, acks=1, timeout_ms=1000, topics=topics)
    return answer.topics[0].partitions[0]


async def test_no_more_than_a_hundred_wrong_records_are_answered(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", cleanup_policy="compact")
    batch = build_batch([Record(offset, NOW_MS, None, b"") for offset in range(5000)])

    row = await produced(broker, batch, version=9)

    assert [each.batch_index for each in row.record_errors] == list(range(100))
