"""Keeps the in-sync replicas: followers join when they have reached the high watermark, and leave when they lag.

A change holds once `save_isr` has it: if that fails, or the leader's state is stale, the leader keeps its in-sync
replicas. One write holds all changes of a fetch, or of a check for lagging followers. As kafka 2.0.1
Partition.updateIsr, maybeExpandIsr and maybeShrinkIsr, and ReplicaManager.updateFollowerLogReadResults.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Sequence
from functools import partial

from minibroker.broker.config.profiles import Habit
from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetched_partition import NO_RECORDS, FetchedPartition
from minibroker.broker.replica.isr import IsrOutcomes, SaveIsr
from minibroker.broker.replica.leading import Leading
from minibroker.broker.replica.partition_read import FetchParams, FetchRow, failed_fetch
from minibroker.broker.replica.partitions import Partitions
from minibroker.broker.replica.replica import UNKNOWN_END
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import counted

logger = logging.getLogger(__name__)


class Followers:
    """The followers of all partitions that this broker leads.

    Calls `on_progress(topic_partition)` after a high watermark or a follower's log start offset has moved.
    """

    def __init__(
        self,
        partitions: Partitions,
        *,
        broker_id: int,
        save_isr: SaveIsr,
        on_progress: Callable[[TopicPartition], None],
        habits: Container[Habit] = (),
    ) -> None:
        self._partitions = partitions
        self._broker_id = broker_id
        self._save_isr = save_isr
        self._on_progress = on_progress
        self._refuses_strangers = Habit.REFUSES_STRANGERS in habits
        self._answers_alike = Habit.ANSWERS_ALIKE in habits
        self.isr_expansions = 0
        self.isr_shrinks = 0
        self.failed_isr_updates = 0

    def note_fetch(
        self, params: FetchParams, rows: Sequence[FetchRow], fetched: Sequence[FetchedPartition], now_ms: int
    ) -> list[FetchedPartition]:
        """Note the offsets of a follower's fetch; return its answer.

        The answer has the high watermark before the fetch: the follower gets the new one with its next answer. A
        broker that is not a replica of a partition gets no records of it (fetch-path row 53). Raises
        KafkaError(UNKNOWN_SERVER_ERROR) if the follower has this broker's own id; as kafka 0.11, also if it is no
        replica of a partition.
        """
        answers, replica_id = [], params.replica_id
        noted: list[tuple[Leading, bool]] = []
        for row, result in zip(rows, fetched, strict=True):
            partition = self._partitions.any(row.topic_partition)
            if isinstance(partition, Leading):
                if replica_id == self._broker_id and not self._answers_alike:
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"follower {replica_id} has the id of the leader")
                if replica_id in partition.remote_replicas:
                    has_new_start = partition.note_follower_fetch(replica_id, result, row.log_start_offset, now_ms)
                    noted.append((partition, has_new_start))
                elif self._refuses_strangers:
                    stranger = f"broker {replica_id} is not a replica of {row.topic_partition}"
                    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, stranger)
                elif self._answers_alike:
                    result = failed_fetch(row.topic_partition, ErrorCode.NOT_LEADER_FOR_PARTITION)
                else:
                    result = for_non_replica(result)
            answers.append(result)
        self._change([(partition, partition.isr_with(replica_id)) for partition, _ in noted], now_ms)
        for partition, has_new_start in noted:
            if partition.maybe_increment_high_watermark(now_ms) or has_new_start:
                self._on_progress(partition.topic_partition)
        return answers

    def drop_laggards(self, now_ms: int) -> None:
        """Remove lagging followers from the in-sync replicas; without them the high watermark may move."""
        replicated = [each for each in self._partitions.leaders() if len(each.in_sync_replicas) > 1]
        self._change([(each, each.isr_without_laggards(now_ms)) for each in replicated], now_ms)

    def drop(self, partition: Leading, replica_id: int, now_ms: int) -> None:
        """Remove one follower from the in-sync replicas, as if it lagged: until its next fetch nothing waits for it."""
        self._change([(partition, partition.isr_without(replica_id))], now_ms)

    def _change(self, wanted: Sequence[tuple[Leading, tuple[int, ...] | None]], now_ms: int) -> None:
        """Ask for the new in-sync replicas of each partition, None for unchanged; with them its high watermark may
        move. A partition that has asked already waits for that answer."""
        changes = {
            partition.topic_partition: (partition, partition.ask_for_isr(isr))
            for partition, isr in wanted
            if isr is not None and not partition.leadership.asked_in_sync_replicas
        }
        if not changes:
            return
        changed = [partition for partition, _ in changes.values()]
        try:
            outcomes = self._save_isr({name: change for name, (_, change) in changes.items()})
        except KafkaError as error:
            self._keep(changed, error)
        else:
            if isinstance(outcomes, Pending):
                outcomes.then(partial(self._take, changed, now_ms), partial(self._keep, changed))
            else:
                self._take(changed, now_ms, outcomes)

    def _take(self, changed: Sequence[Leading], now_ms: int, outcomes: IsrOutcomes) -> None:
        for partition in changed:
            topic_partition, before = partition.topic_partition, partition.in_sync_replicas
            if not partition.end_isr_change(outcomes[topic_partition]):
                self.failed_isr_updates += 1
                logger.info("%s: ISR %s is stale; waiting for the newer state", topic_partition, before)
                continue
            after = partition.in_sync_replicas
            if len(after) > len(before):
                self.isr_expansions += 1
            else:
                self.isr_shrinks += 1
            logger.info("%s: ISR %s, was %s", topic_partition, list(after), list(before))
            if partition.maybe_increment_high_watermark(now_ms):
                self._on_progress(topic_partition)

    def _keep(self, changed: Sequence[Leading], error: Exception) -> None:
        """Keep the in-sync replicas, since a change of them could not be saved."""
        for partition in changed:
            partition.end_isr_change(None)
        if not isinstance(error, KafkaError):
            raise error
        self.failed_isr_updates += len(changed)
        logger.warning("cannot change the in-sync replicas of %s: %s", counted(len(changed), "partition"), error)


def for_non_replica(result: FetchedPartition) -> FetchedPartition:
    """The answer to a broker that is not a replica of the partition: the offsets, at once and without records."""
    if result.start is None:
        return result
    return result._replace(records=NO_RECORDS, aborted_transactions=None, start=UNKNOWN_END)
