"""Share groups as a kind of group: heartbeats, by which members join, stay, get their assignment, and leave.

As kafka 4.4 GroupMetadataManager.shareGroupHeartbeat. A first heartbeat waits for the states of its partitions, and is
answered with these partitions; 4.4 answers the next one with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.coordinator import GroupCoordinator
from minibroker.broker.group.group_configs import (
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
    GroupConfigs,
)
from minibroker.broker.group.group_kind import LeaveAnswer, LoadedGroups
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.group.member import JoinResult, MemberIdentity, SyncResult
from minibroker.broker.group.member_timers import MemberTimers
from minibroker.broker.group.membership import JoinRequest, SyncRequest
from minibroker.broker.group.offsets import Commit
from minibroker.broker.pending import Pending, gather, then
from minibroker.broker.replica.coordinator_log import Contents
from minibroker.broker.time.clock import Clock
from minibroker.broker.wings.share.asking import Asking
from minibroker.broker.wings.share.assignor import assign
from minibroker.broker.wings.share.group import (
    NOTHING,
    GroupRecord,
    ShareGroup,
    ShareMember,
    rows_of,
)
from minibroker.broker.wings.share.partition import NO_OFFSET
from minibroker.broker.wings.share.states import Key, Outcome
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.group_records import group_key
from minibroker.protocol.message_values import CLASSIC, LEAVE_EPOCH, NEW_EPOCH, SHARE
from minibroker.protocol.record import Record
from minibroker.protocol.share_group_records import GROUP_RECORDS, ShareRecordType
from minibroker.purgatory.timing_wheel import Timer

logger = logging.getLogger(__name__)

ASSIGNOR = "simple"
MOST_MEMBER_ID_CHARACTERS = 36  # those of a UUID
RECORDS_SHOWN = 32  # runs of records in flight, of a group that is explained
RETRY_MS = 500  # after the end of a session that could not be stored


class HeartbeatRequest(NamedTuple):
    """A ShareGroupHeartbeat. What is None is as in the member's last one."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    topic_names: Sequence[str] | None
    client_id: str
    client_host: str


