"""Groups of the consumer protocol (KIP-848), as Apache Kafka 4.4.0 coordinates them: joining, assignments and epochs,
static members, regular expressions, expiry, offsets, description, and groups that change their protocol."""

from __future__ import annotations

from typing import Any

from tests.conformance.steps import IdOf, Script, Step, Subscribed, Told, call

GROUP = "@group"
JOINS, LEAVES, WILL_BE_BACK = 0, -1, -2
NOT_THERE_YET = (3, 5, 6)  # Apache Kafka's brokers learn of a topic some time after it was created
SESSION_MS = 2000
GROUP_CONFIGS = 32
PATIENT_SESSION_MS = 50_000
SETTLING_MS = 400  # and its coordinator still later
MATCHING_MS = 1000  # it looks for the topics of a regular expression in a thread of its own
REFUSED_EPOCHS = (-3, 99)


def topics(*rows: tuple[str, int]) -> Script:
    """Create topics of so many partitions, and wait until the broker knows them."""
    made: list[Any] = [(name, partitions, 1, [], []) for name, partitions in rows]
    known = [[(name, [(0, -1, -1, 1)])] for name, _ in rows]
    return [
        call("CreateTopics", 7, topics=made, timeout_ms=10_000, validate_only=False),
        *(call("ListOffsets", 7, replica_id=-1, topics=each, retry=NOT_THERE_YET) for each in known),
        wait(SETTLING_MS, rows[0][0]),
    ]


def wait(milliseconds: int, topic: str = "@t") -> Step:
    """A fetch of what is not there."""
    row = (topic, [(0, -1, 0, -1, -1, 1)])
    return call("Fetch", 11, replica_id=-1, max_wait_ms=milliseconds, min_bytes=1, max_bytes=1, topics=[row])


def heartbeat(member: Any, epoch: Any, *, version: int = 1, name: str = "", **fields: Any) -> Step:
    """A heartbeat without what has not changed."""
    body: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return call("ConsumerGroupHeartbeat", version, name=name, **(body | fields))


def joins(member: Any, *subscribed: str, **fields: Any) -> Step:
    given: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": list(subscribed),
        "topic_partitions": [],
    }
    return heartbeat(member, JOINS, **(given | fields))


def beats(member: str, **fields: Any) -> Step:
    """A heartbeat in its epoch, of a member that owns what it was assigned."""
    owned: dict[str, Any] = {"topic_partitions": Told(member, "assignment")}
    return heartbeat(Told(member, "member_id"), Told(member, "member_epoch"), **(owned | fields))


def leaves(member: str, epoch: int = LEAVES, **fields: Any) -> Step:
    return heartbeat(Told(member, "member_id"), epoch, **fields)


def owning(*rows: tuple[str, list[int]]) -> dict[str, Any]:
    return {"topic_partitions": [(IdOf(topic), partitions) for topic, partitions in rows]}


def described(*groups: str, version: int = 1) -> Step:
    return call(
        "ConsumerGroupDescribe", version, group_ids=list(groups or [GROUP]), include_authorized_operations=False
    )


def committed(member: Any, epoch: Any, offset: int = 5, *, version: int = 9, **fields: Any) -> Step:
    rows = [("@t", [(0, offset, -1, -1, "")])]
    body: dict[str, Any] = {"group_id": GROUP, "generation_id": epoch, "member_id": member, "topics": rows}
    return call("OffsetCommit", version, **(body | fields))


def fetched(group: str = GROUP, *, member: Any = None, epoch: Any = -1, version: int = 9) -> Step:
    of_member = (member, epoch) if version >= 9 else (None, -1)
    return call("OffsetFetch", version, groups=[(group, *of_member, [("@t", [0, 1])])])


def listed(*types: str) -> Step:
    return call("ListGroups", 5, states_filter=[], types_filter=list(types))


