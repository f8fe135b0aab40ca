"""minibroker.json: what is read again, also of files that an older version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minibroker.broker.cluster.metadata_cache import PartitionState, TopicState
from minibroker.broker.cluster.topic_store import FILE_NAME, TopicStore, TopicStoreError, kafka_id_text, parse_kafka_id

OLD_FILE = {
    "version": 1,
    "cluster_id": "dSbrKVchQ3yj_K74Lmamlg",
    "next_producer_id": 2000,
    "topics": {
        "t": {
            "configs": {"retention.ms": "7"},
            "partitions": {"0": {"leader": 0, "leader_epoch": 3, "replicas": [0], "isr": [0]}},
        }
    },
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

    assert again.topics == store.topics
    assert again.broker_configs == store.broker_configs
    assert again.cluster_id == store.cluster_id


def test_topics_of_an_older_file_get_ids_that_stay_once_written(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps(OLD_FILE))
    store = loaded(tmp_path)
    store.save()

    assert store.topics["t"].configs == {"retention.ms": "7"}
    assert store.broker_configs == {}
    assert loaded(tmp_path).topics["t"].topic_id == store.topics["t"].topic_id


def test_ids_are_written_as_kafka_writes_them() -> None:
    text = kafka_id_text(parse_kafka_id("dSbrKVchQ3yj_K74Lmamlg"))

    assert text == "dSbrKVchQ3yj_K74Lmamlg"


@pytest.mark.parametrize("topic_id", ["short", 7, "!" * 22])
def test_a_broken_id_is_said_before_anything_starts(tmp_path: Path, topic_id: str | int) -> None:
    document = json.loads(json.dumps(OLD_FILE))
    document["topics"]["t"]["topic_id"] = topic_id
    (tmp_path / FILE_NAME).write_text(json.dumps(document))

    with pytest.raises(TopicStoreError, match="cannot read"):
        loaded(tmp_path)
