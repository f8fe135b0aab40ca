"""The brokers of any cluster, and each replica of a topic as its own broker knows it: what `cluster status` shows.

A broker answers for its own replica, whoever leads, to a reader with the replica id of Kafka's debuggers. What Kafka's
protocol does not have is None: the leader epoch before Kafka 2.1, and what a test holds back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from minibroker.any_cluster.cluster import both, described_cluster, lacks_answer, topics_of
from minibroker.any_cluster.partition_offsets import topic_rows
from minibroker.client.client import Broker, Client
from minibroker.client.errors import NoAnswer
from minibroker.client.offsets import listing
from minibroker.client.reading import fetching
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.message_values import DEBUGGING_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

UNKNOWN = -1
Key = tuple[int, int]  # a partition, and a broker


class SeenReplica(NamedTuple):
    """A replica, with the fields of `Replica`; `in_sync_replicas` is the list that clients see."""

    broker_id: int
    role: str
    leader_id: int
    leader_epoch: int | None
    high_watermark: int | None
    log_end_offset: int | None
    log_start_offset: int | None
    in_sync_replicas: frozenset[int]
    hold: None = None


class ClusterStatus:
    """The methods of `ServedCluster` that show something, by requests. All raise CommandFailed."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def status(self) -> dict[str, Any]:
        found = described_cluster(self._client, [])
        return {"controller_id": found.controller_id, "brokers": [as_row(each) for each in found.brokers]}

    def brokers(self) -> list[dict[str, Any]]:
        """The brokers that are alive, and the dead ones that have replicas."""
        partitions = [row for topic in topics_of(self._client) for row in topic.partitions]
        alive = {each.id: str(each.address) for each in self._client.brokers.values()}
        known = {*alive, *(each for row in partitions for each in row.replica_nodes)}
        return [
            {
                "broker_id": each,
                "address": alive.get(each),
                "state": "running" if each in alive else "ended",
                "pid": None,
            }
            for each in sorted(known)
        ]

    def all_replicas(self, topic: str) -> dict[int, dict[int, SeenReplica]]:
        """The replicas on live brokers of each partition; one that does not answer has no offsets."""
        (found,) = topic_rows(self._client, [topic])
        rows = {(row.partition, each): row for row in found.partitions for each in row.replica_nodes}
        rows = {key: row for key, row in sorted(rows.items()) if key[1] in self._client.brokers}
        starts, ends = both(
            lambda: self._offsets(topic, rows, EARLIEST_TIMESTAMP), lambda: self._offsets(topic, rows, LATEST_TIMESTAMP)
        )
        high_watermarks = self._high_watermarks(topic, ends)
        seen: dict[int, dict[int, SeenReplica]] = {row.partition: {} for row in found.partitions}
        for (number, broker), row in rows.items():
            key = (number, broker)
            seen[number][broker] = SeenReplica(
                broker,
                "leader" if row.leader_id == broker else "follower",
                row.leader_id,
                None if row.leader_epoch == UNKNOWN else row.leader_epoch,
                high_watermarks.get(key),
                ends.get(key),
                starts.get(key),
                frozenset(row.isr_nodes),
            )
        return seen

    def _offsets(self, topic: str, keys: Collection[Key], timestamp: int) -> dict[Key, int]:
        questions = {
            key: listing(key[1], [TopicPartition(topic, key[0])], timestamp, replica_id=DEBUGGING_REPLICA_ID)
            for key in keys
        }
        rows = answered(self._client.answers(questions))
        return {key: row.offset for key, row in rows.items() if not row.error_code}

    def _high_watermarks(self, topic: str, ends: Mapping[Key, int]) -> dict[Key, int]:
        """The high watermarks as each replica's own broker knows them, which a fetch from the end answers."""
        questions = {
            key: fetching(
                key[1],
                topic,
                {key[0]: end},
                committed_only=False,
                partition_bytes=1,
                max_bytes=1,
                replica_id=DEBUGGING_REPLICA_ID,
            )
            for key, end in ends.items()
        }
        rows = answered(self._client.answers(questions))
        return {key: row.high_watermark for key, row in rows.items() if not row.error_code}


def answered(answers: Mapping[Key, Any]) -> dict[Key, Any]:
    """The only row of each answer; which brokers have not answered is noted."""
    found = {}
    for key, answer in answers.items():
        if isinstance(answer, NoAnswer):
            lacks_answer(answer, "what it has of its replicas")
        elif isinstance(answer, Exception):
            raise answer
        else:
            found[key] = answer.topics[0].partitions[0]
    return found


def as_row(broker: Broker) -> dict[str, Any]:
    return {"broker_id": broker.id, "host": broker.address.host, "port": broker.address.port, "rack": broker.rack}