class HeartbeatResult(NamedTuple):
    """The answer. `assignment` is None if it is as before."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: list[tuple[bytes, list[int]]] | None = None


class ShareGroups:
    """Serves share groups. A GroupKind.

    `prepare` is called before a member joins. Raises KafkaError to refuse it.
    `on_fenced` is told of members whose session has ended, by group and member id.
    `records_of` has the records in flight of a group, for those who look.
    """

    name: str = SHARE
    goes_with_its_offsets: bool = False
    has_offsets: bool = False
    expires: bool = False

    def __init__(
        self,
        coordinator: GroupCoordinator,
        topics: GroupTopics,
        *,
        config: KafkaConfig,
        configs: GroupConfigs,
        clock: Clock,
        timer: Timer,
        prepare: Callable[[], object],
        on_fenced: Callable[[str, str], None],
        asking: Asking,
        records_of: Callable[[str], Iterable[tuple[Any, ...]]],
    ) -> None:
        self.topics = topics
        self._groups = coordinator.cache
        self._store = coordinator.store
        self._classic = coordinator.classic
        self._config = config
        self._configs = configs
        self._clock = clock
        self._timers = MemberTimers(timer, clock)
        self._prepare = prepare
        self._on_fenced = on_fenced
        self._asking = asking
        self._records_of = records_of

    # -- heartbeats -------------------------------------------------------------------------------------------

    def beat(self, request: HeartbeatRequest) -> HeartbeatResult | Pending[HeartbeatResult]:
        """Take a heartbeat. Raises KafkaError."""
        check(request)
        refusal = self._groups.check(request.group_id)
        if refusal is not ErrorCode.NONE:
            raise KafkaError(refusal)
        if request.member_epoch == LEAVE_EPOCH:
            group = self._existing(request.group_id, "Group")
            member = known(group, request.member_id)
            outcome = self._remove(group, member, "it leaves")
            return then(outcome, partial(answered, HeartbeatResult(member.member_id, LEAVE_EPOCH)))
        return self._stay(request)

    def _existing(self, group_id: str, what: str = "Share group") -> ShareGroup:
        group = self._groups.find(ShareGroup, group_id)
        if group is None:
            found = self._groups.get(group_id)
            why = f"{what} {group_id} not found." if found is None else f"Group {group_id} is not a share group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def _group_for(self, request: HeartbeatRequest) -> tuple[ShareGroup, list[Contents]]:
        """The group; a new one for its first member, in place of an empty classic one, with its tombstone."""
        if request.member_epoch != NEW_EPOCH:
            return self._existing(request.group_id), []
        group = self._groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            return group, []
        if group is None:
            return ShareGroup(request.group_id), []
        if group.kind != CLASSIC or not group.is_empty:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
        return ShareGroup(request.group_id, group.offsets), [(group_key(request.group_id), None, ())]

    def _stay(
        self, request: HeartbeatRequest, begun: Mapping[Key, ErrorCode] | None = None
    ) -> HeartbeatResult | Pending[HeartbeatResult]:
        """Answer a heartbeat. `begun` are the states that were begun for it."""
        before, contents = self._group_for(request)
        draft = Draft(before.copy(), contents)
        group, member_id = draft.group, request.member_id
        old = group.members.get(member_id)
        if old is None:
            if request.member_epoch != NEW_EPOCH:
                raise unknown_member(member_id, group.group_id)
            most = self._config.group_share_max_size
            if len(group.members) >= most:
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {most} members.",
                )
            self._prepare()
            old = ShareMember(member_id)
        check_epoch(old, request.member_epoch)
        names = old.topic_names if request.topic_names is None else frozenset(request.topic_names)
        rack_id = old.rack_id if request.rack_id is None else request.rack_id
        member = old._replace(
            rack_id=rack_id, client_id=request.client_id, client_host=request.client_host, topic_names=names
        )
        if member != old:
            draft.put(group.member_record(member))
        missing = self._without_state(group)
        if missing and begun is None:
            outcomes = {key: self._asking.begin(key, group.epoch + 1, NO_OFFSET) for key in missing}
            return then(gather(outcomes), partial(self._stay, request))
        made = [key for key in missing if begun is not None and begun.get(key) is ErrorCode.NONE]
        if made:
            draft.put(group.initialized_record(self._with(group, made)))
        self._refresh(draft, is_forced=bool(made) or names != old.topic_names)
        if group.assignment_epoch < group.epoch:
            self._assign(draft)
        target = group.targets.get(member_id, NOTHING)
        if (member.member_epoch, member.assigned) != (group.assignment_epoch, target):
            member = member._replace(
                member_epoch=group.assignment_epoch, previous_member_epoch=member.member_epoch, assigned=target
            )
            draft.put(group.assignment_record(member))
        outcome = self._commit(draft)
        check_appended(outcome)
        if member_id not in before.members:
            logger.info("group %s: member %s joins", group.group_id, member_id)
        self._keep_alive(group.group_id, member_id)
        is_told = request.topic_names is not None or member.assigned != old.assigned
        interval_ms = self._configs.value(group.group_id, SHARE_HEARTBEAT_INTERVAL_MS)
        assignment = rows_of(member.assigned) if is_told else None
        result = HeartbeatResult(member_id, member.member_epoch, interval_ms, assignment)
        return then(outcome, partial(answered, result))

    def _refresh(self, draft: Draft, *, is_forced: bool) -> None:
        """Begin a new epoch, if that is asked for or the topics that the members subscribe to have changed."""
        group = draft.group
        metadata_hash = self.topics.hash_of(group.topics)
        if is_forced or metadata_hash != group.metadata_hash:
            draft.put(group.epoch_record(group.epoch + 1, metadata_hash))

    def _assign(self, draft: Draft) -> None:
        group = draft.group
        subscribed = {each.member_id: self.topics.ids_of(each.topic_names) for each in group.members.values()}
        topic_ids = frozenset[bytes]().union(*subscribed.values())
        numbers = {each: self._partitions_of(each) & group.numbers_of(each) for each in topic_ids}
        for member_id, target in assign(subscribed, numbers, group.targets).items():
            if group.targets.get(member_id) != target:
                draft.put(group.target_of_member_record(member_id, target))
        draft.put(group.target_record(group.epoch, self._clock.wall_ms()))

    def _partitions_of(self, topic_id: bytes) -> frozenset[int]:
        return frozenset(range(self.topics.partition_count(topic_id)))

    def _without_state(self, group: ShareGroup) -> list[Key]:
        """The partitions to read that have no state yet."""
        return [
            Key(group.group_id, topic_id, number)
            for topic_id in self.topics.ids_of(group.topics)
            for number in sorted(self._partitions_of(topic_id) - group.numbers_of(topic_id))
        ]

    def _with(self, group: ShareGroup, keys: Iterable[Key]) -> dict[bytes, tuple[str, frozenset[int]]]:
        """The partitions of a group that have state, and these."""
        initialized = dict(group.initialized)
        for _, topic_id, number in keys:
            name = self.topics.name_of(topic_id)
            if name is not None:
                initialized[topic_id] = name, initialized.get(topic_id, (name, frozenset()))[1] | {number}
        return initialized

    def _commit(self, draft: Draft) -> Outcome:
        """Append the draft's records, and have its group take the place of the one before."""
        if not draft.contents:
            return ErrorCode.NONE
        outcome = self._store.append(draft.group.group_id, draft.contents)
        if outcome is ErrorCode.NONE or isinstance(outcome, Pending):
            self._groups.replace(draft.group)
        return outcome

    def _keep_alive(self, group_id: str, member_id: str) -> None:
        timeout_ms = self._configs.value(group_id, SHARE_SESSION_TIMEOUT_MS)
        self._timers.keep_alive(group_id, member_id, timeout_ms, partial(self._fence, group_id, member_id))

    def _fence(self, group_id: str, member_id: str) -> None:
        """Remove a member whose session has ended; try again if that cannot be stored."""
        group = self._groups.find(ShareGroup, group_id)
        if group is None or member_id not in group.members:
            return

        def on_stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("group %s: cannot store the removal of %s: %s", group_id, member_id, error.name)
                self._timers.keep_alive(group_id, member_id, RETRY_MS, partial(self._fence, group_id, member_id))
            else:
                self._on_fenced(group_id, member_id)

        then(self._remove(group, group.members[member_id], "its session has ended"), on_stored)

    def _remove(self, group: ShareGroup, member: ShareMember, why: str) -> Outcome:
        draft = Draft(group.copy())
        draft.put(*group.member_tombstones(member.member_id))
        self._refresh(draft, is_forced=True)
        if not draft.group.members:
            draft.put(draft.group.target_record(draft.group.epoch, 0))
        outcome = self._commit(draft)
        if outcome is ErrorCode.NONE or isinstance(outcome, Pending):
            logger.info("group %s: member %s is removed: %s", group.group_id, member.member_id, why)
            self._timers.cancel_all(group.group_id, member.member_id)
        return outcome

    # -- for administrators, and those who look ---------------------------------------------------------------

    def described(self, group_id: str) -> ShareGroup:
        """A group, for ShareGroupDescribe. Raises KafkaError."""
        return self._groups.described(ShareGroup, group_id, "a share group")

    def without_members(self, group_id: str, *, makes: bool = False) -> ShareGroup:
        """A group without members, whose offsets may be changed; with `makes` a new one if there is none.

        Raises KafkaError.
        """
        if makes and self._groups.get(group_id) is None and self._groups.check(group_id) is ErrorCode.NONE:
            self._prepare()
            draft = Draft(ShareGroup(group_id))
            draft.put(draft.group.epoch_record(draft.group.epoch, 0))
            check_appended(self._commit(draft))
        group = self.described(group_id)
        if not group.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
        return group

    def find(self, group_id: str) -> ShareGroup | None:
        return self._groups.find(ShareGroup, group_id)

    def add_initialized(self, group_id: str, keys: Iterable[Key]) -> Outcome:
        """Note that these partitions have state."""
        group = self.described(group_id)
        return self._initialize(group, self._with(group, keys))

    def delete_states(
        self, group_id: str, topic_ids: Iterable[bytes]
    ) -> dict[bytes, ErrorCode] | Pending[dict[bytes, ErrorCode]]:
        """Delete the states of these topics; return the error of each."""
        group = self.described(group_id)
        keys = [Key(group_id, topic_id, each) for topic_id in topic_ids for each in sorted(group.numbers_of(topic_id))]

        def note(errors: Mapping[Key, ErrorCode]) -> dict[bytes, ErrorCode]:
            failed = {key.topic_id: error for key, error in errors.items() if error is not ErrorCode.NONE}
            group = self.described(group_id)
            left = {each: row for each, row in group.initialized.items() if each not in topic_ids or each in failed}
            self._initialize(group, left)
            return {each: failed.get(each, ErrorCode.NONE) for each in topic_ids}

        return then(gather({key: self._asking.delete(key) for key in keys}), note)

    def _initialize(self, group: ShareGroup, initialized: Mapping[bytes, tuple[str, frozenset[int]]]) -> Outcome:
        if initialized == group.initialized:
            return ErrorCode.NONE
        draft = Draft(group.copy())
        draft.put(group.initialized_record(initialized))
        return self._commit(draft)

    def assignor_of(self, group: ShareGroup) -> str:
        """The only assignor."""
        return ASSIGNOR

    def progress_of(self, group: ShareGroup, member_id: str) -> tuple[Any, ...]:
        """A member's epoch, and the first records in flight; it has its assignment whole."""
        member = group.members.get(member_id)
        records = tuple(islice(self._records_of(group.group_id), RECORDS_SHOWN))
        return None if member is None else member.member_epoch, (), (), records

    # -- requests of the classic protocol, and offsets, which share groups do not have ----------------------

    def join(self, request: JoinRequest) -> JoinResult | Pending[JoinResult]:
        """Refuse: a share group stays one."""
        return JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)

    def sync(self, request: SyncRequest) -> SyncResult:
        """Refuse: no member of it speaks this protocol."""
        return SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)

    def heartbeat(self, group_id: str, identity: MemberIdentity, *, keeps_while_syncing: bool = False) -> ErrorCode:
        """Refuse, likewise."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(self, group_id: str, leaving: Sequence[MemberIdentity]) -> LeaveAnswer:
        """Refuse each."""
        return ErrorCode.NONE, [(each, ErrorCode.UNKNOWN_MEMBER_ID) for each in leaving]

    def refuse_commit(self, group: ShareGroup, commit: Commit, *, has_member_epochs: bool) -> ErrorCode:
        """Return why nobody may commit."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def refuse_transactional_commit(self, group: ShareGroup, commit: Commit) -> ErrorCode:
        """Return why nobody may commit."""
        return ErrorCode.UNKNOWN_MEMBER_ID

    def refuse_fetch(self, group: ShareGroup, member_id: str | None, epoch: int) -> ErrorCode:
        """Return NONE: there are no offsets to read."""
        return ErrorCode.NONE

    # -- the log ----------------------------------------------------------------------------------------------

    def read(self, record: Record, loaded: LoadedGroups) -> bool:
        """Take a record of a group; that of the group itself is the last of its tombstones."""
        found = GROUP_RECORDS.read(record)
        if found is None:
            return False
        group_id, name = (*found.names, "")[:2]
        group = loaded.other(group_id, None if found.value is None else ShareGroup)
        if isinstance(group, ShareGroup):
            group.apply(GroupRecord(ShareRecordType(found.type), group_id, name, found.value))
            if group.is_dead:
                loaded.drop_other(group_id)
        return True

    def begin(self, group: ShareGroup) -> None:
        """Coordinate a group that was loaded: the sessions of its members begin anew."""
        self._groups.replace(group)
        for member_id in group.members:
            self._keep_alive(group.group_id, member_id)

    def end(self, group: ShareGroup) -> None:
        """Forget the deadlines of a group that is no longer coordinated here."""
        for member_id in group.members:
            self._timers.cancel_all(group.group_id, member_id)

    def empty(self, group: ShareGroup) -> Outcome:
        """Delete the states of a group that is to be deleted."""
        deleted = self.delete_states(group.group_id, list(group.initialized))
        return then(deleted, lambda errors: max(errors.values(), default=ErrorCode.NONE))

    def tombstones(self, group: ShareGroup) -> Sequence[Contents]:
        """The records that delete a group."""
        return [each.contents for each in group.tombstones()]


