"""Gives each partition that this broker follows to a fetcher: num.replica.fetchers of them for each leader.

As kafka 2.0.1 AbstractFetcherManager. A fetcher that has no partition left stops.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.replica.flusher import LogFlusher
from minibroker.broker.replica.follower import Follower
from minibroker.broker.replica.other_broker import ConnectTo
from minibroker.broker.replica.replication_quota import ReplicationQuota
from minibroker.broker.time.clock import Clock
from minibroker.broker.upkeep.background import Background
from minibroker.broker.wings.several.fetcher import Fetcher
from minibroker.broker.wings.several.following import Following
from minibroker.broker.wings.several.holds import Hold, Holds, Place
from minibroker.protocol.java_hash import abs_of, as_int, java_hash
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.log.log import Log


class FetcherManager:
    """Starts and stops the fetchers of this broker."""

    def __init__(
        self,
        *,
        connect_to: ConnectTo,
        config: KafkaConfig,
        clock: Clock,
        log_manager: LogManager,
        flusher: LogFlusher,
        background: Background,
        quota: ReplicationQuota,
        on_offline: Callable[[], None],
        on_progress: Callable[[TopicPartition], None],
    ) -> None:
        self._connect_to = connect_to
        self._config = config
        self._clock = clock
        self._log_manager = log_manager
        self._flusher = flusher
        self._background = background
        self._quota = quota
        self._on_offline = on_offline
        self._holds = Holds()
        self._on_progress = on_progress
        self._fetchers: dict[tuple[int, int], Fetcher] = {}  # by leader and number
        self._fetcher_of: dict[TopicPartition, Fetcher] = {}

    def follow(
        self, topic_partition: TopicPartition, log: Log, decided: PartitionState, before: Follower | None
    ) -> Follower:
        """Fetch a partition from its leader; begin anew for one that this broker did not follow so far."""
        if not isinstance(before, Following):
            before = Following(log, leader_id=decided.leader, leader_epoch=decided.leader_epoch)
            self.add(topic_partition, before)
        elif before.follow(decided.leader, decided.leader_epoch):
            self.add(topic_partition, before)
        return before

    def add(self, topic_partition: TopicPartition, following: Following) -> None:
        """Fetch a partition from its leader, if it has one, and from no other any more."""
        before = self._fetcher_of.get(topic_partition)
        fetcher = None
        if following.leader_id != NO_LEADER:
            number = self._number_of(topic_partition)
            fetcher = self._fetchers.get((following.leader_id, number)) or self._start(following.leader_id, number)
        if before is not None:
            before.remove(topic_partition)
        if fetcher is None:
            self._fetcher_of.pop(topic_partition, None)
        else:
            self._fetcher_of[topic_partition] = fetcher
            fetcher.add(topic_partition, following)
        if before is not None and not before.partitions:
            self._stop(before)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more, if it is fetched."""
        fetcher = self._fetcher_of.pop(topic_partition, None)
        if fetcher is not None:
            fetcher.remove(topic_partition)
            if not fetcher.partitions:
                self._stop(fetcher)

    def spread(self) -> None:
        """Give the partitions to num.replica.fetchers as it is now."""
        for topic_partition, fetcher in list(self._fetcher_of.items()):
            if self._number_of(topic_partition) != fetcher.number:
                self.add(topic_partition, fetcher.partitions[topic_partition])

    def hold(self, hold: Hold) -> None:
        """Follow a place late, or not at all, from now on: what was asked for it is not taken."""
        self._holds.add(hold)
        self._obey_holds()

    def release(self, place: Place) -> None:
        """Follow a place as usual again."""
        self._holds.release(place)
        self._obey_holds()

    def hold_of(self, topic_partition: TopicPartition) -> Hold | None:
        return self._holds.of(topic_partition)

    def _obey_holds(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.obey_holds()

    def _number_of(self, topic_partition: TopicPartition) -> int:
        return number_of(topic_partition, max(1, self._config.num_replica_fetchers))

    def _start(self, leader_id: int, number: int) -> Fetcher:
        client_id = f"broker-{self._config.broker_id}-fetcher-{number}"
        fetcher = self._fetchers[leader_id, number] = Fetcher(
            leader_id,
            number,
            connect=partial(self._connect_to, leader_id, client_id),
            config=self._config,
            clock=self._clock,
            log_manager=self._log_manager,
            flusher=self._flusher,
            holds=self._holds,
            quota=self._quota,
            on_offline=self._on_offline,
            on_progress=self._on_progress,
        )
        self._background.start(fetcher.run)
        return fetcher

    def _stop(self, fetcher: Fetcher) -> None:
        fetcher.stop()
        del self._fetchers[fetcher.leader_id, fetcher.number]


def number_of(topic_partition: TopicPartition, fetchers: int) -> int:
    """The number of a partition's fetcher. As kafka 2.0.1 AbstractFetcherManager.getFetcherId."""
    return abs_of(as_int(31 * java_hash(topic_partition.topic) + topic_partition.partition)) % fetchers