def _patiently(script: Script) -> Script:
    """The conversation in a group whose members may be unheard of for long: it takes Apache Kafka some time."""
    given = [(GROUP_CONFIGS, GROUP, [("consumer.session.timeout.ms", 0, str(PATIENT_SESSION_MS))])]
    return [call("IncrementalAlterConfigs", 1, resources=given, validate_only=False), *script]


def alone() -> Script:
    """One member with both partitions, and its topic."""
    return [*topics(("@t", 2)), joins("one", "@t"), beats("one")]


def two_members() -> Script:
    """Each has one partition of two."""
    return [*alone(), joins("two", "@t"), beats("one"), beats("one"), beats("two"), beats("two")]


def joined_and_left() -> Script:
    return [*alone(), described(), listed(), leaves("one"), described(), listed(), leaves("one")]


def joined_in_version_0() -> Script:
    """The coordinator makes the id of a member."""
    first = joins("", "@t", version=0, name="one")
    again = beats("one", version=0)
    return [*topics(("@t", 2)), first, again, described(version=0), leaves("one", version=0), described()]


def refused_requests() -> Script:
    script: Script = [*topics(("@t", 1))]
    for version in (0, 1):
        script += [
            joins("", "@t", version=version, group_id=""),
            joins("m", "@t", version=version, rebalance_timeout_ms=-1),
            joins("m", version=version),
            joins("m", version=version, subscribed_topic_names=None),
            joins("m", "@t", version=version, topic_partitions=None),
            joins("m", "@t", version=version, **owning(("@t", [0]))),
            joins("m", "@t", version=version, instance_id=""),
            joins("m", "@t", version=version, rack_id=""),
            joins("m", "@t", version=version, server_assignor="none"),
            joins("m", "@t", version=version, server_assignor=""),
            heartbeat("", 1, version=version),
            heartbeat("m", 1, version=version),
            heartbeat("m", LEAVES, version=version),
            heartbeat("m", WILL_BE_BACK, version=version),
            heartbeat("m", WILL_BE_BACK, version=version, instance_id="i"),
        ]
    return [*script, joins("", "@t"), described()]


def unknown_groups_and_members() -> Script:
    return [
        *topics(("@t", 1)),
        described("@none", ""),
        joins("one", "@t"),
        heartbeat("nobody", 1),
        heartbeat("nobody", LEAVES),
        heartbeat("one", 1, group_id="@none"),
        described("@none", GROUP),
    ]


def wrong_epochs() -> Script:
    script = alone()
    for epoch in REFUSED_EPOCHS:
        script += [heartbeat("one", epoch), heartbeat("one", epoch, topic_partitions=[])]
    return [*script, beats("one"), described()]


def an_epoch_behind_is_taken_if_its_answer_was_lost() -> Script:
    """The last epoch is taken again, with what the member had then."""
    script = [*alone(), joins("two", "@t"), beats("one"), heartbeat("one", 1, **owning(("@t", [0, 1])))]
    script += [heartbeat("one", 1, **owning(("@t", [0]))), heartbeat("one", 1, topic_partitions=[])]
    return [*script, heartbeat("one", 1), beats("one"), described()]


def joining_again_with_epoch_0() -> Script:
    return [*alone(), joins("one", "@t"), beats("one"), joins("one", "@t", "@none"), described()]


def a_second_member_waits_for_partitions() -> Script:
    """Until the first has given them back."""
    script = [*alone(), joins("two", "@t"), described(), beats("two"), heartbeat("one", Told("one", "member_epoch"))]
    script += [described(), beats("one", **owning(("@t", [0, 1]))), beats("two"), beats("one"), beats("two")]
    return [*script, described()]


def three_members_of_seven_partitions() -> Script:
    script = [*topics(("@t", 7)), joins("one", "@t"), joins("two", "@t"), joins("three", "@t")]
    for _ in range(3):
        script += [beats("one"), beats("two"), beats("three")]
    return [
        *script,
        described(),
        leaves("two"),
        beats("one"),
        beats("three"),
        beats("one"),
        beats("three"),
        described(),
    ]


