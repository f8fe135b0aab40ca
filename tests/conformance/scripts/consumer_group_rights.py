"""Groups of the consumer protocol, and the rights that Apache Kafka 4.4.0 asks for.

All clients are ANONYMOUS, and rules name their hosts; what the rules of a conversation are on begins with its prefix.
"""

from __future__ import annotations

from typing import Any

from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission
from tests.conformance.scripts.consumer_groups import (
    GROUP,
    MATCHING_MS,
    SETTLING_MS,
    _patiently,
    beats,
    committed,
    described,
    fetched,
    joins,
    leaves,
    listed,
    topics,
    wait,
)
from tests.conformance.steps import Script, Step, Told, call

ADMIN, MEMBER, OTHER = "127.0.0.1", "127.0.9.2", "127.0.9.3"
TOPICS, GROUPS, IDS = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, DELETE, DESCRIBE = Operation.READ, Operation.DELETE, Operation.DESCRIBE
MATCHING: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "@t.*"}

Rule = tuple[str, ResourceType, str, Operation]


def by_member(step: Step, connection: str = MEMBER) -> Step:
    return Step(**{**vars(step), "connection": connection})


def by_other(step: Step) -> Step:
    return by_member(step, OTHER)


def rules(*rows: Rule, permission: Permission = Permission.ALLOW) -> Script:
    """Rules of (host, type, name, operation), and the time until the broker knows them."""
    made = [(of, name, Pattern.LITERAL, "User:ANONYMOUS", host, what, permission) for host, of, name, what in rows]
    return [call("CreateAcls", 1, creations=made), wait(SETTLING_MS, "@u")]


def _stage(*allowed: Rule, created: tuple[tuple[str, int], ...] = (("@t", 2), ("@u", 2))) -> Script:
    """Topics on which only the administrator has rights, and these rules."""
    kinds = (TOPICS, GROUPS, IDS)
    own = [(each, "@", Pattern.PREFIXED, "User:ANONYMOUS", ADMIN, Operation.ALL, Permission.ALLOW) for each in kinds]
    return _patiently([*topics(*created), call("CreateAcls", 1, creations=own), *rules(*allowed)])


def _may_read(topic: str = "@t", host: str = MEMBER) -> tuple[Rule, Rule]:
    return (host, GROUPS, GROUP, READ), (host, TOPICS, topic, READ)


def a_member_without_the_right_to_its_group() -> Script:
    one = by_member(joins("one", "@t"))
    script = [*_stage((MEMBER, TOPICS, "@t", READ)), one, by_member(joins("one", "@t", version=0))]
    script += [*rules((MEMBER, GROUPS, GROUP, DESCRIBE)), by_other(call("DescribeGroups", 6, groups=[GROUP]))]
    return [*script, one, *rules((MEMBER, GROUPS, GROUP, READ)), one, by_member(leaves("one"))]


def a_member_without_the_right_to_a_topic() -> Script:
    """By name: one of them is enough for the refusal; a topic that is not there is one."""
    script = [*_stage((MEMBER, GROUPS, GROUP, READ))]
    script += [by_member(joins("one", *each)) for each in (["@t"], ["@none"], [], ["@t", "@none"])]
    script += rules((MEMBER, TOPICS, "@t", DESCRIBE))
    script += [by_member(joins("one", *each)) for each in (["@t", "@u"], ["@t", "@none"], ["@t"])]
    return [*script, by_member(beats("one", subscribed_topic_names=["@u"])), by_member(beats("one")), described()]


def a_member_that_loses_its_right_goes_on() -> Script:
    """Until it subscribes anew."""
    script = [*_stage(*_may_read()), by_member(joins("one", "@t")), by_member(beats("one"))]
    script += rules((MEMBER, TOPICS, "@t", Operation.ALL), permission=Permission.DENY)
    script += [by_member(beats("one")), by_member(committed("one", Told("one", "member_epoch")))]
    script += [by_member(beats("one", subscribed_topic_names=["@t"])), by_member(joins("one", "@t"))]
    script += rules((MEMBER, GROUPS, GROUP, Operation.ALL), permission=Permission.DENY)
    return [*script, by_member(beats("one")), by_member(leaves("one")), described()]


def a_regular_expression_matches_what_its_member_may_describe() -> Script:
    created = (("@t1", 1), ("@t2", 1), ("@u", 1))
    script = [*_stage(*_may_read("@t1"), created=created), by_member(joins("one", **MATCHING))]
    return [*script, wait(MATCHING_MS, "@u"), by_member(beats("one")), by_member(beats("one")), described()]


def a_regular_expression_that_matches_nothing_its_member_may_describe() -> Script:
    script = [*_stage((MEMBER, GROUPS, GROUP, READ)), by_member(joins("one", **MATCHING)), wait(MATCHING_MS)]
    return [*script, by_member(beats("one")), by_member(joins("one", **{**MATCHING, "subscribed_topic_names": ["@t"]})),
            described()]  # fmt: skip


