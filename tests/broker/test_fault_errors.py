"""Errors told on purpose: for their topics and partitions alone, all else is as ever, and nothing else is done."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.broker.config.profiles import profile_of
from minibroker.broker.transaction.transaction import EMPTY
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name
from tests.broker.faulty import Faulty, end_of, errors_of, produce_to
from tests.broker.transactional import Producer

NOT_LEADER = ErrorCode.NOT_LEADER_FOR_PARTITION


@pytest.fixture
async def faulty(broker: InMemoryBroker) -> Faulty:
    await broker.create_topic("orders", 2)
    await broker.create_topic("payments", 2)
    return Faulty(broker)


async def test_only_the_rows_of_the_faults_partition_carry_the_error(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", partition=0)

    answered = await produce_to(faulty.broker, ("orders", 0), ("orders", 1), ("payments", 0))

    assert answered == {("orders", 0): NOT_LEADER, ("orders", 1): 0, ("payments", 0): 0}
    assert [end_of(faulty.broker, "orders"), end_of(faulty.broker, "orders", 1)] == [0, 1]
    assert fault.count == 1


async def test_a_fault_without_a_partition_is_for_all_of_the_topic(faulty: Faulty) -> None:
    faulty.add("error", error="not_leader_for_partition", api="Produce", topic="orders")

    answered = await produce_to(faulty.broker, ("orders", 0), ("orders", 1), ("payments", 0))

    assert answered == {("orders", 0): NOT_LEADER, ("orders", 1): NOT_LEADER, ("payments", 0): 0}


async def test_after_the_append_the_records_are_there_and_the_client_is_told_the_error(faulty: Faulty) -> None:
    faulty.add("error", error="REQUEST_TIMED_OUT", api="produce", topic="orders", when="after")

    answered = await produce_to(faulty.broker, ("orders", 0), ("payments", 0))

    assert answered == {("orders", 0): ErrorCode.REQUEST_TIMED_OUT, ("payments", 0): 0}
    assert end_of(faulty.broker, "orders") == 1


async def test_a_fault_without_a_topic_fails_the_whole_produce(faulty: Faulty) -> None:
    faulty.add("error", error="KAFKA_STORAGE_ERROR", api="produce")

    answered = await produce_to(faulty.broker, ("orders", 0), ("payments", 0))

    assert set(answered.values()) == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert end_of(faulty.broker, "orders") == 0


async def test_two_errors_strike_their_own_partitions_of_one_request(faulty: Faulty) -> None:
    first = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", topic="orders", partition=0)
    second = faulty.add("error", error="REQUEST_TIMED_OUT", api="produce", topic="orders", when="after")

    answered = await produce_to(faulty.broker, ("orders", 0), ("orders", 1))

    assert answered == {("orders", 0): NOT_LEADER, ("orders", 1): ErrorCode.REQUEST_TIMED_OUT}
    assert [end_of(faulty.broker, "orders"), end_of(faulty.broker, "orders", 1)] == [0, 1]
    assert [first.count, second.count] == [1, 1]


async def test_acks_0_is_told_of_its_error_by_the_end_of_the_connection(faulty: Faulty) -> None:
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", topic="orders")

    with pytest.raises(CloseConnectionError, match="NOT_LEADER_FOR_PARTITION"):
        await produce_to(faulty.broker, ("orders", 0), ("payments", 0), acks=0)

    assert [end_of(faulty.broker, "orders"), end_of(faulty.broker, "payments")] == [0, 1]


async def test_times_strikes_and_then_it_is_used_up(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", times=2, skip=1)

    answered = [await produce_to(faulty.broker, ("orders", 0)) for _ in range(5)]

    assert [row["orders", 0] for row in answered] == [0, NOT_LEADER, NOT_LEADER, 0, 0]
    assert (fault.count, fault.is_active) == (2, False)
    assert faulty.injector.active() == []


async def test_a_lifted_fault_strikes_no_more_and_still_says_how_often_it_has(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce")
    await produce_to(faulty.broker, ("orders", 0))

    faulty.injector.lift(fault.id)

    assert await produce_to(faulty.broker, ("orders", 0)) == {("orders", 0): 0}
    assert faulty.injector.describe(fault.id) | {"text": ""} == {"count": 1, "is_active": False, "text": ""}


@pytest.mark.parametrize("version", [1, 12])
async def test_a_metadata_error_is_for_its_topic_and_the_brokers_are_told(faulty: Faulty, version: int) -> None:
    faulty.add("error", error="LEADER_NOT_AVAILABLE", api="metadata", topic="orders")

    answer = await faulty.broker.call(ApiKey.METADATA, version, topics=None)

    errors = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
    assert errors == {"orders": (ErrorCode.LEADER_NOT_AVAILABLE, 0), "payments": (0, 2)}
    assert len(answer.brokers) == 1


async def test_a_metadata_error_can_be_for_one_partition(faulty: Faulty) -> None:
    faulty.add("error", error="LEADER_NOT_AVAILABLE", api="metadata", topic="orders", partition=1)

    answer = await faulty.broker.call(ApiKey.METADATA, 4, topics=by_name("orders"))

    (topic,) = answer.topics
    assert topic.error_code == 0
    rows = {row.partition: (row.error_code, row.leader_id) for row in topic.partitions}
    assert rows == {0: (0, 0), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1)}


async def test_a_metadata_request_for_no_such_topic_is_not_struck(faulty: Faulty) -> None:
    fault = faulty.add("error", error="LEADER_NOT_AVAILABLE", api="metadata", topic="orders")

    await faulty.broker.call(ApiKey.METADATA, 4, topics=by_name("payments"))

    assert fault.count == 0


async def test_of_the_partitions_of_a_transaction_all_are_added_or_none(faulty: Faulty) -> None:
    producer = Producer(faulty.broker)
    await faulty.broker.call(ApiKey.FIND_COORDINATOR, 1, key="t", key_type=1)
    assert await producer.initialize() is ErrorCode.NONE
    faulty.add("error", error="UNKNOWN_TOPIC_OR_PARTITION", api="add_partitions_to_txn", topic="orders", partition=0)

    assert await producer.add("orders", 0, 1) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    ]
    assert await producer.add("orders", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    transaction = faulty.broker.parts.transactions.transactions["t"]
    assert transaction.state is EMPTY


async def test_an_api_without_topics_carries_the_error_as_a_whole(faulty: Faulty) -> None:
    faulty.add("error", error="COORDINATOR_LOAD_IN_PROGRESS", api=["heartbeat", "find_coordinator"])

    heartbeat = await faulty.broker.call(ApiKey.HEARTBEAT, 1, group_id="g", generation_id=1, member_id="m")
    found = await faulty.broker.call(ApiKey.FIND_COORDINATOR, 1, key="g")

    assert heartbeat.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_an_api_without_topics_does_what_was_asked_when_it_fails_after_that(faulty: Faulty) -> None:
    faulty.add("error", error="REQUEST_TIMED_OUT", api="init_producer_id", when="after", times=1)
    faulty.add("error", error="REQUEST_TIMED_OUT", api="init_producer_id", when="before", times=1)

    answers = [
        await faulty.broker.call(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=0)
        for _ in range(3)
    ]

    assert [answer.error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, 0]
    assert answers[2].producer_id == 1, "the first took an id, the second did not"


async def test_an_unsupported_version_is_said_in_the_one_that_every_client_reads(faulty: Faulty) -> None:
    faulty.add("error", error="UNSUPPORTED_VERSION", api="api_versions")
    frame = encode_request(ApiKey.API_VERSIONS, 3, 1, "test", API_TABLE[ApiKey.API_VERSIONS].request())

    answer = await faulty.broker.answer(frame[4:])

    assert answer is not None
    assert decode_response(ApiKey.API_VERSIONS, 0, answer)[1].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_what_a_struck_request_is_refused_for_is_answered_as_ever(faulty: Faulty) -> None:
    fault = faulty.add("delay", seconds=0.001, api="elect_leaders")

    answer = await faulty.broker.call(ApiKey.ELECT_LEADERS, 2, election_type=7, topic_partitions=None, timeout_ms=1000)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert fault.count == 1


async def test_the_committed_offsets_of_other_partitions_are_kept(faulty: Faulty) -> None:
    await faulty.broker.call(ApiKey.FIND_COORDINATOR, 1, key="g")
    faulty.add("error", error="NOT_COORDINATOR", api="offset_commit", topic="orders", partition=0)
    rows = [(partition, 7, -1, -1, "") for partition in (0, 1)]

    answer = await faulty.broker.call(
        ApiKey.OFFSET_COMMIT, 2, group_id="g", generation_id=-1, member_id="", topics=[("orders", rows)]
    )
    kept = await faulty.broker.call(ApiKey.OFFSET_FETCH, 2, group_id="g", topics=[("orders", [0, 1])])

    assert errors_of(answer) == {("orders", 0): ErrorCode.NOT_COORDINATOR, ("orders", 1): 0}
    assert {row.partition: row.committed_offset for row in kept.topics[0].partitions} == {0: -1, 1: 7}


async def test_an_offset_fetch_of_everything_fails_for_the_topic_alone(faulty: Faulty) -> None:
    await faulty.broker.call(ApiKey.FIND_COORDINATOR, 1, key="g")
    rows = [("orders", [(0, 7, -1, -1, "")]), ("payments", [(0, 8, -1, -1, "")])]
    await faulty.broker.call(ApiKey.OFFSET_COMMIT, 2, group_id="g", generation_id=-1, member_id="", topics=rows)
    faulty.add("error", error="UNSTABLE_OFFSET_COMMIT", api="offset_fetch", topic="orders")

    answer = await faulty.broker.call(ApiKey.OFFSET_FETCH, 2, group_id="g", topics=None)

    assert errors_of(answer) == {("orders", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT, ("payments", 0): 0}
    assert answer.error_code == 0


@pytest.mark.parametrize("version", [1, 6])
async def test_a_topic_that_is_struck_is_not_deleted(faulty: Faulty, version: int) -> None:
    faulty.add("error", error="NOT_CONTROLLER", api="delete_topics", topic="orders")
    both = {"topics": by_name_and_id("orders", "payments")} if version == 6 else {"topic_names": ["orders", "payments"]}

    answer = await faulty.broker.call(ApiKey.DELETE_TOPICS, version, timeout_ms=1000, **both)

    assert {row.name: row.error_code for row in answer.topics} == {"orders": ErrorCode.NOT_CONTROLLER, "payments": 0}
    metadata = await faulty.broker.call(ApiKey.METADATA, 1, topics=None)
    assert [topic.name for topic in metadata.topics] == ["orders"]


def by_name_and_id(*names: str) -> list[Any]:
    return [(name, topic_id) for topic_id, name in by_name(*names)]


async def test_offsets_of_other_partitions_are_listed(faulty: Faulty) -> None:
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="list_offsets", topic="orders", partition=1)
    rows = [(partition, -1, -1, 1) for partition in (0, 1)]

    answer = await faulty.broker.call(ApiKey.LIST_OFFSETS, 2, replica_id=-1, topics=[("orders", rows)])

    assert errors_of(answer) == {("orders", 0): 0, ("orders", 1): NOT_LEADER}


async def test_an_error_is_one_that_the_release_knows(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("0.10"))
    faulty = Faulty(broker)

    with pytest.raises(ValueError, match=r"Apache Kafka 0\.10\.2\.2, which this broker acts as, has no KAFKA_STORAGE"):
        faulty.add("error", error="KAFKA_STORAGE_ERROR", api="produce")
    with pytest.raises(ValueError, match="this broker offers no API 'delete_groups'"):
        faulty.add("delay", seconds=1, api="delete_groups")
