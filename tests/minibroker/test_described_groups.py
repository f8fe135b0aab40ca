"""Groups of Kafka 4's protocols, made of the rows by which a coordinator describes them."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.admin.group_offsets import GroupDescription, GroupPartition
from minibroker.admin.groups import NO_SUCH_GROUP, Group, Member, classic_group, consumer_group, streams_group
from minibroker.cli.groups import print_description
from minibroker.client.topic_partition import TopicPartition
from minibroker.protocol.api import ASKED_TABLE, ApiKey

TOPIC_ID = b"\1" * 16


def row_of(api_key: ApiKey, **fields: Any) -> Any:
    """A described group, read from the bytes of a response."""
    response = ASKED_TABLE[api_key].response
    defaults = {"group_id": "g", "group_state": "Stable", "group_epoch": 3, "assignment_epoch": 3}
    message = response(groups=[response.row("groups")(**defaults | fields)])
    encoded = b"".join(map(bytes, response.encode(response.last_version, message)))
    return response.decode(response.last_version, encoded)[0].groups[0]


def assigned(**topics: list[int]) -> Any:
    return ([(TOPIC_ID, topic, numbers) for topic, numbers in topics.items()],)


def at(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def member(api_key: ApiKey, name: str, **fields: Any) -> Any:
    row = ASKED_TABLE[api_key].response.row("groups.members")
    return row(member_id=name, client_id=f"client-{name}", client_host="/127.0.0.1", member_epoch=2, **fields)


def test_a_member_has_partitions_to_revoke_and_waits_for_others_until_it_has_its_target() -> None:
    key = ApiKey.CONSUMER_GROUP_DESCRIBE
    members = [
        member(key, "a", assignment=assigned(t=[1, 0]), target_assignment=assigned(t=[0]), member_type=1),
        member(key, "b", assignment=assigned(), target_assignment=assigned(t=[1]), member_type=0),
    ]

    group = consumer_group(row_of(key, assignor_name="uniform", assignment_epoch=2, members=members))

    a = Member("a", "client-a", "127.0.0.1", at("t", 0, 1), epoch=2, awaits=[], revokes=at("t", 1), protocol="consumer")
    b = Member("b", "client-b", "127.0.0.1", [], epoch=2, awaits=at("t", 1), revokes=[], protocol="classic")
    assert group == Group("g", "Stable", "consumer", "uniform", [a, b], None, "consumer", 3, 2)


def test_a_static_member_has_its_instance_id_and_a_pattern_of_topics_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    consumers, streams = ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.STREAMS_GROUP_DESCRIBE
    a = member(consumers, "a", instance_id="till-1", assignment=assigned(t=[0]), target_assignment=assigned(t=[0]))
    b = member(
        consumers, "b", subscribed_topic_regex="^t.*", assignment=assigned(t=[1]), target_assignment=assigned(t=[1])
    )
    group = consumer_group(row_of(consumers, assignor_name="uniform", members=[a, b]))
    tasks: Any = ([], [], [])
    task = member(streams, "c", process_id="p", instance_id="till-2", assignment=tasks, target_assignment=tasks)
    of_classic = ASKED_TABLE[ApiKey.DESCRIBE_GROUPS].response.row
    static = of_classic("groups.members")(
        member_id="d", group_instance_id="till-3", client_id="", client_host="", member_assignment=b""
    )
    row = of_classic("groups")(error_code=0, group_id="k", group_state="Stable", protocol_type="", members=[static])

    print_description(GroupDescription(group, [GroupPartition("t", 0, None, 9, None, "client-a")]))
    others = [streams_group(row_of(streams, members=[task])), classic_group(row)]

    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "g: Stable, 2 members, lag unknown, consumer protocol, epoch 3",
        "CLIENT    INSTANCE  HOST       EPOCH  SUBSCRIBES TO  PARTITIONS",
        "client-a  till-1    127.0.0.1      2  -              t 0",
        "client-b  -         127.0.0.1      2  ^t.*           t 1",
        "",
        "TOPIC  PARTITION  COMMITTED  END  LAG  CLIENT",
        "t              0          -    9    -  client-a",
    ]
    assert [each.members[0].instance_id for each in others if each.members] == ["till-2", "till-3"]


def test_a_group_that_has_ended_since_it_was_listed_does_not_exist() -> None:
    group = consumer_group(row_of(ApiKey.CONSUMER_GROUP_DESCRIBE, group_state="Dead", error_code=69))

    assert (group.state, group.exists, group.error) == (NO_SUCH_GROUP, False, None)


def test_a_task_reads_its_partition_of_each_source_of_its_subtopology() -> None:
    key = ApiKey.STREAMS_GROUP_DESCRIBE
    tasks = ([("0", [1, 0])], [("1", [2])], [("1", [3])])
    joined: Any = ("0", ["t"], [], [], [("t-repartition", 2, 1, [])])

    group = streams_group(
        row_of(
            key,
            topology=(1, [joined, ("1", ["u"], [], [], [])]),
            members=[member(key, "a", process_id="p", assignment=tasks, target_assignment=tasks)],
        )
    )

    assert group.members == [
        Member(
            "a", "client-a", "127.0.0.1", at("t", 0, 1) + at("t-repartition", 0, 1), epoch=2,
            tasks=["0_0", "0_1", "standby 1_2", "warm-up 1_3"],
        )
    ]  # fmt: skip
    assert (group.type, group.protocol) == ("streams", "")


def test_a_group_is_printed_with_the_partitions_that_members_revoke_and_await(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = Member("a", "one", "h", at("t", 0, 1, 2), epoch=4, revokes=at("t", 2), protocol="consumer")
    b = Member("b", "two", "h", [], epoch=5, awaits=at("t", 2), protocol="classic")
    group = Group("g", "Reconciling", "consumer", "uniform", [a, b], None, "consumer", 6, 5)

    print_description(GroupDescription(group, [GroupPartition("t", 2, 5, 9, 4, "one")]))

    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "g: Reconciling, 2 members, lag 4, consumer protocol, epoch 6, assigned for epoch 5",
        "CLIENT  HOST  PROTOCOL  EPOCH  PARTITIONS  REVOKES  AWAITS",
        "one     h     consumer      4  t 0-2       t 2      -",
        "two     h     classic       5  none        -        t 2",
        "",
        "TOPIC  PARTITION  COMMITTED  END  LAG  CLIENT",
        "t              2          5    9    4  one",
    ]


def test_a_group_of_another_type_is_printed_with_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    sharing = Group(
        "s", "Stable", "share", "simple", [Member("a", "one", "h", at("t", 0), epoch=2)], None, "share", 2, 2
    )
    streaming = Group(
        "k", "Stable", "streams", "", [Member("a", "one", "h", [], epoch=2, tasks=["0_1"])], None, "streams"
    )

    print_description(GroupDescription(sharing, [GroupPartition("t", 0, 5, 9, 4, "one, two")]))
    print_description(GroupDescription(streaming, []))
    print_description(GroupDescription(streaming._replace(members=None), []))

    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "s: Stable, 1 member, lag 4, share group, epoch 2",
        "CLIENT  HOST  EPOCH  PARTITIONS",
        "one     h         2  t 0",
        "",
        "TOPIC  PARTITION  START  END  LAG  CLIENT",
        "t              0      5    9    4  one, two",
        "k: Stable, 1 member, lag 0, streams group",
        "CLIENT  HOST  EPOCH  TASKS  PARTITIONS",
        "one     h         2  0_1    none",
        "",
        "no offsets committed",
        "k: Stable, members unknown, lag 0, streams group",
        "no offsets committed",
    ]
