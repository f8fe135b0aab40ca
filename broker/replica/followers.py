"""Who is in sync: followers join when they have fetched what is committed, and leave when they lag too long.

A change is written down first, then it counts (`on_isr_change`): a leader that cannot write keeps the set it has.
All partitions of one fetch, or of one look for laggards, are written together. As kafka 2.0.1 Partition.updateIsr,
maybeExpandIsr and maybeShrinkIsr, and ReplicaManager.updateFollowerLogReadResults.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from minibroker.broker.replica.partition import NO_RECORDS, FetchedPartition, Partition
from minibroker.broker.replica.partition_read import FetchRow
from minibroker.broker.replica.replica import UNKNOWN_END
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition

logger = logging.getLogger(__name__)

# With the in-sync replicas of each partition as they shall be. Raises KafkaError when they cannot be written down.
IsrChangeListener = Callable[[Mapping[TopicPartition, Sequence[int]]], None]


class Followers:
    """The followers of all `partitions`, which the replica manager owns.

    `on_progress(topic_partition)` is called when a high watermark has moved, or a follower's log start offset.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        *,
        broker_id: int,
        on_isr_change: IsrChangeListener,
        on_progress: Callable[[TopicPartition], None],
    ) -> None:
        self._partitions = partitions
        self._broker_id = broker_id
        self._on_isr_change = on_isr_change
        self._on_progress = on_progress

    def note_fetch(
        self, replica_id: int, rows: Sequence[FetchRow], fetched: Sequence[FetchedPartition], now_ms: int
    ) -> list[FetchedPartition]:
        """Take from a follower's fetch how far it is; return what to answer it.

        That is what was read, with the high watermark before the fetch: the new one comes with the next answer.
        One that is no replica of a partition gets nothing of it (fetch-path row 53), and one with this broker's
        own id KafkaError(UNKNOWN_SERVER_ERROR).
        """
        answers = []
        noted: list[tuple[Partition, bool]] = []
        for row, result in zip(rows, fetched, strict=True):
            partition = self._partitions.get(row.topic_partition)
            if partition is not None:
                if replica_id == self._broker_id:
                    raise KafkaError(
                        ErrorCode.UNKNOWN_SERVER_ERROR, f"a follower that is broker {replica_id}, the leader"
                    )
                if replica_id in partition.remote_replicas:
                    has_new_start = partition.note_follower_fetch(replica_id, result, row.log_start_offset, now_ms)
                    noted.append((partition, has_new_start))
                else:
                    result = for_no_replica(result)
            answers.append(result)
        self._change((partition, partition.isr_with(replica_id)) for partition, _ in noted)
        for partition, has_new_start in noted:
            if partition.maybe_increment_replicated_high_watermark(now_ms) or has_new_start:
                self._on_progress(partition.topic_partition)
        return answers

    def drop_laggards(self, now_ms: int) -> None:
        """Take those out of sync who lag: who is left may have more in common, and the high watermark moves."""
        replicated = (each for each in self._partitions.values() if len(each.in_sync_replicas) > 1)
        for partition in self._change((each, each.isr_without_laggards(now_ms)) for each in replicated):
            if partition.maybe_increment_replicated_high_watermark(now_ms):
                self._on_progress(partition.topic_partition)

    def _change(self, wanted: Iterable[tuple[Partition, list[int] | None]]) -> list[Partition]:
        """Give partitions their new in-sync replicas, None for those they have; return the partitions changed."""
        changes = [(partition, isr) for partition, isr in wanted if isr is not None]
        if not changes:
            return []
        try:
            self._on_isr_change({partition.topic_partition: isr for partition, isr in changes})
        except KafkaError as error:
            logger.warning("the in-sync replicas of %d partitions stay as they are: %s", len(changes), error)
            return []
        for partition, isr in changes:
            logger.info("%s: ISR %s, was %s", partition.topic_partition, isr, partition.in_sync_replicas)
            partition.in_sync_replicas = isr
        return [partition for partition, _ in changes]


def for_no_replica(result: FetchedPartition) -> FetchedPartition:
    """What a follower is answered at once of a partition that is not its: where it stands, and no records."""
    if result.start is None:
        return result
    return result._replace(records=NO_RECORDS, aborted_transactions=None, start=UNKNOWN_END)
