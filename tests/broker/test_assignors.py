"""The assignors, against what those of Apache Kafka 4.4.0 made of the same generated groups.

A line of the recording is a group as it is before an assignment, and the assignment:

    assignor|homogeneous|topic id:partitions,...|member/instance id/topics/target;... -> member/assignment;...

Topics are numbered in their order. Many groups follow on one another, with members that join, leave and subscribe anew.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from minibroker.broker.wings.consumer.assignors import ASSIGNORS, AssignedMember, Subscriptions

RECORDED = Path(__file__).parent.parent / "golden" / "kafka-4.4.0-assignments.txt.gz"
CASES = gzip.decompress(RECORDED.read_bytes()).decode().splitlines()


def partitions_in(text: str) -> dict[int, list[int]]:
    """An assignment of one member, by topic."""
    rows = (row.split(":") for row in text.split(",") if row)
    return {int(topic): [int(each) for each in partitions.split(".")] for topic, partitions in rows}


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_an_assignment_is_the_one_that_kafka_makes(assignor: str) -> None:
    seen = 0
    for line in CASES:
        given, _, expected = line.partition(" -> ")
        name, homogeneous, topics, rows = given.split("|")
        if name != assignor:
            continue
        counts = {
            bytes.fromhex(topic): int(count) for topic, _, count in (each.partition(":") for each in topics.split(","))
        }
        topic_ids = list(counts)
        members = {}
        for row in rows.split(";"):
            member_id, instance_id, subscribed, target = row.split("/")
            members[member_id] = AssignedMember(
                frozenset(topic_ids[int(each)] for each in subscribed.split(",") if each),
                {topic_ids[number]: frozenset(each) for number, each in partitions_in(target).items()},
                instance_id or None,
            )
        used = frozenset[bytes]().union(*(member.topic_ids for member in members.values()))
        group = Subscriptions(members, {each: counts[each] for each in used}, homogeneous == "1")

        found = ASSIGNORS[assignor](group)

        wanted = dict(row.split("/") for row in expected.split(";"))
        assert {
            member_id: {
                topic_ids.index(each): sorted(partitions) for each, partitions in found.get(member_id, {}).items()
            }
            for member_id in members
        } == {member_id: partitions_in(text) for member_id, text in wanted.items()}, line
        seen += 1
    assert seen > 20
