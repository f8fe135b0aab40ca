"""Which topics the regular expressions of a group match: looked up when one is new, when topics are, and now and then.

A look-up runs after the answer to the heartbeat that asks for it, in steps, and its result is a change of the group:
the next heartbeat brings the topics. As kafka 4.4 GroupMetadataManager.maybeUpdateRegularExpressions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from minibroker.broker.pending import then
from minibroker.broker.wings.consumer.changes import GroupChanges
from minibroker.broker.wings.consumer.draft import Draft
from minibroker.broker.wings.consumer.group import ConsumerGroup, ResolvedRegex
from minibroker.broker.wings.consumer.member import ConsumerMember
from minibroker.protocol.consumer_group_records import ConsumerGroupRecord, RecordType
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.regular_expressions import Regex, RegexError

logger = logging.getLogger(__name__)

LEAST_INTERVAL_MS = 10_000  # between two look-ups of a group
NAMES_A_STEP = 100
UNRESOLVED = ResolvedRegex(frozenset(), 0, 0)


class RegexChange(NamedTuple):
    """The change that a heartbeat brings.

    `is_resolved` if the topics are known at once; `needs_refresh` for a new expression.
    """

    is_changed: bool = False
    is_resolved: bool = False
    needs_refresh: bool = False


NO_CHANGE = RegexChange()


class RegexRefresh:
    """Looks up the topics of all groups' regular expressions.

    `afterwards` calls an action once the present request is answered; `run_steps` runs steps between other tasks.
    """

    def __init__(
        self,
        changes: GroupChanges,
        *,
        afterwards: Callable[[Callable[[], None]], None],
        run_steps: Callable[[Iterator[None]], None],
    ) -> None:
        self._changes = changes
        self._afterwards = afterwards
        self._run_steps = run_steps
        self._running: set[str] = set()  # groups

    def change(self, draft: Draft, before: ConsumerMember, member: ConsumerMember) -> RegexChange:
        """Note a member's change of its expression, which the draft has. Raises KafkaError if it is not valid."""
        old, new = before.topic_regex or "", member.topic_regex or ""
        if old == new:
            return NO_CHANGE
        uses = draft.group.regexes
        if old and old not in uses:
            draft.put(ConsumerGroupRecord(RecordType.REGULAR_EXPRESSION, draft.group.group_id, old))
        if not new:
            return RegexChange(is_changed=True, is_resolved=True)
        if uses[new] == 1:
            check(new)
            return RegexChange(is_changed=True, needs_refresh=True)
        return RegexChange(is_changed=True, is_resolved=new in draft.group.resolved)

    def refresh(self, group_id: str, *, may_describe: Callable[[str], bool], is_needed: bool) -> None:
        """Look up a group's expressions if it is time to, once the present request is answered.

        The topics are those that the client of this member may describe.
        """
        group = self._changes.groups.find(ConsumerGroup, group_id)
        if group is None or group_id in self._running:
            return
        regexes = group.regexes
        if not regexes:
            return
        now_ms, last = self._changes.now_ms(), next(iter(group.resolved.values()), None)
        if last is not None:
            if now_ms <= last.timestamp_ms + LEAST_INTERVAL_MS:
                return
            topics, interval_ms = self._changes.topics, self._changes.config.group_consumer_regex_refresh_interval_ms
            is_old = last.version < topics.version_of_names or now_ms > last.timestamp_ms + interval_ms
            if not (is_needed or is_old or group.resolved.keys() != regexes.keys()):
                return
        self._running.add(group_id)
        self._afterwards(lambda: self._run_steps(self._look_up(group_id, list(regexes), may_describe)))

    def _look_up(self, group_id: str, patterns: list[str], may_describe: Callable[[str], bool]) -> Iterator[None]:
        try:
            topics, now_ms = self._changes.topics, self._changes.now_ms()
            version = topics.version
            compiled = [(pattern, usable(group_id, pattern)) for pattern in patterns]
            regexes = {pattern: regex for pattern, regex in compiled if regex is not None}
            found: dict[str, set[str]] = {pattern: set() for pattern in patterns}
            for number, name in enumerate(topics.names, start=1):
                matching = [pattern for pattern, regex in regexes.items() if regex.matches(name)]
                if matching and may_describe(name):
                    for pattern in matching:
                        found[pattern].add(name)
                if number % NAMES_A_STEP == 0:
                    yield
        finally:
            self._running.discard(group_id)
        group = self._changes.groups.find(ConsumerGroup, group_id)
        if group is not None:
            self._take(group, {each: ResolvedRegex(frozenset(names), version, now_ms) for each, names in found.items()})

    def _take(self, group: ConsumerGroup, found: Mapping[str, ResolvedRegex]) -> None:
        draft = Draft(group)
        is_changed = False
        for pattern, resolved in found.items():
            if pattern in group.regexes:
                is_changed |= group.resolved.get(pattern, UNRESOLVED).topics != resolved.topics
                draft.put(group.regex_record(pattern, resolved))
        self._changes.refresh(draft, "its regular expressions match other topics" if is_changed else None)

        def on_stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                logger.warning("group %s: cannot store the topics of its expressions: %s", group.group_id, error.name)

        then(self._changes.commit(draft), on_stored)


def check(pattern: str) -> None:
    try:
        Regex(pattern)
    except RegexError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from None


def usable(group_id: str, pattern: str) -> Regex | None:
    """Return an expression; None for one that cannot be used here, which another Kafka has stored."""
    try:
        return Regex(pattern)
    except RegexError as error:
        logger.warning("group %s: the regular expression %s matches no topic: %s", group_id, pattern, error)
        return None
