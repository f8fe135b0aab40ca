"""CreatePartitions, where tests/golden/conversations/topics.txt does not reach."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from random import Random

import pytest

from minibroker.broker.cluster.assignment import MAX_PARTITIONS_PER_TOPIC, added_partitions, assign_replicas
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.broker.conftest import MakeBroker


def test_a_topic_has_no_more_partitions_than_it_may_have() -> None:
    racks, draw = {0: None}, Random().randrange
    assert len(assign_replicas(racks, MAX_PARTITIONS_PER_TOPIC, 1, draw)) == 10_000
    assert len(added_partitions([[0]], MAX_PARTITIONS_PER_TOPIC, None, racks)) == 9_999
    too_many = MAX_PARTITIONS_PER_TOPIC + 1
    for ask in (
        partial(assign_replicas, racks, too_many, 1, draw),
        partial(added_partitions, [[0]], too_many, None, racks),
    ):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS


def test_partitions_are_added_only_if_all_live_brokers_have_racks_or_none() -> None:
    """Also those that a client assigns: Kafka asks as it reads the brokers."""
    with pytest.raises(
        KafkaError, match=r"Not all brokers have rack information\. Add --disable-rack-aware"
    ) as refused:
        added_partitions([[0]], 2, [[1]], {0: None, 1: "r"})
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_topic_whose_partitions_have_gaps_gets_no_more(make_broker: MakeBroker, tmp_path: Path) -> None:
    """Read off a directory that another broker wrote in part."""
    (tmp_path / "data" / "t-3").mkdir(parents=True)
    broker = make_broker(tmp_path / "data")

    answer = await broker.call(ApiKey.CREATE_PARTITIONS, 1, topics=[("t", 5, None)], timeout_ms=1000)

    assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_PARTITIONS]
    assert list(json.loads((tmp_path / "data" / "minibroker.json").read_text())["topics"]["t"]["partitions"]) == ["3"]
