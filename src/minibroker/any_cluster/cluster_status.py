"""The brokers of any cluster, and each replica of a topic as its own broker knows it: what `cluster status` shows.

A broker answers for its own replica, whoever leads, to a reader with the replica id of Kafka's debuggers. What Kafka's
protocol does not have is None: the leader epoch before Kafka 2.1, and what a test holds back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from minibroker.any_cluster.cluster import (
    FetchRequest,
    NoAnswer,
    TopicPartition,
    administering,
    all_of,
    answer_to,
    both,
    described_cluster,
    lacks_answer,
)
from minibroker.any_cluster.partition_offsets import listed, topic_rows
from minibroker.client.address import Address
from minibroker.protocol.message_values import DEBUGGING_REPLICA_ID, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

NEWEST_FETCH = 10
UNKNOWN = -1


class SeenReplica(NamedTuple):
    """A replica, with the fields of `Replica`; `in_sync_replicas` are those that clients see."""

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

    def __init__(self, client: Any) -> None:
        self._client = client

    def status(self) -> dict[str, Any]:
        return described_cluster(self._client)

    def brokers(self) -> list[dict[str, Any]]:
        """The brokers that are alive, and those that have replicas and are not."""
        alive = {row["broker_id"]: str(Address(row["host"], row["port"])) for row in self.status()["brokers"]}
        partitions = [row for topic in self._client.describe_topics() for row in topic["partitions"]]
        known = {*alive, *(each for row in partitions for each in row["replica_nodes"])}
        return [
            {
                "broker_id": each,
                "address": alive.get(each),
                "state": "running" if each in alive else "ended",
                "pid": None,
            }
            for each in sorted(known)
        ]

    def partitions(self, topic: str) -> list[int]:
        return sorted(row["partition_index"] for row in self._rows(topic))

    def replicas(self, topic: str, partition: int) -> dict[int, SeenReplica]:
        """The replicas on live brokers; one that does not answer has no offsets."""
        rows, status = both(lambda: self._rows(topic), self.status)
        (row,) = (each for each in rows if each["partition_index"] == partition)
        alive = {each["broker_id"] for each in status["brokers"]}
        return all_of(
            {each: partial(self._seen, topic, row, each) for each in sorted(row["replica_nodes"]) if each in alive}
        )

    def _rows(self, topic: str) -> Sequence[dict[str, Any]]:
        (row,) = topic_rows(self._client, [topic])
        found: Sequence[dict[str, Any]] = row["partitions"]
        return found

    def _seen(self, topic: str, row: dict[str, Any], broker_id: int) -> SeenReplica:
        partition = row["partition_index"]
        start = end = high_watermark = None
        try:
            start, end = both(
                lambda: self._offset(topic, partition, broker_id, EARLIEST_TIMESTAMP),
                lambda: self._offset(topic, partition, broker_id, LATEST_TIMESTAMP),
            )
            high_watermark = None if end is None else self._high_watermark(topic, partition, broker_id, end)
        except NoAnswer as error:
            lacks_answer(error, "what it has of its replicas")
        epoch = row.get("leader_epoch", UNKNOWN)
        return SeenReplica(
            broker_id,
            "leader" if row["leader_id"] == broker_id else "follower",
            row["leader_id"],
            None if epoch in (None, UNKNOWN) else epoch,
            high_watermark,
            end,
            start,
            frozenset(row["isr_nodes"]),
        )

    def _offset(self, topic: str, partition: int, broker_id: int, timestamp: int) -> int | None:
        at = TopicPartition(topic, partition)
        row = listed(self._client, broker_id, [at], timestamp, replica_id=DEBUGGING_REPLICA_ID)[at]
        return None if row.error_code else int(row.offset)

    def _high_watermark(self, topic: str, partition: int, broker_id: int, end: int) -> int | None:
        """The high watermark as the replica's own broker knows it, which a fetch from the end answers."""
        rows = FetchRequest.FetchTopic
        asked = rows.FetchPartition(
            partition=partition, current_leader_epoch=UNKNOWN, fetch_offset=end, partition_max_bytes=1
        )
        request = FetchRequest(
            replica_id=DEBUGGING_REPLICA_ID,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[rows(topic=topic, partitions=[asked])],
            forgotten_topics_data=[],
            max_version=NEWEST_FETCH,
        )
        row = answer_to(self._client, request, broker=broker_id).responses[0].partitions[0]
        return None if row.error_code else int(row.high_watermark)


cluster_status = administering(ClusterStatus)
