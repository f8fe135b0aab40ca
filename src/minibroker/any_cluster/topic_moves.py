"""The requests of `topics elect`, `move` and `moves`: who leads partitions, and which brokers have their replicas."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from minibroker.admin.moves import Move, outcome_of, refusal
from minibroker.admin.outcomes import Outcome
from minibroker.admin.partitions import chosen
from minibroker.any_cluster.cluster import release_of, topics_of
from minibroker.any_cluster.partition_offsets import partitions_of
from minibroker.client.client import Client
from minibroker.client.errors import check
from minibroker.client.topic_partition import TopicPartition, by_topic
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey

REQUEST_TIMEOUT_MS = 25_000
POLL_SECONDS = 0.1
PREFERRED, UNCLEAN = 0, 1  # types of elections, as ElectLeaders numbers them
FIRST_WITH_ELECTIONS = (2, 2)
FIRST_WITH_UNCLEAN_ELECTIONS = (2, 4)
FIRST_WITH_MOVES = (2, 4)


def elect(client: Client, topics: Collection[str], numbers: Collection[int], *, is_unclean: bool) -> list[Outcome]:
    """Have preferred replicas lead again; or, where no replica in sync is alive, another one.

    Of all topics, without names: then only those partitions have an outcome whose leader was to change.
    """
    require(client, FIRST_WITH_UNCLEAN_ELECTIONS if is_unclean else FIRST_WITH_ELECTIONS, "elections of leaders")
    answer = client.at_controller(
        ApiKey.ELECT_LEADERS,
        election_type=UNCLEAN if is_unclean else PREFERRED,
        topic_partitions=list(by_topic(partitions(client, topics, numbers)).items()),
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    if answer.error_code:
        raise CommandFailed(refusal("the cluster", answer.error_code))
    outcomes = [
        outcome_of(TopicPartition(topic.topic, row.partition), row.error_code, "elected")
        for topic in answer.topics
        for row in topic.partitions
    ]
    return sorted(each for each in outcomes if topics or each.outcome != "unchanged")


def move(client: Client, topic: str, numbers: Collection[int], replicas: Sequence[int] | None) -> list[Outcome]:
    """Begin to move partitions to these brokers, the preferred leader first; None: back again."""
    require(client, FIRST_WITH_MOVES, "moves of replicas")
    if replicas is not None:
        check_brokers(client, replicas)
    rows = [(each.partition, replicas) for each in partitions(client, [topic], numbers)]
    answer = client.at_controller(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=REQUEST_TIMEOUT_MS, topics=[(topic, rows)]
    )
    check(answer.error_code, answer.error_message)
    done = "cancelled" if replicas is None else "moving"
    return [
        outcome_of(TopicPartition(found.name, row.partition), row.error_code, done)
        for found in answer.topics
        for row in sorted(found.partitions)
    ]


def moves(client: Client, topics: Collection[str] = ()) -> list[Move]:
    """List what moves at the moment, of all topics without names."""
    require(client, FIRST_WITH_MOVES, "moves of replicas")
    named = list(by_topic(partitions_of(client, topics)).items()) if topics else None
    answer = client.at_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, timeout_ms=REQUEST_TIMEOUT_MS, topics=named)
    check(answer.error_code, answer.error_message)
    return sorted(
        Move(topic.name, row.partition, row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in answer.topics
        for row in topic.partitions
    )


def until_moved(client: Client, outcomes: Sequence[Outcome], topic: str) -> list[Outcome]:
    """Wait until what these outcomes have begun is done, for as long as it takes."""
    begun = {each.name for each in outcomes if each.error is None}
    while begun & {f"{each.topic}-{each.partition}" for each in moves(client, [topic])}:
        time.sleep(POLL_SECONDS)
    return [each._replace(outcome="moved") if each.outcome == "moving" else each for each in outcomes]


def partitions(client: Client, topics: Collection[str], numbers: Collection[int]) -> list[TopicPartition]:
    every = topics or [row.name for row in topics_of(client)]
    return chosen(partitions_of(client, every), numbers)


def check_brokers(client: Client, replicas: Sequence[int]) -> None:
    client.metadata([])
    alive = sorted(client.brokers)
    for broker in replicas:
        if broker not in alive:
            raise CommandFailed(
                f"no broker {broker} is alive in the cluster; choose among {', '.join(map(str, alive))}"
            )


def require(client: Client, release: tuple[int, ...], what: str) -> None:
    found = release_of(client)
    if found < release:
        first, this = (".".join(map(str, each)) for each in (release, found))
        raise CommandFailed(
            f"the cluster is of Apache Kafka {this}, and {what} by request came with {first}; use the tools of its "
            "release, which ask ZooKeeper"
        )