def a_regular_expression_is_looked_up_by_the_first_that_has_it() -> Script:
    """The second member gets topics that it may not describe."""
    created = (("@t1", 2), ("@t2", 2), ("@u", 1))
    matching = {**MATCHING, "server_assignor": "range"}
    allowed = (*_may_read("@t1"), (MEMBER, TOPICS, "@t2", READ), (OTHER, GROUPS, GROUP, READ))
    script = [*_stage(*allowed, created=created), by_member(joins("one", **matching)), wait(MATCHING_MS, "@u")]
    script += [by_member(beats("one")), by_other(joins("two", **matching)), by_member(beats("one"))]
    script += [by_member(beats("one")), by_other(beats("two")), by_other(beats("two"))]
    return [*script, described(), by_other(described()), by_member(described())]


def groups_and_topics_that_may_not_be_described() -> Script:
    script = [*_stage((MEMBER, GROUPS, GROUP, DESCRIBE)), joins("one", "@t", "@u"), described()]
    script += [by_member(described(GROUP, "@none", version=each)) for each in (0, 1)]
    script += [*rules((MEMBER, TOPICS, "@t", DESCRIBE)), by_member(described())]
    script += [*rules((MEMBER, TOPICS, "@u", DESCRIBE)), by_member(described()), by_other(described())]
    script += [joins("two", "@none"), by_member(described()), leaves("one"), leaves("two"), by_member(described())]
    return [*script, by_member(listed()), by_other(listed()), listed()]


def a_subscription_that_may_not_be_described() -> Script:
    """Names of topics of which the group has nothing."""
    script = [*_stage((MEMBER, GROUPS, GROUP, DESCRIBE)), joins("one", "@none"), by_member(described())]
    matching = {**MATCHING, "subscribed_topic_regex": "@none.*"}
    return [*script, leaves("one"), joins("two", **matching), by_member(described()), leaves("two")]


def operations_that_are_authorized() -> Script:
    asks: dict[str, Any] = {"include_authorized_operations": True}
    asked = [Step(**{**vars(each), "body": {**each.body, **asks}}) for each in (described(), described(version=0))]
    classic = call("DescribeGroups", 5, groups=[GROUP], **asks)
    script = [*_stage((MEMBER, GROUPS, GROUP, DESCRIBE)), joins("one"), *asked, *map(by_member, [*asked, classic])]
    script += [*rules((MEMBER, GROUPS, GROUP, DELETE), (OTHER, GROUPS, GROUP, READ)), *map(by_member, asked)]
    denied = rules((OTHER, GROUPS, GROUP, DELETE), permission=Permission.DENY)
    script += [*map(by_other, asked), *rules((OTHER, GROUPS, GROUP, Operation.ALL)), *denied, *map(by_other, asked)]
    script += [*rules((MEMBER, GROUPS, GROUP, Operation.ALTER_CONFIGS)), *map(by_member, asked)]
    missing = Step(**{**vars(described("@none")), "body": {"group_ids": ["@none"], **asks}})
    return [*script, missing, by_member(missing)]


def rights_to_committed_offsets() -> Script:
    """Of the group, and of each topic."""
    rows = [(topic, [(0, 5, -1, -1, "")]) for topic in ("@t", "@u", "@none")]
    commits = [committed("one", Told("one", "member_epoch"), version=version, topics=rows) for version in (8, 9)]
    asked = [("@t", [0]), ("@u", [0]), ("@none", [0])]
    epoch = Told("one", "member_epoch")
    fetches = [call("OffsetFetch", 9, groups=[(GROUP, "one", epoch, asked)])]
    fetches += [
        call("OffsetFetch", each, groups=[(GROUP, None, -1, asked), ("@none", None, -1, None)]) for each in (8, 9)
    ]
    fetches += [call("OffsetFetch", each, groups=[(GROUP, None, -1, None)]) for each in (8, 9)]
    fetches += [call("OffsetFetch", 9, groups=[(GROUP, "one", 99, asked)])]
    script = [*_stage(), joins("one", "@t", "@u"), *commits, *map(by_member, [*commits, *fetches])]
    script += rules((MEMBER, GROUPS, GROUP, READ))
    script += [*map(by_member, [*commits, *fetches]), *rules((MEMBER, TOPICS, "@t", READ))]
    script += [*map(by_member, [*commits, *fetches]), *rules((MEMBER, TOPICS, "@u", DESCRIBE))]
    script += [*map(by_member, [*commits, *fetches]), by_member(committed("one", 99, topics=rows))]
    return [*script, *fetches]


def rights_to_delete() -> Script:
    """Offsets of a topic, and a group."""
    offsets = call("OffsetDelete", 0, group_id=GROUP, topics=[("@t", [0]), ("@u", [0]), ("@none", [0])])
    group = call("DeleteGroups", 2, group_names=[GROUP])
    script = [*_stage(), joins("one", "@t"), committed("one", Told("one", "member_epoch"))]
    script += [*map(by_member, (offsets, group)), *rules((MEMBER, GROUPS, GROUP, DELETE))]
    script += [*map(by_member, (offsets, group)), *rules((MEMBER, TOPICS, "@t", READ), (MEMBER, TOPICS, "@none", READ))]
    script += [by_member(offsets), leaves("one"), by_member(offsets), fetched(), by_member(group)]
    return [*script, described()]
