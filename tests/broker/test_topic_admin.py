"""Topics that are made, grown and deleted: what a failing disk leaves behind; and minibroker.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.broker.cluster.file_state import FILE_NAME, FileState, FileStateError
from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.cluster.sections import BROKER_CONFIGS
from minibroker.broker.cluster.state import Change, TopicState, kafka_id_text, parse_kafka_id
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.cluster.topic_changes import NewPartitions, NewTopic
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.replica.isr import IsrChange
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import disk
from tests.broker.conftest import InMemoryBroker

T0 = TopicPartition("t", 0)
Parts = tuple[TopicAdmin, MetadataCache, FileState]


@pytest.fixture
def parts(broker: InMemoryBroker) -> Parts:
    return broker.parts.topic_admin, broker.parts.metadata_cache, broker.state


def fail(*_: object) -> None:
    raise OSError("no space left")


def new_topic(name: str) -> NewTopic:
    return NewTopic(name, 1, 1, {}, {})


def create_assigned(admin: TopicAdmin, assignment: dict[int, list[int]]) -> None:
    assert codes(admin.create_topics([NewTopic("t", -1, -1, assignment, {})])) == {"t": None}


def make_two_topics(admin: TopicAdmin) -> dict[str, TopicState | KafkaError]:
    return admin.create_topics([new_topic("t"), new_topic("u")])


def codes(outcomes: dict[str, TopicState | KafkaError]) -> dict[str, ErrorCode | None]:
    return {name: outcome.code if isinstance(outcome, KafkaError) else None for name, outcome in outcomes.items()}


async def test_topics_are_stored_once_before_any_is_seen(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    admin, cache, _ = parts
    seen_at_save: list[list[str]] = []
    write = disk.write

    def noted_write(fd: int, content: bytes) -> int:
        seen_at_save.append(list(cache.topics))
        return write(fd, content)

    monkeypatch.setattr(disk, "write", noted_write)

    make_two_topics(admin)
    admin.create_partitions([NewPartitions("t", 3, None), NewPartitions("u", 2, None)])
    admin.delete_topics(["t", "u"])

    assert seen_at_save == [[], ["t", "u"], ["t", "u"], []]  # the last: nothing is left of those deleted
    assert not cache.topics


async def test_in_sync_replicas_are_stored_before_they_are_seen(
    broker: InMemoryBroker, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, cache, state = parts
    save_isr = broker.parts.controller_loop.save_isr
    create_assigned(admin, {0: [0, 5], 1: [5, 6]})
    assert save_isr({T0: IsrChange((0, 5), 0, 0)}) == {T0: 1}
    assert save_isr({T0: IsrChange((0,), 0, 0)}) == {T0: None}  # stale: of the version before
    monkeypatch.setattr(disk, "write", fail)

    with pytest.raises(KafkaError) as raised:
        save_isr({T0: IsrChange((0,), 0, 1)})

    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert list(cache.topics["t"].partitions) == [0]  # those with a leader
    assert cache.topics["t"].partitions[0].in_sync_replicas == (0, 5)
    assert list(state.topics["t"].partitions) == [0, 1]


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


def loaded(directory: Path) -> FileState:
    state = FileState(directory, broker_id=0)
    state.load([])
    return state


def test_everything_is_read_again(tmp_path: Path) -> None:
    state = FileState(tmp_path, broker_id=0)
    topic = TopicState("t", {1: PartitionState(-1, 2, (), (5, 6))}, {"retention.ms": "7"}, parse_kafka_id("a" * 22))
    settings = {"": {"log.retention.ms": "5"}, "0": {"log.segment.bytes": "9"}}
    state.save("all", Change({"t": topic}, {BROKER_CONFIGS: settings}))

    again = loaded(tmp_path)

    assert (again.topics, again.get(BROKER_CONFIGS), again.cluster_id) == ({"t": topic}, settings, state.cluster_id)
    assert kafka_id_text(parse_kafka_id("dSbrKVchQ3yj_K74Lmamlg")) == "dSbrKVchQ3yj_K74Lmamlg"


def test_topics_of_an_older_file_get_ids_that_stay_once_written(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(OLD_FILE))
    state = loaded(tmp_path)
    state.save("a start", Change())

    assert state.topics["t"].configs == {"retention.ms": "7"}
    assert state.topics["t"].partitions == {0: PartitionState(0, 3, (0,), (0,))}
    assert state.get(BROKER_CONFIGS) == {}
    assert loaded(tmp_path).topics["t"].topic_id == state.topics["t"].topic_id


@pytest.mark.parametrize("topic_id", ["short", 7, "!" * 22])
def test_a_broken_id_is_reported_before_anything_starts(tmp_path: Path, topic_id: str | int) -> None:
    topics = {"t": OLD_TOPIC | {"topic_id": topic_id}}
    (tmp_path / FILE_NAME).write_text(json.dumps(OLD_FILE | {"topics": topics}))

    with pytest.raises(FileStateError, match="cannot read"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("limit", "made"),
    [(100, ["a", "b"]), (88, ["a", "b"]), (87, ["a"]), (77, ["a"]), (76, [])],
)
async def test_topics_share_the_open_files_of_which_a_tenth_is_kept_free(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, limit: int, made: list[str]
) -> None:
    admin, _, state = parts
    monkeypatch.setattr("minibroker.broker.cluster.open_files.count_open_files", lambda: 60)
    monkeypatch.setattr("resource.getrlimit", lambda kind: (limit, limit))

    outcomes = admin.create_topics([NewTopic(name, 10, 1, {}, {}) for name in ("a", "b")])

    assert list(state.topics) == made
    assert codes(outcomes) == {name: None if name in made else ErrorCode.POLICY_VIOLATION for name in ("a", "b")}
