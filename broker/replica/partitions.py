"""The partitions of this broker by name: each has a log and a role, `Leading` or `Follower`.

A controller decides on the roles, and `apply` obeys. Everything else asks for the leader of a partition (`led`), or for
what is here of it (`any`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import LeaderAndIsr, Obeyed, PartitionState, RoleDecision, StopReplica
from minibroker.broker.replica.follower import Fetchers, Follower, NoFetchers
from minibroker.broker.replica.leading import Leadership, Leading
from minibroker.broker.time.clock import Clock
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.storage_errors import map_storage_errors
from minibroker.storage.log.log import Log

Role = Leading | Follower
NO_ROLES: Mapping[TopicPartition, Role] = {}


class Partitions:
    """The roles of this broker. Calls `on_change` with a partition whose role has changed or ended.

    `is_known` is whether a partition is in the metadata: clients ask for its leader again then.
    """

    __slots__ = ("_clock", "_config", "_fetchers", "_is_known", "_log_manager", "_on_change", "_roles", "refused")

    def __init__(
        self,
        *,
        config: KafkaConfig,
        log_manager: LogManager,
        clock: Clock,
        on_change: Callable[[TopicPartition], None],
        is_known: Callable[[TopicPartition], bool],
    ) -> None:
        self._is_known = is_known
        self._config = config
        self._fetchers: Fetchers = NoFetchers()
        self._log_manager = log_manager
        self._clock = clock
        self._on_change = on_change
        self._roles: dict[TopicPartition, Role] = {}
        self.refused: set[TopicPartition] = set()  # whose roles this broker could not take, for want of room or files

    def follow_by(self, fetchers: Fetchers) -> None:
        """Have these copy the partitions that follow, from now on."""
        self._fetchers = fetchers

    # -- asking -----------------------------------------------------------------------------------------------

    def led(self, topic_partition: TopicPartition) -> Leading:
        """Return the leader. Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_FOR_PARTITION, or
        KAFKA_STORAGE_ERROR after its disk has failed.

        As kafka 2.0.1 ReplicaManager.getPartitionAndLeaderReplicaIfLocal.
        """
        role = self._roles.get(topic_partition)
        if role is None:
            if self._is_known(topic_partition):
                message = f"broker {self._config.broker_id} is not a replica of {topic_partition}"
                raise KafkaError(ErrorCode.NOT_LEADER_FOR_PARTITION, message)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not on this broker")
        if self._log_manager.is_offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {topic_partition} is offline")
        if not isinstance(role, Leading):
            raise KafkaError(
                ErrorCode.NOT_LEADER_FOR_PARTITION, f"broker {role.leader_id} leads {topic_partition}, not this one"
            )
        return role

    def to_read(self, topic_partition: TopicPartition, *, of_followers: bool) -> Role:
        """Return the role whose log a client reads: the leader, or a follower too. Raises KafkaError as `led`."""
        role = self.readable().get(topic_partition) if of_followers else None
        return role if isinstance(role, Follower) else self.led(topic_partition)

    def any(self, topic_partition: TopicPartition) -> Role | None:
        """Return the role in a partition, whichever it is; None if the partition is not on this broker."""
        return self._roles.get(topic_partition)

    def readable(self) -> Mapping[TopicPartition, Role]:
        """All roles; none after the disk has failed."""
        return NO_ROLES if self._log_manager.is_offline else self._roles

    def failed_read(self, error: OSError) -> ErrorCode:
        """Take the log directory offline unless the error passes; return what the reader gets.

        As kafka 2.0.1 Log.maybeHandleIOException.
        """
        self._log_manager.on_storage_error(error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def items(self) -> list[tuple[TopicPartition, Role]]:
        return list(self._roles.items())

    def leaders(self) -> list[Leading]:
        """The partitions that this broker leads."""
        return [role for role in self._roles.values() if isinstance(role, Leading)]

    # -- obeying ----------------------------------------------------------------------------------------------

    def apply(self, decision: RoleDecision) -> Obeyed:
        """Change roles as a controller has decided.

        As kafka 2.0.1 ReplicaManager.becomeLeaderOrFollower and stopReplicas.
        """
        failures: dict[TopicPartition, KafkaError] = {}
        gained: list[TopicPartition] = []
        lost: list[TopicPartition] = []
        for topic_partition in decision.partitions:
            had_led = isinstance(self._roles.get(topic_partition), Leading)
            try:
                if isinstance(decision, LeaderAndIsr):
                    self._take_role(topic_partition, decision.partitions[topic_partition])
                else:
                    self._stop(topic_partition, decision)
            except KafkaError as error:
                failures[topic_partition] = error
                if error.code is ErrorCode.KAFKA_STORAGE_ERROR and isinstance(decision, LeaderAndIsr):
                    self.refused.add(topic_partition)
            else:
                self.refused.discard(topic_partition)
            if isinstance(self._roles.get(topic_partition), Leading) != had_led:
                (lost if had_led else gained).append(topic_partition)
        return Obeyed(ErrorCode.NONE, failures, gained, lost)

    def _take_role(self, topic_partition: TopicPartition, decided: PartitionState) -> None:
        """Raises KafkaError: STALE_CONTROLLER_EPOCH for no newer leader epoch, which is usual: controllers repeat
        themselves; UNKNOWN_TOPIC_OR_PARTITION if this broker is not assigned; KAFKA_STORAGE_ERROR."""
        role, broker_id = self._roles.get(topic_partition), self._config.broker_id
        if role is not None and decided.leader_epoch <= role.leader_epoch:
            raise KafkaError(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"{topic_partition} has the leader epoch {role.leader_epoch}, no older than {decided.leader_epoch}",
            )
        if broker_id not in decided.replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} has no replica on {broker_id}")
        with map_storage_errors(self._log_manager):
            log = self._log_manager.get_or_create_log(topic_partition, now_ms=self._clock.wall_ms())
            if decided.leader == broker_id:
                self._fetchers.remove(topic_partition)
                self._roles[topic_partition] = self._leading(log, role, decided)
            else:
                before = role if isinstance(role, Follower) else None
                self._roles[topic_partition] = self._fetchers.follow(topic_partition, log, decided, before)
        if role is not None:
            self._on_change(topic_partition)

    def make_refused(self, is_wanted: Callable[[TopicPartition], bool]) -> bool:
        """Create the logs of refused roles that are still wanted; return whether this broker can take them now.

        Raises KafkaError.
        """
        self.refused = set(filter(is_wanted, self.refused))
        if not self.refused:
            return False
        with map_storage_errors(self._log_manager):
            self._log_manager.check_room()
            for topic_partition in self.refused:
                self._log_manager.get_or_create_log(topic_partition, now_ms=self._clock.wall_ms())
        self.refused.clear()
        return True

    def _leading(self, log: Log, role: Role | None, decided: PartitionState) -> Leading:
        """Lead from now on, or go on in the next epoch: then what is known of the followers stays.

        Between two epochs that do not follow each other another broker may have led, of which this one has not heard:
        then the followers may have truncated their logs (kafka 2.0.1 Partition.makeLeader counts them all the same).
        """
        # A log that has an epoch gets a newer one with its first append: that saves an fsync a log at the start.
        if log.leader_epochs.latest_epoch < 0:
            log.assign_leader_epoch(decided.leader_epoch)
        now_ms = self._clock.monotonic_ms() if len(decided.replicas) > 1 else 0
        before = role if isinstance(role, Leading) and role.leader_epoch + 1 == decided.leader_epoch else None
        leading = Leading(
            log,
            broker_id=self._config.broker_id,
            leadership=Leadership(decided.leader_epoch, decided.in_sync_replicas, decided.state_version),
            replicas=decided.replicas,
            max_lag_ms=self._config.replica_lag_time_max_ms,
            now_ms=now_ms,
            known={} if before is None else before.remote_replicas,
        )
        leading.maybe_increment_high_watermark(now_ms)
        return leading

    def _stop(self, topic_partition: TopicPartition, decision: StopReplica) -> None:
        """Stop serving a partition, if it is here. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        if self._roles.pop(topic_partition, None) is not None:
            self._fetchers.remove(topic_partition)
            self._on_change(topic_partition)
        if decision.delete_partitions:
            with map_storage_errors():
                self._log_manager.delete_log(topic_partition)
