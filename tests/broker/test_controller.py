"""The controller by itself: who is told of deletions, and what a failing disk leaves behind."""

from __future__ import annotations

import pytest

from minibroker.broker.app import BrokerApp
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.topic_store import TopicStore
from minibroker.broker.config import KafkaConfig
from minibroker.broker.controller import Controller
from minibroker.broker.dynamic_config import DynamicConfig
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition


@pytest.fixture
def parts(make_broker):
    """A controller on the parts of a broker, its cache, its store, and the deletions it tells of."""
    app: BrokerApp = make_broker().app
    config = KafkaConfig({"broker.id": "0"})
    store: TopicStore = app._store
    cache = MetadataCache(0, store.cluster_id)
    deleted: list[list[TopicPartition]] = []
    controller = Controller(
        config=config,
        dynamic_config=DynamicConfig(config),
        store=store,
        metadata_cache=cache,
        replica_manager=app.replica_manager,
        on_topic_deleted=[deleted.append],
    )
    return controller, cache, store, deleted


def fail() -> None:
    raise OSError("no space left")


async def test_deletion_is_told_with_every_partition_also_those_not_here(parts) -> None:
    controller, _, _, deleted = parts
    controller.create_topic("t", partition_count=-1, replication_factor=-1, assignment={0: [0], 1: [5]})

    controller.delete_topic("t")

    assert deleted == [[TopicPartition("t", 0), TopicPartition("t", 1)]]


async def test_a_deletion_that_fails_is_not_told(parts, monkeypatch) -> None:
    controller, cache, store, deleted = parts
    controller.create_topic("t", partition_count=1, replication_factor=1)
    monkeypatch.setattr(store, "save", fail)

    with pytest.raises(KafkaError) as raised:
        controller.delete_topic("t")

    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert deleted == []
    assert "t" in cache.topics


async def test_in_sync_replicas_are_written_down_before_they_are_seen(parts, monkeypatch) -> None:
    controller, cache, store, _ = parts
    controller.create_topic("t", partition_count=-1, replication_factor=-1, assignment={0: [0, 5]})
    controller.set_in_sync_replicas({TopicPartition("t", 0): [0, 5]})
    monkeypatch.setattr(store, "save", fail)

    with pytest.raises(KafkaError) as raised:
        controller.set_in_sync_replicas({TopicPartition("t", 0): [0]})

    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert cache.topics["t"].partitions[0].in_sync_replicas == [0, 5]


async def test_partitions_with_and_without_leaders_share_their_states(parts) -> None:
    controller, cache, _, _ = parts
    controller.create_topic("t", partition_count=-1, replication_factor=-1, assignment={0: [0, 5], 1: [5, 6]})

    controller.set_in_sync_replicas({TopicPartition("t", 0): [0, 5]})

    assert list(cache.topics["t"].partitions) == [0]
    assert cache.topics["t"].partitions[0].in_sync_replicas == [0, 5]
    assert list(controller.topic("t").partitions) == [0, 1]
