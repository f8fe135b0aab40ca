"""`minibroker health`: when a cluster is healthy."""

from __future__ import annotations

from typing import Any

from minibroker.admin.partitions import first_of
from minibroker.admin.topics import Partition, TopicDescription
from minibroker.any_cluster.cluster import ClusterFacts
from minibroker.cli.cluster_commands import health_of
from minibroker.cli.topics import complaints
from tests.minibroker.answering import row


def a_cluster(*, leader: int = 0, isr: int = 2, controller: int = 0) -> tuple[ClusterFacts, list[Any]]:
    partition = row(partition=0, leader_id=leader, replica_nodes=[0, 1], isr_nodes=list(range(isr)))
    topics = [row(name="t", partitions=[partition])]
    return ClusterFacts("c", controller, [], topics), topics


def test_a_cluster_is_healthy_if_it_has_a_controller_and_every_partition_a_leader_and_replicas_enough() -> None:
    leaderless, uncontrolled = health_of(*a_cluster(leader=-1)), health_of(*a_cluster(controller=-1))
    out_of_sync, too_few = health_of(*a_cluster(isr=1)), health_of(*a_cluster(isr=1), {"t": 2})

    assert (leaderless["healthy"], leaderless["without_leader"]) == (False, ["t-0"])
    assert (uncontrolled["healthy"], uncontrolled["controller"]) == (False, None)
    assert (out_of_sync["healthy"], out_of_sync["not_in_sync"], out_of_sync["below_min_isr"]) == (True, ["t-0"], [])
    assert (too_few["healthy"], too_few["below_min_isr"]) == (False, ["t-0"])


def test_many_partitions_are_named_by_the_first() -> None:
    assert first_of([f"t-{number}" for number in range(7)]) == "t-0, t-1, t-2, t-3, t-4 and 2 more"


def test_the_fault_of_a_topic_is_named_once_for_all_its_partitions() -> None:
    partitions = [Partition(each, None if each == 3 else 1, [1, 2, 3], [1], 0, 0) for each in range(4)]
    topic = TopicDescription("t", False, partitions, {"min.insync.replicas": "2"}, {})

    assert list(complaints(topic)) == [
        "partition 3 has no leader now",
        "partitions 0-2 have replicas out of sync",
        "partitions 0-2 have fewer in-sync replicas than min.insync.replicas=2: producers with acks=all are refused",
    ]
