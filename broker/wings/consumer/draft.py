"""A change of a group of the consumer protocol that is being made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minibroker.broker.group.group import Group
from minibroker.broker.replica.coordinator_log import Contents
from minibroker.broker.wings.consumer.group import ConsumerGroup
from minibroker.protocol.consumer_group_records import ConsumerGroupRecord, key_of, value_of


class Draft:
    """A change of a group that is being made: `group` with it, and what is to be appended.

    The group before stays as it was. `replaced` is the classic group that this one takes the place of, `left` are the
    ids of removed members.
    """

    def __init__(self, group: ConsumerGroup, replaced: Group | None = None, contents: Sequence[Contents] = ()) -> None:
        self._before = self.group = group
        self.replaced = replaced
        self.contents: list[Contents] = list(contents)
        self.left: list[str] = []

    @property
    def is_changed(self) -> bool:
        return bool(self.contents)

    def put(self, *records: ConsumerGroupRecord) -> None:
        self.put_all(records)

    def put_all(self, records: Iterable[ConsumerGroupRecord]) -> None:
        if self.group is self._before:
            self.group = self._before.copy()
        for record in records:
            self.group.apply(record)
            self.contents.append((key_of(record), value_of(record), ()))

    def remove(self, member_id: str) -> None:
        """Remove a member, with its deadlines."""
        self.put_all(self.group.member_tombstones(member_id))
        self.left.append(member_id)