def more_members_than_partitions() -> Script:
    script = [*topics(("@t", 1)), joins("one", "@t"), joins("two", "@t"), beats("one"), beats("two"), described()]
    return [*script, leaves("one"), beats("two"), described()]


def members_of_different_topics() -> Script:
    script = [*topics(("@t", 2), ("@u", 3)), joins("one", "@t"), joins("two", "@u"), joins("three", "@t", "@u")]
    for _ in range(3):
        script += [beats("one"), beats("two"), beats("three")]
    return [*script, described()]


def a_subscription_that_changes() -> Script:
    script = [*topics(("@t", 2), ("@u", 2)), joins("one", "@t"), beats("one", subscribed_topic_names=["@t", "@u"])]
    script += [beats("one"), beats("one", subscribed_topic_names=["@u"]), beats("one"), beats("one")]
    return [*script, described(), beats("one", subscribed_topic_names=["@u"]), beats("one", subscribed_topic_names=[])]


def a_topic_that_comes_later() -> Script:
    script = [*topics(("@u", 1)), joins("one", "@t"), beats("one"), described(), *topics(("@t", 2))]
    return [*script, beats("one"), beats("one"), described()]


def a_topic_that_grows() -> Script:
    more = call("CreatePartitions", 2, topics=[("@t", 4, None)], timeout_ms=10_000, validate_only=False)
    return [*alone(), more, wait(300), beats("one"), beats("one"), described()]


def a_topic_that_is_deleted() -> Script:
    gone = call("DeleteTopics", 5, topic_names=["@t"], timeout_ms=10_000)
    script = [*topics(("@u", 1), ("@t", 2)), joins("one", "@t", "@u"), beats("one"), gone, wait(300, "@u")]
    return [*script, beats("one"), beats("one"), described()]


def the_range_assignor() -> Script:
    ranged: dict[str, Any] = {"server_assignor": "range"}
    script = [*topics(("@t", 3), ("@u", 3)), joins("one", "@t", "@u", **ranged), joins("two", "@t", "@u", **ranged)]
    return [*script, beats("one"), beats("two"), beats("one"), beats("two"), described()]


def the_assignor_that_most_members_want() -> Script:
    script = [*topics(("@t", 4)), joins("one", "@t", server_assignor="range"), joins("two", "@t"), described()]
    script += [joins("three", "@t", server_assignor="range"), described(), beats("one", server_assignor="uniform")]
    return [*script, beats("two", server_assignor="uniform"), described(), leaves("two"), leaves("one"), described()]


def racks() -> Script:
    script = [*topics(("@t", 4)), joins("one", "@t", rack_id="a"), joins("two", "@t", rack_id="b"), beats("one")]
    return [*script, beats("two"), described(), beats("one", rack_id="c"), described()]


def a_static_member_comes_back() -> Script:
    """With another member id it gets back what it had."""
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2)), joins("one", "@t", **static), beats("one", **static), joins("other", "@t")]
    script += [beats("one"), beats("other"), leaves("one", WILL_BE_BACK, **static), described(), beats("other")]
    return [*script, joins("new", "@t", **static), beats("new"), beats("other"), described()]


def a_static_member_that_is_in_use() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2)), joins("one", "@t", **static), joins("two", "@t", **static), beats("one")]
    return [*script, heartbeat("two", LEAVES, **static), heartbeat("one", LEAVES, instance_id="j"), described()]


def a_static_member_leaves_for_good() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2)), joins("one", "@t", **static), leaves("one", LEAVES, **static), described()]
    return [*script, joins("one", "@t", **static), leaves("one", WILL_BE_BACK), leaves("one", WILL_BE_BACK, **static)]


def a_static_member_is_fenced_by_its_successor() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2)), joins("one", "@t", **static), leaves("one", WILL_BE_BACK, **static)]
    script += [joins("two", "@t", **static), heartbeat("one", 1, **static), heartbeat("one", LEAVES, **static)]
    return [*script, beats("two", **static), described()]


