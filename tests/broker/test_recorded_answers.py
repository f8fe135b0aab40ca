"""The conversations recorded with Apache Kafka 2.0.1, held with this broker: its answers must be the same.

What may rightly differ is masked by name in `masked`, and nowhere else.
"""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest
from trio.testing import MockClock

from minibroker.protocol.api import API_TABLE, decode_response
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import MakeBroker

RECORDED = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-frames.jsonl.gz"
KEYS = {api.name: key for key, api in API_TABLE.items()}
# Kafka creates a topic some time after it was asked for; here it is there with the next request.
CREATED_LATER = {("metadata", 35), ("metadata", 36)}
SCENARIOS = ("fetch_versions", "fetch_limits", "list_offsets", "metadata")


def recorded(scenario: str) -> list[dict[str, Any]]:
    with gzip.open(RECORDED, "rt") as lines:
        return [frame for frame in map(json.loads, lines) if frame["scenario"] == scenario]


def masked(api: str, body: Any) -> Any:
    """The answer without what depends on the machine, the run, or the order of a hash map."""
    if api == "Metadata":
        topics = [
            topic._replace(partitions=sorted(topic.partitions, key=lambda row: row.partition))
            for topic in sorted(body.topics, key=lambda topic: topic.name)
        ]
        brokers = [broker._replace(host="host", port=0) for broker in body.brokers]
        cluster_id = None if body.cluster_id is None else "cluster"
        return body._replace(topics=topics, brokers=brokers, cluster_id=cluster_id)
    return body


def plain(value: Any) -> Any:
    """Values that compare and print: views of records as hex."""
    if isinstance(value, memoryview):
        return value.hex()
    if hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value, strict=True)}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_answers_are_those_of_apache_kafka(
    make_broker: MakeBroker, autojump_clock: MockClock, scenario: str
) -> None:
    broker = make_broker()
    broker.clock.wall_now_ms = time.time_ns() // 1_000_000  # ListOffsets v0 compares with file times

    for number, frame in enumerate(recorded(scenario)):
        key, version = KEYS[frame["api"]], frame["version"]
        expected = decode_response(key, version, bytes.fromhex(frame["response"]))[1]
        answer = await broker.answer(bytes.fromhex(frame["request"]))
        assert answer is not None
        actual = decode_response(key, version, answer)[1]

        if (scenario, number) in CREATED_LATER:
            continue
        assert plain(masked(frame["api"], expected)) == plain(masked(frame["api"], actual)), (
            f"{scenario} {number}: {frame['api']} v{version}"
        )


async def test_the_handler_table_offers_at_least_what_kafka_offered(make_broker: MakeBroker) -> None:
    broker = make_broker()
    for frame in recorded("api_versions"):
        answer = await broker.answer(bytes.fromhex(frame["request"]))
        assert answer is not None
        body = decode_response(KEYS["ApiVersions"], frame["version"], answer)[1]

        assert body.error_code == ErrorCode.NONE
        offered = {row.api_key: (row.min_version, row.max_version) for row in body.api_keys}
        kafka = decode_response(KEYS["ApiVersions"], frame["version"], bytes.fromhex(frame["response"]))[1]
        for row in kafka.api_keys:
            if row.api_key in offered:
                assert offered[row.api_key][0] <= row.min_version
                assert offered[row.api_key][1] >= row.max_version
