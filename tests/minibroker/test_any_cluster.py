"""A cluster as the commands see it: its controller, its release, its coordinators, its deadline."""

from __future__ import annotations

import math
from typing import Any

import pytest

from minibroker import Cluster, patience
from minibroker.admin.group_offsets import Move
from minibroker.any_cluster import group_admin
from minibroker.any_cluster.api_names import api_name
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import connected, described_cluster, of_each, release_of
from minibroker.any_cluster.shortfalls import noting
from minibroker.client.client import Question
from minibroker.client.connection import newest_common
from minibroker.client.errors import NoAnswer, TooSlow, Unsupported
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.minibroker.answering import Answers, metadata, row


def leads(broker: int) -> Any:
    return row(topics=[row(partitions=[row(leader_id=broker)])])


@pytest.mark.parametrize(
    ("apis", "quorum", "controller"),
    [
        ([ApiKey.METADATA], None, 2),  # with ZooKeeper
        ([ApiKey.DESCRIBE_QUORUM], leads(1), 1),
        ([ApiKey.DESCRIBE_QUORUM], leads(3000), 3000),  # a process that is no broker
        ([ApiKey.DESCRIBE_QUORUM], leads(-1), -1),
        ([ApiKey.DESCRIBE_QUORUM], row(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), 2),
    ],
)
def test_the_controller_is_the_leader_of_the_quorum_if_there_is_one(
    apis: list[int], quorum: Any, controller: int
) -> None:
    client = Answers(apis, metadata=metadata(controller_id=2, brokers=[1, 2]), describe_quorum=quorum)

    assert described_cluster(client).controller_id == controller
    assert [each.id for each in described_cluster(client).brokers] == [1, 2]


def test_a_broker_without_an_answer_is_left_out_and_noted_unless_none_answers() -> None:
    late = TooSlow(2)
    client = Answers(list_groups=lambda body: late if body else "answered")
    questions = {each: Question(ApiKey.LIST_GROUPS, {"late": 1} if each == 2 else {}, each) for each in (1, 2)}

    with noting() as lines:
        assert of_each(client, questions, "what it leads") == {1: "answered"}
    assert list(lines) == [
        "broker 2 has not answered in time; what it leads is not shown; -X request.timeout.ms=30000 waits for it"
    ]
    with pytest.raises(NoAnswer, match="broker 2 has not answered in time"):
        of_each(client, {2: questions[2]}, "what it leads")


def test_a_deadline_within_another_is_the_earlier_one_and_can_be_lifted() -> None:
    with patience.limited():
        until = patience.until()
        with patience.limited():
            assert patience.until() == until
            patience.lift()
            assert patience.left_seconds() == math.inf
        assert patience.until() == until


def test_apis_and_releases_have_their_names() -> None:
    assert [api_name(key) for key in (0, 92, 93, 94, 4711)] == [
        "Produce", "DeleteShareGroupOffsets", "StreamsGroupTopologyDescriptionUpdate", "UnregisterController", "4711"
    ]  # fmt: skip
    assert release_of(Answers([0, 93, 94])) == (4, 4)
    assert release_of(Answers([ApiKey.DESCRIBE_LOG_DIRS])) == (4, 3)
    assert release_of(Answers([ApiKey.JOIN_GROUP, ApiKey.FETCH])) == (1, 1)


@pytest.mark.parametrize(
    ("api_key", "release"),
    [(ApiKey.LIST_TRANSACTIONS, "3.0"), (ApiKey.DESCRIBE_CONFIGS, "0.11"), (ApiKey.METADATA, "0.11")],
)
def test_a_release_is_named_that_has_the_api(api_key: ApiKey, release: str) -> None:
    with pytest.raises(Unsupported) as raised:
        newest_common(ASKED_TABLE[api_key], {})

    assert raised.value.release == release


@pytest.mark.integration
@pytest.mark.slow
def test_a_connection_that_is_kept_finds_a_coordinator_that_has_moved() -> None:
    with Cluster(2) as cluster, connected(parse_bootstrap(cluster.bootstrap_servers)) as kept:
        cluster.create_topic("orders", partitions=1)
        group_admin.reset(kept, "billing", [Move("orders", 0, None, 0)])

        for broker in (1, 2):
            cluster.move_coordinator("billing", broker)

            assert group_admin.committed(kept, "billing") == {("orders", 0): 0}
            assert [each.group for each in group_admin.groups(kept)] == ["billing"]