def a_static_member_changes_its_subscription_on_return() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2), ("@u", 2)), joins("one", "@t", **static), beats("one")]
    script += [leaves("one", WILL_BE_BACK, **static), joins("two", "@u", **static), beats("two")]
    return [*script, described()]


def a_session_expires() -> Script:
    return [*alone(), wait(SESSION_MS + 1000), heartbeat("one", 1), described()]


def a_session_is_kept_by_heartbeats() -> Script:
    script = alone()
    for _ in range(3):
        script += [wait(SESSION_MS - 900), beats("one")]
    return [*script, described()]


def the_partitions_of_an_expired_member_go_to_the_other() -> Script:
    script = [*two_members(), wait(1100), beats("one"), wait(1300), beats("one"), beats("one"), described()]
    return [*script, heartbeat("two", Told("two", "member_epoch"))]


def a_static_member_that_stays_away_expires() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2)), joins("one", "@t", **static), leaves("one", WILL_BE_BACK, **static), described()]
    return [*script, wait(SESSION_MS + 1000), described()]


def partitions_that_are_not_given_back_in_time() -> Script:
    """The rebalance timeout of the member removes it."""
    script = [*topics(("@t", 2)), joins("one", "@t", rebalance_timeout_ms=500), beats("one"), joins("two", "@t")]
    script += [heartbeat("one", Told("one", "member_epoch")), wait(1000), heartbeat("one", Told("one", "member_epoch"))]
    return [*script, beats("two"), described()]


def as_many_members_as_a_group_takes() -> Script:
    script = topics(("@t", 2))
    script += [joins(f"m{number}", "@t") for number in range(7)]
    return [*script, leaves("m0"), joins("m6", "@t"), described()]


def a_regular_expression() -> Script:
    matching: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "@t.*"}
    script = [
        *topics(("@t1", 2), ("@t2", 1), ("@u", 1)),
        joins("one", **matching),
        wait(MATCHING_MS, "@u"),
        beats("one"),
    ]
    return [*script, beats("one"), described()]


def a_regular_expression_beside_names() -> Script:
    script = [*topics(("@t1", 1), ("@t2", 1), ("@u", 1)), joins("one", "@u", subscribed_topic_regex="@t1")]
    script += [wait(MATCHING_MS, "@u"), beats("one"), beats("one"), beats("one", subscribed_topic_regex="@t[12]")]
    return [
        *script,
        wait(MATCHING_MS, "@u"),
        beats("one"),
        beats("one"),
        described(),
        beats("one", subscribed_topic_regex=""),
    ]


def refused_regular_expressions() -> Script:
    script: Script = [*topics(("@t", 1))]
    for regex in ("(", "[", "*", "a{2,1}", "(?<!x)", r"\1", ""):
        script.append(joins("one", subscribed_topic_names=None, subscribed_topic_regex=regex))
    return [*script, described()]


def regular_expressions_of_two_members() -> Script:
    matching: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": "@t"}
    script = [*topics(("@t", 2)), joins("one", **matching), wait(MATCHING_MS), beats("one")]
    script += [joins("two", **matching)]
    return [*script, beats("two"), beats("one"), beats("two"), beats("two"), described()]


def offsets_with_epochs() -> Script:
    script = [*alone(), committed("one", Told("one", "member_epoch")), fetched(), fetched(version=8)]
    script += [fetched(member="one", epoch=Told("one", "member_epoch")), fetched(member="one", epoch=99)]
    script += [fetched(member="nobody", epoch=1), fetched("@none", member="one", epoch=1), fetched("@none")]
    for epoch in (0, 99, -1, -2):
        script += [committed("one", epoch, 6), committed("nobody", epoch, 6), committed("", epoch, 6)]
    return [*script, fetched(), committed("one", 1, 7, group_id="@none"), committed("", -1, 8, group_id="@other")]


