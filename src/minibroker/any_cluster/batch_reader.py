"""Reads what a client library cannot: behind a batch that it gives up on, and names of headers that are not UTF-8.

kafka-python and librdkafka stop at such a batch for ever, some with an error and some without.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

from minibroker.any_cluster.batch_fetching import Fetched, Unreadable, read_partition
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.partition_offsets import latest_of
from minibroker.any_cluster.record_lines import Headers
from minibroker.any_cluster.record_text import ShownRecord
from minibroker.client.client import Client
from minibroker.client.topic_partition import TopicPartition


class Passed(NamedTuple):
    """A read from a position on: the records, what cannot be read, and the offset behind all that."""

    records: list[ShownRecord]
    unreadable: tuple[Unreadable, ...]
    next: int


class BatchReader:
    """Decodes batches here, over a connection of its own that the first question opens."""

    def __init__(self, cluster: Cluster, *, committed_only: bool) -> None:
        self._cluster = cluster
        self._committed_only = committed_only
        self._closing = ExitStack()
        self._client: Client | None = None
        self._headers: dict[TopicPartition, dict[int, Headers]] = {}  # of the batches that were read last

    def unread(self, positions: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the partitions that go on behind these positions. Raises CommandFailed."""
        ends = latest_of(self._connected(), list(positions), committed_only=self._committed_only)
        return [at for at, position in positions.items() if ends[at] > position]

    def passed(self, at: TopicPartition, offset: int) -> Passed:
        """The read from that offset on, empty at the end. Raises CommandFailed."""
        fetched = self._read(at, offset, committed=self._committed_only)
        records = [
            ShownRecord(
                at.topic,
                at.partition,
                each.record.offset,
                each.record.timestamp_ms,
                each.record.key,
                each.record.value,
                list(each.record.headers),
                each.batch.partition_leader_epoch,
            )
            for each in fetched.records
        ]
        return Passed(records, fetched.unreadable, fetched.next)

    def headers(self, topic: str, partition: int, offset: int) -> Headers:
        """The headers of that record. Raises as `passed`."""
        at = TopicPartition(topic, partition)
        known = self._headers.get(at, {})
        if offset not in known:
            found = self._read(at, offset, committed=False).records
            known = self._headers[at] = {each.record.offset: list(each.record.headers) for each in found}
        return known[offset]

    def _read(self, at: TopicPartition, offset: int, *, committed: bool) -> Fetched:
        return read_partition(self._connected(), at.topic, at.partition, offset, committed=committed)

    def _connected(self) -> Client:
        if self._client is None:
            self._client = self._closing.enter_context(connected(self._cluster))
        return self._client

    def close(self) -> None:
        self._closing.close()
