"""Asks the broker that leads a partition, which may be this one: for the state of a partition that is shared, for the
end of a log, to take dead letters. Asks again until there is an answer, or the time is over.

As kafka 4.4 DefaultStatePersister: the state of a partition is kept by the leader of the partition of
`__share_group_state` that its key has. Each request may arrive twice, and changes the same then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from minibroker.broker.cluster.metadata_cache import SHARE_STATE_TOPIC, MetadataCache
from minibroker.broker.pending import Pending, then
from minibroker.broker.replica.coordinator_log import partition_of_name
from minibroker.broker.replica.other_broker import ConnectTo, Failed, Question, Questions, Row
from minibroker.broker.replica.replica_manager import ReplicaManager
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.share.states import Key, Outcome, ShareStates
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode, known_error
from minibroker.protocol.primitives import TopicPartition
from minibroker.purgatory.timing_wheel import Timer

PATIENCE_MS = 30_000
HASTE_MS = 5000  # of a request that the client soon repeats
PRODUCE_VERSION = 9  # topics by name


class Asking(Questions):
    """Asks this broker and the others."""

    def __init__(
        self,
        connect_to: ConnectTo,
        *,
        broker_id: int,
        states: ShareStates,
        replicas: ReplicaManager,
        topics: MetadataCache,
        clock: Clock,
        timer: Timer,
    ) -> None:
        super().__init__(
            connect_to, client_id=f"broker-{broker_id}-share", broker_id=broker_id, clock=clock, timer=timer
        )
        self._states = states
        self._replicas = replicas
        self._topics = topics
        self._on_changed: list[Callable[[Key], object]] = []

    def when_changed(self, call: Callable[[Key], object]) -> None:
        """Call with a state that is to begin anew, or to be deleted, from now on."""
        self._on_changed.append(call)

    def state(self, api_key: ApiKey, key: Key, *, patience_ms: int = PATIENCE_MS, **fields: Any) -> Row | Pending[Row]:
        """Ask for a state, or change it, by one of the APIs 83 to 87; `fields` are those of the partition."""
        api = API_TABLE[api_key]
        asked = api.request.row("topics.partitions")(partition=key.partition, **fields)
        request = api.request(group_id=key.group_id, topics=[(key.topic_id, [asked])])
        here = partial(self._states.serve, api_key, key, asked)
        question = Question(partial(self._keeper_of, key), here, api_key, api.versions[1], request, "results")
        return self.put(question, patience_ms)

    def begin(self, key: Key, state_epoch: int, start_offset: int) -> Outcome:
        """Begin a state, or begin it anew at a start offset."""
        for call in self._on_changed:
            call(key)
        api_key = ApiKey.INITIALIZE_SHARE_GROUP_STATE
        fields = {"state_epoch": state_epoch, "start_offset": start_offset}
        return then(self.state(api_key, key, patience_ms=HASTE_MS, **fields), error_of)

    def delete(self, key: Key) -> Outcome:
        """Delete a state."""
        for call in self._on_changed:
            call(key)
        return then(self.state(ApiKey.DELETE_SHARE_GROUP_STATE, key, patience_ms=HASTE_MS), error_of)

    def _keeper_of(self, key: Key) -> int | None:
        count = self._topics.partition_count(SHARE_STATE_TOPIC)
        if count is None:
            return None
        return self._topics.leader_of(TopicPartition(SHARE_STATE_TOPIC, partition_of_name(str(key), count)))

    def end_offset(self, topic_partition: TopicPartition) -> int | Pending[int]:
        """The high watermark of a partition; -1 if its leader does not answer soon."""
        request = API_TABLE[ApiKey.LIST_OFFSETS].request
        row = request.row("topics.partitions")(partition=topic_partition.partition, timestamp=-1)
        question = Question(
            partial(self._topics.leader_of, topic_partition),
            lambda: Failed(ErrorCode.NONE, offset=self._replicas.partitions.led(topic_partition).log.high_watermark),
            ApiKey.LIST_OFFSETS,
            API_TABLE[ApiKey.LIST_OFFSETS].versions[1],
            request(replica_id=-1, topics=[(topic_partition.topic, [row])]),
            "topics",
        )
        answer = self.put(question, HASTE_MS)
        return then(answer, lambda row: -1 if row.error_code else row.offset)

    def produce(self, topic_partition: TopicPartition, records: bytes) -> Outcome:
        """Append records of this broker to a partition, in all in-sync replicas."""

        def here() -> Row | Pending[Row]:
            appended = self._replicas.append(
                {topic_partition: memoryview(bytearray(records))},
                required_acks=-1,
                timeout_ms=HASTE_MS,
                is_from_client=False,
            )
            return then(appended, lambda results: Failed(results[topic_partition].error))

        topics = [(topic_partition.topic, [(topic_partition.partition, records)])]
        question = Question(
            partial(self._topics.leader_of, topic_partition),
            here,
            ApiKey.PRODUCE,
            PRODUCE_VERSION,
            API_TABLE[ApiKey.PRODUCE].request(acks=-1, timeout_ms=HASTE_MS, topics=topics),
            "topics",
        )
        return then(self.put(question, PATIENCE_MS), error_of)


def error_of(row: Row) -> ErrorCode:
    return known_error(row.error_code)
