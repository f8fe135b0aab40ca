"""The role of a follower in one partition: what it asks its leader next, and what an answer means for its log.

    state              asks the leader for          and, with the answer, goes to
    TRUNCATING         the end of its newest epoch  FETCHING; TRUNCATING if the leader names an epoch it lacks
    FETCHING           records from its log end on  FETCHING; LOOKING_FOR_END on OFFSET_OUT_OF_RANGE
    LOOKING_FOR_END    the leader's log end offset  FETCHING, if its own log is longer; else LOOKING_FOR_START
    LOOKING_FOR_START  the leader's log start       FETCHING

An error of the leader, or of an append, keeps the state: the fetcher lets the partition ask again later, and goes on
with its others. A new leader, or an epoch that skips one, begins with TRUNCATING.

Pure: an answer becomes a `Change` of the log, which the caller performs before it asks for the next request. The offset
to fetch is the end of the log, so it is never kept twice. An answer to a request that is not the last one is stale, and
changes nothing. As kafka 2.0.1 AbstractFetcherThread, ReplicaFetcherThread and Partition.makeFollower.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from minibroker.broker.replica.follower import Follower
from minibroker.protocol.errors import ErrorCode
from minibroker.storage.index.leader_epochs import UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET, EpochEndOffset
from minibroker.storage.log.log import Log
from minibroker.storage.log.log_validator import Buffer


class State(Enum):
    TRUNCATING = auto()
    FETCHING = auto()
    LOOKING_FOR_END = auto()
    LOOKING_FOR_START = auto()


class AskEpochEnd(NamedTuple):
    """OffsetForLeaderEpoch; -1 for a log without epochs."""

    leader_epoch: int


class AskRecords(NamedTuple):
    """Fetch, with the log start offset of the follower."""

    fetch_offset: int
    log_start_offset: int


class AskOffset(NamedTuple):
    """ListOffsets: the leader's log end offset, or its log start offset."""

    is_end: bool


Request = AskEpochEnd | AskRecords | AskOffset


class TruncateTo(NamedTuple):
    """Cut everything from the offset on; at the log's end or beyond, only the epochs that wrote nothing."""

    offset: int


class StartAt(NamedTuple):
    """Drop the whole log, and begin at the offset."""

    offset: int


class Append(NamedTuple):
    """Append the leader's batches as they are; then the high watermark and the log start move up to these."""

    records: Buffer
    high_watermark: int  # of the leader; the log's own is at most its end
    log_start_offset: int


Change = TruncateTo | StartAt | Append


class Following(Follower):
    """A follower of `leader_id` in its `leader_epoch`."""

    def __init__(self, log: Log, *, leader_id: int, leader_epoch: int) -> None:
        super().__init__(log, leader_id=leader_id, leader_epoch=leader_epoch)
        self.begin_anew()

    def begin_anew(self) -> None:
        """Look first where the logs differ; also after a change of the log that has failed."""
        self.state = State.TRUNCATING
        self._asked: Request | None = None
        self._leaders_high_watermark: int | None = None

    @property
    def is_in_sync(self) -> bool:
        """Whether this log had reached the high watermark of the leader's last answer."""
        return self._leaders_high_watermark is not None and self.log.log_end_offset >= self._leaders_high_watermark

    def follow(self, leader_id: int, leader_epoch: int) -> bool:
        """Follow in a newer epoch; return whether that begins anew, with TRUNCATING.

        The same leader in the next epoch is the one that is followed: the controller has removed a replica from the
        in-sync ones, for example. As kafka 2.0.1 Partition.makeFollower.
        """
        is_same_term = leader_id == self.leader_id and leader_epoch - self.leader_epoch in (0, 1)
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        if not is_same_term:
            self.begin_anew()
        return not is_same_term

    def next_request(self) -> Request:
        """Return what to ask the leader now."""
        log, state = self.log, self.state
        request: Request
        if state is State.FETCHING:
            request = AskRecords(log.log_end_offset, log.log_start_offset)
        elif state is State.TRUNCATING:
            request = AskEpochEnd(log.leader_epochs.latest_epoch)
        else:
            request = AskOffset(state is State.LOOKING_FOR_END)
        self._asked = request
        return request

    def on_error(self, request: Request, error: ErrorCode) -> bool:
        """Take the leader's error. Return whether to ask on at once: for an offset in range."""
        is_out_of_range = error == ErrorCode.OFFSET_OUT_OF_RANGE and self.state is State.FETCHING
        if not self._is_answered(request) or not is_out_of_range:
            return False
        self.state = State.LOOKING_FOR_END
        return True

    def on_epoch_end(self, request: AskEpochEnd, leader_end: EpochEndOffset) -> TruncateTo | None:
        """Take the leader's newest epoch up to the requested one, and its end; truncate where the logs may differ.

        As kafka 2.0.1 AbstractFetcherThread.getOffsetTruncationState:

            the leader's answer                         truncate to               then
            (-1, -1): it knows no such epoch            the high watermark        fetch
            an epoch of -1, by a leader before 2.0      the leader's end          fetch
            an epoch after all of this log              the leader's end          fetch
            an epoch that this log does not have        the end of the one before ask again
            an epoch of both logs                       the lesser end            fetch
        """
        if not self._is_answered(request):
            return None
        log, own_end = self.log, self.log.log_end_offset
        self.state = State.FETCHING
        if leader_end.end_offset == UNDEFINED_EPOCH_OFFSET:
            return TruncateTo(log.high_watermark)
        if leader_end.epoch == UNDEFINED_EPOCH:
            return TruncateTo(min(leader_end.end_offset, own_end))
        own = log.leader_epochs.end_offset_for(leader_end.epoch, own_end)
        if own.end_offset == UNDEFINED_EPOCH_OFFSET:
            return TruncateTo(min(leader_end.end_offset, own_end))
        if own.epoch != leader_end.epoch:
            self.state = State.TRUNCATING
            return TruncateTo(min(own.end_offset, own_end))
        return TruncateTo(min(own.end_offset, leader_end.end_offset, own_end))

    def on_records(
        self, request: AskRecords, records: Buffer, *, high_watermark: int, log_start_offset: int
    ) -> Append | None:
        """Take the leader's records, which follow the end of the log."""
        if not self._is_answered(request):
            return None
        self._leaders_high_watermark = high_watermark
        return Append(records, high_watermark, log_start_offset)

    def on_offset(self, request: AskOffset, offset: int) -> TruncateTo | StartAt | None:
        """Take the leader's log end or log start offset, after a fetch out of its range.

        A log that is longer than the leader's ends where that ends: it has lost records, as an unclean election may.
        One that ends before the leader's start begins anew there. As kafka 2.0.1
        ReplicaFetcherThread.handleOffsetOutOfRange.
        """
        if not self._is_answered(request):
            return None
        own_end = self.log.log_end_offset
        if request.is_end and offset >= own_end:
            self.state = State.LOOKING_FOR_START
            return None
        self.state = State.FETCHING
        if request.is_end:
            return TruncateTo(offset)
        return StartAt(offset) if offset > own_end else None

    def _is_answered(self, request: Request) -> bool:
        is_last = request is self._asked
        self._asked = None if is_last else self._asked
        return is_last
