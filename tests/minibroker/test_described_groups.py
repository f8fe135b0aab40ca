"""Groups of Kafka 4's protocols, made of the rows by which a coordinator describes them."""

from __future__ import annotations

from typing import Any

from minibroker.any_cluster.cluster import TopicPartition
from minibroker.any_cluster.described_groups import NO_SUCH_GROUP, Group, Member, consumer_group, streams_group
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
