"""A cluster where kafka-python alone gets it wrong: its controller, its coordinators, what an old one lacks."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from minibroker import Cluster, patience
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import (
    api_name,
    connected,
    described_cluster,
    errors,
    lacking,
    live_brokers,
    of_each,
    release_of,
)
from minibroker.any_cluster.group_admin import GroupAdmin, Move
from minibroker.any_cluster.shortfalls import noting

DESCRIBE_QUORUM = 55


def client(*apis: int, quorum: Any = None, **answers: Any) -> Any:
    """A kafka-python client of brokers that have these APIs."""
    data = SimpleNamespace(api_versions=dict.fromkeys(apis, (0, 0)))
    manager = SimpleNamespace(broker_version_data=data, broker_version=(4, 3))
    methods = {name: lambda answer=answer: answer for name, answer in answers.items()}
    return SimpleNamespace(_manager=manager, describe_metadata_quorum=quorum, **methods)


def leads(broker: int) -> Any:
    return lambda: {"topics": [{"partitions": [{"leader_id": broker}]}]}


def refuses() -> Any:
    raise errors.ClusterAuthorizationFailedError


@pytest.mark.parametrize(
    ("apis", "quorum", "controller"),
    [
        ((), None, 2),  # with ZooKeeper
        ((DESCRIBE_QUORUM,), leads(1), 1),
        ((DESCRIBE_QUORUM,), leads(3000), 3000),  # a process that is no broker
        ((DESCRIBE_QUORUM,), leads(-1), -1),
        ((DESCRIBE_QUORUM,), refuses, 2),
    ],
)
def test_the_controller_is_the_leader_of_the_quorum_if_there_is_one(
    apis: tuple[int, ...], quorum: Any, controller: int
) -> None:
    found = described_cluster(client(*apis, quorum=quorum, describe_cluster={"controller_id": 2, "brokers": []}))

    assert found == {"controller_id": controller, "brokers": []}


@pytest.mark.parametrize(("is_limited", "found"), [(True, {1: 1, 3: 3}), (False, {1: 1, 2: 2, 3: 3})])
def test_what_is_asked_of_several_brokers_waits_for_a_late_one_only_without_a_deadline(
    monkeypatch: pytest.MonkeyPatch, is_limited: bool, found: dict[int, int]
) -> None:
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("minibroker.any_cluster.cluster.LATER_SECONDS", 0.2)

    def ask(broker: int) -> int:
        time.sleep(1.0 if broker == 2 else 0)
        return broker

    with noting() as lines, patience.limited() if is_limited else nullcontext():
        assert of_each(None, [1, 2, 3], ask, "what it leads") == found
    late = "broker 2 has not answered in time; what it leads is not shown; -X request.timeout.ms=30000 waits for it"
    assert list(lines) == ([late] if is_limited else [])


def test_a_deadline_within_another_is_the_earlier_one_and_can_be_lifted() -> None:
    with patience.limited():
        until = patience.until()
        with patience.limited():
            assert patience.until() == until
            patience.lift()
            assert patience.left_seconds() == math.inf
        assert patience.until() == until


def test_brokers_that_are_registered_and_not_alive_are_no_brokers_of_the_cluster() -> None:
    rows = [{"broker_id": number, "is_fenced": number == 3} for number in (1, 2, 3)]
    asked = client(describe_cluster={"controller_id": 1, "brokers": rows})

    assert [row["broker_id"] for row in described_cluster(asked)["brokers"]] == [1, 2]
    assert live_brokers(asked) == rows[:2]


def test_apis_and_releases_that_kafka_python_does_not_know_have_their_names() -> None:
    assert [api_name(key) for key in (0, 92, 93, 94, 4711)] == [
        "Produce", "DeleteShareGroupOffsets", "StreamsGroupTopologyDescriptionUpdate", "UnregisterController", "4711"
    ]  # fmt: skip
    assert (release_of(client(0, 93, 94)), release_of(client(0, 92))) == ((4, 4), (4, 3))


@pytest.mark.parametrize(
    ("message", "name", "release"),
    [
        ("Kafka broker does not support the 'ListTransactionsRequest' Kafka protocol.", "ListTransactions", "3.0"),
        ("Kafka broker does not support the 'DescribeConfigsRequest' Kafka protocol.", "DescribeConfigs", "0.11"),
        ("Kafka broker does not support the 'MetadataRequest' Kafka protocol.", "Metadata", "0.11"),
        ("No version of the 'Fetch' Kafka protocol is supported by both", "", "0.11"),
    ],
)
def test_a_release_is_named_that_has_the_api(message: str, name: str, release: str) -> None:
    assert lacking(message) == (name, release)


@pytest.mark.integration
@pytest.mark.slow
def test_a_connection_that_is_kept_finds_a_coordinator_that_has_moved() -> None:
    with Cluster(2) as cluster, connected(parse_bootstrap(cluster.bootstrap_servers)) as kept:
        cluster.create_topic("orders", partitions=1)
        admin = GroupAdmin(kept)
        admin.reset("billing", [Move("orders", 0, None, 0)])

        for broker in (1, 2):
            cluster.move_coordinator("billing", broker)

            assert admin.committed("billing") == {("orders", 0): 0}
            assert [each.group for each in admin.groups()] == ["billing"]