class Draft:
    """A change of a group that is being made: `group` with it, and what is to be appended."""

    def __init__(self, group: ShareGroup, contents: Iterable[Contents] = ()) -> None:
        self.group = group
        self.contents: list[Contents] = list(contents)

    def put(self, *records: GroupRecord) -> None:
        for record in records:
            self.group.apply(record)
            self.contents.append(record.contents)


def check(request: HeartbeatRequest) -> None:
    """As kafka 4.4 GroupCoordinatorService.throwIfShareGroupHeartbeatRequestIsInvalid."""
    problem = None
    if not request.member_id.strip() or len(request.member_id) > MOST_MEMBER_ID_CHARACTERS:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif request.member_epoch == NEW_EPOCH and not request.topic_names:
        problem = "SubscribedTopicNames must be set in first request."
    elif request.member_epoch < LEAVE_EPOCH:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Refuse an epoch that is neither the member's nor the one before, whose answer may have been lost."""
    if epoch in (NEW_EPOCH, member.member_epoch, member.previous_member_epoch):
        return
    is_greater = epoch > member.member_epoch
    previous = f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {'greater' if is_greater else 'smaller'} member epoch ({epoch}) than the one "
        f"known by the group coordinator ({member.member_epoch}){'' if is_greater else previous}. The member must "
        "abandon all its partitions and rejoin.",
    )


def known(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(member_id, group.group_id)
    return member


def unknown_member(member_id: str, group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def check_appended(outcome: Outcome) -> None:
    """Raises KafkaError if an append is known to have failed."""
    if not isinstance(outcome, Pending) and outcome is not ErrorCode.NONE:
        raise KafkaError(outcome)


def answered(result: HeartbeatResult, error: ErrorCode) -> HeartbeatResult:
    if error is not ErrorCode.NONE:
        raise KafkaError(error)
    return result