def offsets_of_an_older_epoch() -> Script:
    """While the member has not heard of a newer one, it may commit in the one it has."""
    script = [*alone(), joins("two", "@t"), committed("one", 1), beats("one"), committed("one", 1, 6)]
    script += [committed("one", Told("one", "member_epoch"), 7), committed("two", Told("two", "member_epoch"), 8)]
    return [*script, fetched()]


def offsets_in_earlier_versions() -> Script:
    script = alone()
    for version in (2, 5, 7, 8):
        old: dict[str, Any] = {"retention_time_ms": -1} if version < 5 else {}
        script += [
            committed("one", 1, version, version=version, **old),
            committed("one", 99, 6, version=version, **old),
        ]
    return [
        *script,
        committed("", -1, 9, version=8),
        fetched(version=8),
        leaves("one"),
        committed("", -1, 9),
        fetched(),
    ]


def offsets_are_deleted() -> Script:
    delete = call("OffsetDelete", 0, group_id=GROUP, topics=[("@t", [0])])
    return [*alone(), committed("one", 1), delete, fetched(), leaves("one"), delete, fetched(), described()]


def a_group_is_deleted() -> Script:
    delete = call("DeleteGroups", 2, group_names=[GROUP])
    return [*alone(), delete, leaves("one"), delete, delete, described(), listed()]


def what_the_classic_protocol_sees() -> Script:
    classic: dict[str, Any] = {"group_id": GROUP, "generation_id": 1, "member_id": "one"}
    script = [*alone(), call("DescribeGroups", 5, groups=[GROUP, "@none"]), call("DescribeGroups", 6, groups=[GROUP])]
    script += [call("Heartbeat", 4, **classic), call("SyncGroup", 5, assignments=[], **classic)]
    script += [call("LeaveGroup", 4, group_id=GROUP, members=[("one", None, None)]), described()]
    return [
        *script,
        listed("consumer"),
        listed("classic"),
        listed("Consumer", "none"),
        call("ListGroups", 4, states_filter=[]),
    ]


def states_of_groups() -> Script:
    script = [*alone(), joins("two", "@t"), described()]
    for state in ("Stable", "Reconciling", "Assigning", "Empty", "stable"):
        script.append(call("ListGroups", 5, states_filter=[state], types_filter=[]))
    return [
        *script,
        beats("one"),
        described(),
        beats("one"),
        beats("two"),
        described(),
        call("ListGroups", 4, states_filter=["Stable"]),
    ]


def classic(name: str, member: Any = "", *, group: str = GROUP, type_: str = "consumer", **options: Any) -> Step:
    body: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member,
        "protocol_type": type_,
        "protocols": [("range", Subscribed(("@t",)))],
    }
    return call("JoinGroup", 5, name=name, client_id=name, **(body | options))


def an_empty_classic_group_is_converted() -> Script:
    """With its offsets."""
    script = [*topics(("@t", 2)), committed("", -1, 5, version=8), listed(), joins("one", "@t"), listed(), fetched()]
    return [*script, described(), leaves("one"), described()]


def a_classic_group_of_another_type_stays() -> Script:
    first = classic("first", type_="connect")
    known = classic("first", Told("first"), type_="connect")
    return [*topics(("@t", 2)), first, known, joins("one", "@t"), described(), listed()]


def a_classic_member_joins_an_empty_consumer_group() -> Script:
    script = [*alone(), committed("one", 1), leaves("one"), listed(), classic("first"), classic("first", Told("first"))]
    return [*script, listed(), call("DescribeGroups", 5, groups=[GROUP]), described(), fetched(version=8)]


def members_of_both_protocols() -> Script:
    """A classic member joins a group of the consumer protocol, and stays as one of it."""
    script = [*alone(), classic("first"), classic("first", Told("first")), described(), beats("one"), described()]
    script += [listed(), joins("two", "@t"), leaves("one"), described(), listed(), leaves("two"), described()]
    return [*script, listed()]
