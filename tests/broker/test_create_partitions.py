"""CreatePartitions, where tests/golden/conversations/topics.txt does not reach."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from minibroker.broker.cluster.assignment import MAX_PARTITIONS_PER_TOPIC, added_partitions, assign_replicas
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.conftest import MakeBroker


def test_a_topic_has_no_more_partitions_than_it_may_have() -> None:
    assert len(assign_replicas(0, MAX_PARTITIONS_PER_TOPIC, 1)) == 10_000
    assert len(added_partitions([[0]], MAX_PARTITIONS_PER_TOPIC, None, 0)) == 9_999
    too_many = MAX_PARTITIONS_PER_TOPIC + 1
    for ask in (partial(assign_replicas, 0, too_many, 1), partial(added_partitions, [[0]], too_many, None, 0)):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS


async def test_a_topic_whose_partitions_have_gaps_gets_no_more(make_broker: MakeBroker, tmp_path: Path) -> None:
    """Read off a directory that another broker wrote in part."""
    (tmp_path / "data" / "t-3").mkdir(parents=True)
    broker = make_broker(tmp_path / "data")

    answer = await broker.call(ApiKey.CREATE_PARTITIONS, 1, topics=[("t", 5, None)], timeout_ms=1000)

    assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_PARTITIONS]
    assert list(json.loads((tmp_path / "data" / "minibroker.json").read_text())["topics"]["t"]["partitions"]) == ["3"]
