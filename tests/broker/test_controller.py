"""The controller by itself: its deletion listeners, what a failing disk leaves behind; and minibroker.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from minibroker.broker.cluster.controller import Controller
from minibroker.broker.cluster.metadata_cache import MetadataCache, PartitionState, TopicState
from minibroker.broker.cluster.topic_changes import NewPartitions, NewTopic
from minibroker.broker.cluster.topic_store import FILE_NAME, TopicStore, TopicStoreError, kafka_id_text, parse_kafka_id
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.isr import IsrChange
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import MakeBroker

T0 = TopicPartition("t", 0)
Parts = tuple[Controller, MetadataCache, TopicStore, list[Sequence[TopicPartition]]]


@pytest.fixture
def parts(make_broker: MakeBroker) -> Parts:
    """A controller on the parts of a broker, its cache, its store, and the deletions it tells of."""
    broker = make_broker()
    config = KafkaConfig({"broker.id": "0"})
    store: TopicStore = broker.app._store
    cache = MetadataCache(0, store.cluster_id)
    deleted: list[Sequence[TopicPartition]] = []
    controller = Controller(
        config=config,
        dynamic_config=DynamicConfig(config),
        store=store,
        metadata_cache=cache,
        replica_manager=broker.parts.replica_manager,
    )
    controller.on_topic_deleted.append(deleted.append)
    return controller, cache, store, deleted


def fail(*_: object) -> None:
    raise OSError("no space left")


def new_topic(name: str) -> NewTopic:
    return NewTopic(name, 1, 1, {}, {})


def create_assigned(controller: Controller, assignment: dict[int, list[int]]) -> None:
    assert codes(controller.create_topics([NewTopic("t", -1, -1, assignment, {})])) == {"t": None}


def make_two_topics(controller: Controller) -> dict[str, TopicState | KafkaError]:
    return controller.create_topics([new_topic("t"), new_topic("u")])


def codes(outcomes: dict[str, TopicState | KafkaError]) -> dict[str, ErrorCode | None]:
    return {name: outcome.code if isinstance(outcome, KafkaError) else None for name, outcome in outcomes.items()}


async def test_deletion_is_told_with_every_partition_also_those_not_here(parts: Parts) -> None:
    controller, _, _, deleted = parts
    create_assigned(controller, {0: [0], 1: [5]})

    controller.delete_topics(["t"])

    assert deleted == [[TopicPartition("t", 0), TopicPartition("t", 1)]]


async def test_a_deletion_that_fails_is_not_told(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, cache, store, deleted = parts
    make_two_topics(controller)
    monkeypatch.setattr(store, "save", fail)

    outcomes = controller.delete_topics(["t", "u", "unknown"])

    assert codes(outcomes) == {
        "t": ErrorCode.KAFKA_STORAGE_ERROR,
        "u": ErrorCode.KAFKA_STORAGE_ERROR,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert deleted == []
    assert cache.topics.keys() == store.topics.keys() == {"t", "u"}


async def test_topics_that_cannot_be_stored_may_be_made_again(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, cache, store, _ = parts
    with monkeypatch.context() as full_disk:
        full_disk.setattr(store, "save", fail)
        outcomes = controller.create_topics([new_topic("t"), new_topic("u"), new_topic("no/name")])

    assert codes(outcomes) == {
        "t": ErrorCode.KAFKA_STORAGE_ERROR,
        "u": ErrorCode.KAFKA_STORAGE_ERROR,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert cache.topics.keys() == store.topics.keys() == set()
    assert codes(make_two_topics(controller)) == {"t": None, "u": None}


async def test_topics_are_stored_once_before_any_is_seen(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, cache, store, _ = parts
    seen_at_save: list[list[str]] = []
    monkeypatch.setattr(store, "save", lambda _: seen_at_save.append(list(cache.topics)))

    make_two_topics(controller)
    controller.create_partitions([NewPartitions("t", 3, None), NewPartitions("u", 2, None)])
    controller.delete_topics(["t", "u"])

    assert seen_at_save == [[], ["t", "u"], ["t", "u"], []]  # the last: nothing is left of those deleted
    assert not cache.topics


async def test_nothing_is_written_down_when_nothing_changes(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, _, store, _ = parts
    make_two_topics(controller)
    monkeypatch.setattr(store, "save", fail)

    controller.create_topics([new_topic("v")], validate_only=True)
    controller.create_partitions([NewPartitions("t", 2, None)], validate_only=True)

    assert codes(make_two_topics(controller)) == dict.fromkeys("tu", ErrorCode.TOPIC_ALREADY_EXISTS)
    assert codes(controller.delete_topics(["v"])) == {"v": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_in_sync_replicas_are_stored_before_they_are_seen(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    controller, cache, store, _ = parts
    create_assigned(controller, {0: [0, 5], 1: [5, 6]})
    assert store.save_isr({T0: IsrChange((0, 5), 0, 0)}) == {T0: 1}
    assert store.save_isr({T0: IsrChange((0,), 0, 0)}) == {T0: None}  # stale: of the version before
    monkeypatch.setattr(store, "save", fail)

    with pytest.raises(KafkaError) as raised:
        store.save_isr({T0: IsrChange((0,), 0, 1)})

    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(cache.topics["t"].partitions) == [0]  # those with a leader
    assert cache.topics["t"].partitions[0].in_sync_replicas == [0, 5]
    topic = controller.topic("t")
    assert topic is not None
    assert list(topic.partitions) == [0, 1]


OLD_TOPIC = {
    "configs": {"retention.ms": "7"},
    "partitions": {"0": {"leader": 0, "leader_epoch": 3, "replicas": [0], "isr": [0]}},
}
OLD_FILE = {
    "version": 1,
    "cluster_id": "dSbrKVchQ3yj_K74Lmamlg",
    "next_producer_id": 2000,
    "topics": {"t": OLD_TOPIC},
}


def loaded(directory: Path) -> TopicStore:
    store = TopicStore(directory, broker_id=0)
    store.load([])
    return store


def test_everything_is_read_again(tmp_path: Path) -> None:
    store = TopicStore(tmp_path, broker_id=0)
    store.topics["t"] = TopicState("t", {1: PartitionState(-1, 2, [5, 6], [])}, {"retention.ms": "7"})
    store.broker_configs = {"": {"log.retention.ms": "5"}, "0": {"log.segment.bytes": "9"}}
    store.save()

    again = loaded(tmp_path)

    for name in ("topics", "broker_configs", "cluster_id"):
        assert getattr(again, name) == getattr(store, name)
    assert kafka_id_text(parse_kafka_id("dSbrKVchQ3yj_K74Lmamlg")) == "dSbrKVchQ3yj_K74Lmamlg"


def test_topics_of_an_older_file_get_ids_that_stay_once_written(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(OLD_FILE))
    store = loaded(tmp_path)
    store.save()

    assert store.topics["t"].configs == {"retention.ms": "7"}
    assert store.broker_configs == {}
    assert loaded(tmp_path).topics["t"].topic_id == store.topics["t"].topic_id


@pytest.mark.parametrize("topic_id", ["short", 7, "!" * 22])
def test_a_broken_id_is_said_before_anything_starts(tmp_path: Path, topic_id: str | int) -> None:
    topics = {"t": OLD_TOPIC | {"topic_id": topic_id}}
    (tmp_path / FILE_NAME).write_text(json.dumps(OLD_FILE | {"topics": topics}))

    with pytest.raises(TopicStoreError, match="cannot read"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("limit", "made"),
    [(100, ["a", "b"]), (88, ["a", "b"]), (87, ["a"]), (77, ["a"]), (76, [])],
)
async def test_topics_share_the_open_files_of_which_a_tenth_is_kept_free(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, limit: int, made: list[str]
) -> None:
    controller, _, store, _ = parts
    monkeypatch.setattr("minibroker.broker.cluster.open_files.count_open_files", lambda: 60)
    monkeypatch.setattr("resource.getrlimit", lambda kind: (limit, limit))

    outcomes = controller.create_topics([NewTopic(name, 10, 1, {}, {}) for name in ("a", "b")])

    assert list(store.topics) == made
    assert codes(outcomes) == {name: None if name in made else ErrorCode.POLICY_VIOLATION for name in ("a", "b")}
