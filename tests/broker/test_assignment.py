"""How many partitions a topic may have."""

from __future__ import annotations

import pytest

from minibroker.broker.cluster.assignment import MAX_PARTITIONS_PER_TOPIC, added_partitions, assign_replicas
from minibroker.protocol.errors import ErrorCode, KafkaError


def test_a_topic_may_have_the_greatest_number_of_partitions() -> None:
    assert len(assign_replicas(0, MAX_PARTITIONS_PER_TOPIC, 1)) == 10_000
    assert len(added_partitions([[0]], MAX_PARTITIONS_PER_TOPIC, None, 0)) == 9_999


def test_a_topic_has_no_more_partitions_than_that() -> None:
    with pytest.raises(KafkaError) as created:
        assign_replicas(0, MAX_PARTITIONS_PER_TOPIC + 1, 1)
    with pytest.raises(KafkaError) as grown:
        added_partitions([[0]], MAX_PARTITIONS_PER_TOPIC + 1, None, 0)

    assert {created.value.code, grown.value.code} == {ErrorCode.INVALID_PARTITIONS}
