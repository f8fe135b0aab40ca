"""Fetches records from one leader for some of the partitions that this broker follows, in one task.

    partitions that are due  -> their next requests (following.py): epoch ends, offsets, records
    epoch ends, offsets      one OffsetForLeaderEpoch or ListOffsets for all that ask
    records                  one Fetch for all others, which waits at the leader; in a session (follower_session.py)
    the answers              change the logs, on the loop; then each answered partition is due again

A partition whose leader answers an error, or whose log refuses the change, is due again after
replica.fetch.backoff.ms; the others go on. So is one that the throttle of this broker holds back. A partition that is
added ends the wait at the leader, so that it is fetched at once. As kafka 2.0.1 AbstractFetcherThread and
ReplicaFetcherThread, in their versions of the requests; but the fetch that begins a session does not wait, so that the
id of hardly any session is lost with its answer.

Tests hold partitions back (holds.py): one that is held is due, and not asked for; of one that is to lag, the leader's
end is asked for with each answer, and what is too new for it is fetched again, every `LAG_POLL_MS`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.flusher import LogFlusher
from minibroker.broker.replica.other_broker import OtherBroker
from minibroker.broker.replica.replication_quota import ReplicationQuota, names_replica
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.several.follower_session import FollowerSession
from minibroker.broker.wings.several.following import (
    Append,
    AskEpochEnd,
    AskOffset,
    AskRecords,
    Change,
    Following,
    StartAt,
    TruncateTo,
)
from minibroker.broker.wings.several.holds import Holds, cut
from minibroker.broker.wings.several.inter_broker_versions import inter_broker_versions
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_UNCOMMITTED
from minibroker.protocol.messages.fetch import FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record_batch import NO_LEADER_EPOCH
from minibroker.storage.data_dir.log_manager import LogManager
from minibroker.storage.files.storage_errors import map_storage_errors
from minibroker.storage.index.leader_epochs import EpochEndOffset
from minibroker.storage.log.log import Log

LAG_POLL_MS = 20
# While leaders change.
USUAL_ERRORS = frozenset({ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})

logger = logging.getLogger(__name__)

A = TypeVar("A", AskEpochEnd, AskOffset, AskRecords)


class Fetcher:
    """The partitions with one `number` that follow one leader.

    `connect` makes a connection to the leader, and raises ConnectionError while its address is unknown. `run` ends when
    `stop` was called, or once the log directory is offline: then `on_offline` is called. `on_progress` is called with a
    partition whose high watermark has moved.
    """

    def __init__(
        self,
        leader_id: int,
        number: int,
        *,
        connect: Callable[[], OtherBroker],
        config: KafkaConfig,
        clock: Clock,
        log_manager: LogManager,
        flusher: LogFlusher,
        holds: Holds,
        quota: ReplicationQuota,
        on_offline: Callable[[], None],
        on_progress: Callable[[TopicPartition], None],
    ) -> None:
        self.leader_id = leader_id
        self.number = number
        self.partitions: dict[TopicPartition, Following] = {}
        self._connect = connect
        self._leader: OtherBroker | None = None
        self._config = config
        self._versions = inter_broker_versions(config.inter_broker_protocol_version)
        self._clock = clock
        self._log_manager = log_manager
        self._flusher = flusher
        self._holds = holds
        self._quota = quota
        self._on_offline = on_offline
        self._on_progress = on_progress
        self._due: dict[TopicPartition, None] = {}
        self._retries: dict[TopicPartition, int] = {}  # with the times at which they are due
        self._epoch_ends: dict[TopicPartition, AskEpochEnd] = {}
        self._offsets: dict[TopicPartition, AskOffset] = {}
        self._session = FollowerSession()
        self._unflushed: list[Log] = []
        self._running = trio.CancelScope()
        self._waiting: trio.CancelScope | None = None  # for records, or for a partition that is due
        self._is_reached = True

    # -- partitions -------------------------------------------------------------------------------------------

    def add(self, topic_partition: TopicPartition, following: Following) -> None:
        """Fetch a partition from now on."""
        self.partitions[topic_partition] = following
        self._due[topic_partition] = None
        self._end_wait()

    def remove(self, topic_partition: TopicPartition) -> None:
        """Fetch a partition no more. An answer that is under way changes its log no more."""
        del self.partitions[topic_partition]
        self._due.pop(topic_partition, None)
        self._ask_no_more(topic_partition)

    def _ask_no_more(self, topic_partition: TopicPartition) -> None:
        self._retries.pop(topic_partition, None)
        self._epoch_ends.pop(topic_partition, None)
        self._offsets.pop(topic_partition, None)
        self._session.take(topic_partition)

    def obey_holds(self) -> None:
        """Ask for no partition that is held, and for all others: the holds have changed."""
        for topic_partition in self.partitions:
            self._ask_no_more(topic_partition)
            self._due[topic_partition] = None
        self._end_wait()

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def stop(self) -> None:
        self._running.cancel()

    # -- the task ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until `stop` is called."""
        try:
            with self._running:
                while not self._log_manager.is_offline:
                    await self._take_step()
                self._on_offline()
        finally:
            self._disconnect()

    async def _take_step(self) -> None:
        """Send one request for what is due, or wait until something is."""
        now_ms = self._clock.monotonic_ms()
        self._ask_for_due(now_ms)
        if self._epoch_ends:
            await self._ask_epoch_ends()
        elif self._offsets:
            await self._ask_offsets()
        elif not self._session.is_empty:
            await self._fetch()
        else:
            with trio.CancelScope() as self._waiting:
                first_ms: float = min(self._retries.values(), default=math.inf)
                await trio.sleep((first_ms - now_ms) / 1000)
            self._waiting = None
        await self._flush()

    async def _flush(self) -> None:
        """Fsync what flush.messages asks for: the next fetch lets the leader count it as replicated."""
        while self._unflushed:
            log = self._unflushed.pop()
            try:
                await self._flusher.flush(log).wait()
            except KafkaError as error:
                logger.warning("cannot flush %s: %s", log.topic_partition, error.message)

    def _ask_for_due(self, now_ms: int) -> None:
        """Take the next request of each partition that is due."""
        for topic_partition, due_ms in list(self._retries.items()):
            if due_ms <= now_ms:
                del self._retries[topic_partition]
                self._due[topic_partition] = None
        due, self._due = self._due, {}
        holds_back = self._quota.is_exceeded(now_ms)
        for topic_partition in due:
            hold = self._holds.of(topic_partition)
            if hold is not None and hold.is_whole:
                self._due[topic_partition] = None
                continue
            following = self.partitions[topic_partition]
            request = following.next_request()
            if isinstance(request, AskRecords):
                if holds_back and self._is_throttled(topic_partition, following.log) and not following.is_in_sync:
                    self._retry(topic_partition)
                    continue
                self._session.ask(topic_partition, request)
            elif isinstance(request, AskEpochEnd):
                self._epoch_ends[topic_partition] = request
            else:
                self._offsets[topic_partition] = request

    async def _ask(self, api_key: ApiKey, request: Any) -> Any:
        """Raises ConnectionError; the next request finds the leader where it is by then."""
        try:
            if self._leader is None:
                self._leader = self._connect()
            answer = await self._leader.ask(api_key, self._versions[api_key], request)
        except ConnectionError as error:
            self._disconnect()
            if self._is_reached:
                logger.warning("cannot fetch from broker %d: %s", self.leader_id, error)
            self._is_reached = False
            raise
        if not self._is_reached:
            logger.info("broker %d is reached again", self.leader_id)
        self._is_reached = True
        return answer

    def _disconnect(self) -> None:
        leader, self._leader = self._leader, None
        if leader is not None:
            leader.close()

    # -- requests ---------------------------------------------------------------------------------------------

    async def _ask_epoch_ends(self) -> None:
        asked, self._epoch_ends = self._epoch_ends, {}
        rows = [(each, (each.partition, NO_LEADER_EPOCH, ask.leader_epoch)) for each, ask in asked.items()]
        request = OffsetForLeaderEpochRequest(topics=by_topic(rows))
        await self._ask_once(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, asked, take_epoch_end)

    async def _ask_offsets(self) -> None:
        asked, self._offsets = self._offsets, {}
        rows = [
            (each, (each.partition, NO_LEADER_EPOCH, LATEST_TIMESTAMP if ask.is_end else EARLIEST_TIMESTAMP, 1))
            for each, ask in asked.items()
        ]
        request = ListOffsetsRequest(replica_id=self._config.broker_id, topics=by_topic(rows))
        await self._ask_once(ApiKey.LIST_OFFSETS, request, asked, take_offset)

    async def _ask_once(
        self,
        api_key: ApiKey,
        request: Any,
        asked: dict[TopicPartition, A],
        change_of: Callable[[Following, A, Any], Change | None],
    ) -> None:
        try:
            rows = rows_of(await self._ask(api_key, request))
        except ConnectionError:
            rows = []
        for topic_partition, row in rows:
            ask = asked.pop(topic_partition, None)
            if ask is not None:
                self._take_row(topic_partition, ask, row, change_of)
        for topic_partition in asked:
            self._retry(topic_partition)

    async def _fetch(self) -> None:
        session, config = self._session, self._config
        fetch = session.next_fetch()
        max_bytes = config.replica_fetch_max_bytes
        rows = [
            (
                each,
                (each.partition, NO_LEADER_EPOCH, ask.fetch_offset, NO_LEADER_EPOCH, ask.log_start_offset, max_bytes),
            )
            for each, ask in fetch.asked
        ]
        request = FetchRequest(
            replica_id=config.broker_id,
            max_wait_ms=self._max_wait_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            isolation_level=READ_UNCOMMITTED,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
            topics=by_topic(rows),
            forgotten_topics=by_topic([(each, each.partition) for each in fetch.forgotten]),
        )
        answer = None
        try:
            with trio.CancelScope() as waiting:
                if request.max_wait_ms:
                    self._waiting = waiting
                answer = await self._ask(ApiKey.FETCH, request)
        except ConnectionError:
            self._retry_all()
        self._waiting = None
        if answer is None:
            session.begin_anew()
            return
        error = error_of(answer.error_code)
        answered = rows_of(answer)
        if not session.on_answer(error, answer.session_id, {topic_partition for topic_partition, _ in answered}):
            if not fetch.epoch:
                self._retry_all()  # an error of the whole that no session explains
            return
        lagging = [each for each, row in answered if row.records and self._holds.of(each) is not None]
        leader_ends = await self._ask_leader_ends(lagging) if lagging else {}
        # Those with records are asked for last the next time: a full answer may have no room for all.
        for topic_partition, row in sorted(answered, key=has_records):
            ask = session.take(topic_partition)
            if ask is None:
                continue
            hold = self._holds.of(topic_partition) if row.records else None
            if hold is None:
                self._take_row(topic_partition, ask, row, take_records)
                continue
            leader_end = leader_ends.get(topic_partition, ask.fetch_offset)
            end_offset = hold.end_of(topic_partition, leader_end, self._clock.monotonic_ms())
            self._take_row(topic_partition, ask, row, partial(take_records, end_offset=end_offset))
            if self._due.pop(topic_partition, 0) is None:
                self._retry(topic_partition, LAG_POLL_MS)

    def _max_wait_ms(self) -> int:
        """How long the leader may wait; a partition that is to lag does not wait for records of others."""
        if self._session.begins:
            return 0
        max_wait_ms = self._config.replica_fetch_wait_max_ms
        if not self._retries or not self._holds.are_any:
            return max_wait_ms
        return max(0, min(max_wait_ms, min(self._retries.values()) - self._clock.monotonic_ms()))

    async def _ask_leader_ends(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the leader's logs end; of partitions that it does not serve, nothing."""
        rows = [(each, (each.partition, NO_LEADER_EPOCH, LATEST_TIMESTAMP, 1)) for each in topic_partitions]
        request = ListOffsetsRequest(replica_id=self._config.broker_id, topics=by_topic(rows))
        try:
            answer = await self._ask(ApiKey.LIST_OFFSETS, request)
        except ConnectionError:
            return {}
        return {each: row.offset for each, row in rows_of(answer) if row.error_code == ErrorCode.NONE}

    # -- answers ----------------------------------------------------------------------------------------------

    def _take_row(
        self, topic_partition: TopicPartition, ask: A, row: Any, change_of: Callable[[Following, A, Any], Change | None]
    ) -> None:
        """Take the answer to a partition's request, and let the partition ask again, at once or later."""
        following = self.partitions.get(topic_partition)
        if following is None:
            return
        error = error_of(row.error_code)
        if error is not ErrorCode.NONE:
            if following.on_error(ask, error):
                self._due[topic_partition] = None
                return
            level = logging.INFO if error in USUAL_ERRORS else logging.WARNING
            logger.log(level, "broker %d does not serve %s: %s", self.leader_id, topic_partition, error.name)
            self._retry(topic_partition)
            return
        try:
            with map_storage_errors(self._log_manager):
                self._perform(following.log, change_of(following, ask, row))
        except KafkaError as failed:
            logger.warning("cannot follow broker %d in %s: %s", self.leader_id, topic_partition, failed.message)
        except Exception:  # one partition must not end the others
            logger.exception("cannot follow broker %d in %s: a defect", self.leader_id, topic_partition)
        else:
            self._due[topic_partition] = None
            return
        following.begin_anew()
        self._retry(topic_partition)

    def _perform(self, log: Log, change: Change | None) -> None:
        """Change a log. Raises KafkaError and OSError."""
        now_ms = self._clock.wall_ms()
        if isinstance(change, Append):
            if change.records:
                log.append_as_follower(change.records, now_ms=now_ms)
                if self._quota.limit is not None and self._is_throttled(log.topic_partition, log):
                    self._quota.record(len(change.records), self._clock.monotonic_ms())
                if log.is_flush_due:
                    self._unflushed.append(log)
            before = log.high_watermark
            log.update_high_watermark(change.high_watermark)
            if log.high_watermark != before:
                self._on_progress(log.topic_partition)
            if change.log_start_offset > log.log_start_offset:
                log.maybe_increment_log_start_offset(min(change.log_start_offset, log.log_end_offset))
        elif isinstance(change, TruncateTo):
            self._log_manager.truncate_log(log, change.offset, now_ms=now_ms)
        elif isinstance(change, StartAt):
            self._log_manager.begin_log_anew(log, change.offset, now_ms=now_ms)

    def _is_throttled(self, topic_partition: TopicPartition, log: Log) -> bool:
        replicas = log.config.follower_replication_throttled_replicas
        return names_replica(replicas, topic_partition.partition, self._config.broker_id)

    def _retry(self, topic_partition: TopicPartition, after_ms: int | None = None) -> None:
        """Let a partition ask again after a while, without `after_ms` the back-off."""
        if topic_partition in self.partitions and topic_partition not in self._due:
            if after_ms is None:
                after_ms = self._config.replica_fetch_backoff_ms
            self._retries[topic_partition] = self._clock.monotonic_ms() + after_ms

    def _retry_all(self) -> None:
        for topic_partition, _ in self._session.take_all():
            self._retry(topic_partition)


def take_epoch_end(following: Following, ask: AskEpochEnd, row: Any) -> Change | None:
    return following.on_epoch_end(ask, EpochEndOffset(row.leader_epoch, row.end_offset))


def take_offset(following: Following, ask: AskOffset, row: Any) -> Change | None:
    return following.on_offset(ask, row.offset)


def take_records(following: Following, ask: AskRecords, row: Any, *, end_offset: int | None = None) -> Change | None:
    """Take only the batches that end before `end_offset`, if it is given. Raises KafkaError."""
    records = row.records if end_offset is None else cut(row.records, end_offset)
    return following.on_records(ask, records, high_watermark=row.high_watermark, log_start_offset=row.log_start_offset)


def error_of(code: int) -> ErrorCode:
    """The error of a leader, which may be of a later release."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def has_records(answered: tuple[TopicPartition, Any]) -> bool:
    return bool(answered[1].records)


def by_topic(rows: Sequence[tuple[TopicPartition, Any]]) -> list[tuple[str, list[Any]]]:
    """Group the rows of a request; their order stays, so a topic may come twice."""
    topics: list[tuple[str, list[Any]]] = []
    for topic_partition, row in rows:
        if not topics or topics[-1][0] != topic_partition.topic:
            topics.append((topic_partition.topic, []))
        topics[-1][1].append(row)
    return topics


def rows_of(answer: Any) -> list[tuple[TopicPartition, Any]]:
    return [(TopicPartition(topic.topic, row.partition), row) for topic in answer.topics for row in topic.partitions]
