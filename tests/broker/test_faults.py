"""Faults on purpose: errors for their topics and partitions alone, time and connections; the logs are as they were."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.broker.config.profiles import profile_of
from minibroker.broker.transaction.transaction import EMPTY
from minibroker.broker.wings.testing.faults.fault import Fault
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.asking import seconds
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.faulty import Faulty, end_of, errors_of, produce_to
from tests.broker.group_clients import GroupClient
from tests.broker.transactional import started, state_of
from tests.requests import by_name

NOT_LEADER = ErrorCode.NOT_LEADER_FOR_PARTITION


BOTH = ("orders", 0, 0), ("orders", 1, 0)


def strike(faulty: Faulty, api: str = "produce", topic: str = "orders", **arguments: Any) -> Fault:
    return faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api=api, topic=topic, **arguments)


@pytest.fixture
async def faulty(broker: InMemoryBroker) -> Faulty:
    await broker.create_topic("orders", 2)
    await broker.create_topic("payments", 2)
    return Faulty(broker)


@pytest.mark.parametrize(
    ("fault", "orders", "payments", "ends"),
    [
        pytest.param({"topic": "orders", "partition": 0}, [NOT_LEADER, 0], 0, [0, 1], id="one partition"),
        pytest.param({"topic": "orders"}, [NOT_LEADER, NOT_LEADER], 0, [0, 0], id="all of a topic"),
        pytest.param({"topic": "orders", "when": "after"}, [NOT_LEADER] * 2, 0, [1, 1], id="after the append"),
        pytest.param({}, [NOT_LEADER, NOT_LEADER], NOT_LEADER, [0, 0], id="the whole produce"),
        pytest.param({"client_id": "test", "topic": "payments"}, [0, 0], NOT_LEADER, [1, 1], id="its client id"),
        pytest.param({"client_id": "tes"}, [0, 0], 0, [1, 1], id="another client id"),
        pytest.param({"api": "fetch", "topic": "orders"}, [0, 0], 0, [1, 1], id="another API"),
    ],
)
async def test_an_error_of_a_produce_strikes_what_it_matches(
    faulty: Faulty, fault: dict[str, Any], orders: list[int], payments: int, ends: list[int]
) -> None:
    made = faulty.add("error", **{"error": "not_leader_for_partition", "api": "Produce", **fault})

    answered = await produce_to(faulty.broker, ("orders", 0), ("orders", 1), ("payments", 0))

    assert answered == {("orders", 0): orders[0], ("orders", 1): orders[1], ("payments", 0): payments}
    assert [end_of(faulty.broker, "orders", partition) for partition in range(2)] == ends
    assert made.count == (NOT_LEADER in (*orders, payments))


async def test_two_errors_strike_their_own_partitions_of_one_request(faulty: Faulty) -> None:
    first = strike(faulty, partition=0)
    second = faulty.add("error", error="REQUEST_TIMED_OUT", api="produce", topic="orders", when="after")

    answered = await produce_to(faulty.broker, ("orders", 0), ("orders", 1))

    assert answered == {("orders", 0): NOT_LEADER, ("orders", 1): ErrorCode.REQUEST_TIMED_OUT}
    assert [end_of(faulty.broker, "orders"), end_of(faulty.broker, "orders", 1)] == [0, 1]
    assert [first.count, second.count] == [1, 1]


async def test_an_error_of_acks_0_closes_the_connection(faulty: Faulty) -> None:
    strike(faulty)

    with pytest.raises(CloseConnectionError, match="NOT_LEADER_FOR_PARTITION"):
        await produce_to(faulty.broker, ("orders", 0), ("payments", 0), acks=0)

    assert [end_of(faulty.broker, "orders"), end_of(faulty.broker, "payments")] == [0, 1]


async def test_a_fault_is_used_up_after_its_times(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", times=2, skip=1)

    answered = [await produce_to(faulty.broker, ("orders", 0)) for _ in range(5)]

    assert [row["orders", 0] for row in answered] == [0, NOT_LEADER, NOT_LEADER, 0, 0]
    assert (fault.count, fault.is_active) == (2, False)
    assert faulty.injector.active() == []


async def test_a_lifted_fault_strikes_no_more_and_keeps_its_count(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce")
    await produce_to(faulty.broker, ("orders", 0))

    faulty.injector.lift(fault.id)

    assert await produce_to(faulty.broker, ("orders", 0)) == {("orders", 0): 0}
    assert faulty.injector.describe(fault.id) | {"text": ""} == {"count": 1, "is_active": False, "text": ""}


async def test_a_metadata_error_can_be_for_one_partition(faulty: Faulty) -> None:
    faulty.add("error", error="LEADER_NOT_AVAILABLE", api="metadata", topic="orders", partition=1)

    answer = await faulty.broker.call(ApiKey.METADATA, 4, topics=by_name("orders"))

    (topic,) = answer.topics
    assert topic.error_code == 0
    rows = {row.partition: (row.error_code, row.leader_id) for row in topic.partitions}
    assert rows == {0: (0, 0), 1: (ErrorCode.LEADER_NOT_AVAILABLE, -1)}


async def test_of_the_partitions_of_a_transaction_all_are_added_or_none(faulty: Faulty) -> None:
    producer = await started(faulty.broker)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    faulty.add("error", error=unknown.name, api="add_partitions_to_txn", topic="orders", partition=0)

    assert await producer.add("orders", 0, 1) == [unknown, ErrorCode.OPERATION_NOT_ATTEMPTED]
    assert await producer.add("orders", 0) == [unknown]
    assert state_of(faulty.broker) is EMPTY


async def test_an_api_without_topics_does_what_was_asked_when_it_fails_after_that(faulty: Faulty) -> None:
    faulty.add("error", error="REQUEST_TIMED_OUT", api="init_producer_id", when="after", times=1)
    faulty.add("error", error="REQUEST_TIMED_OUT", api="init_producer_id", when="before", times=1)

    answers = [
        await faulty.broker.call(ApiKey.INIT_PRODUCER_ID, 0, transactional_id=None, transaction_timeout_ms=0)
        for _ in range(3)
    ]

    assert [answer.error_code for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT, 0]
    assert answers[2].producer_id == 1, "the first took an id, the second did not"


async def test_an_unsupported_version_is_answered_in_version_0(faulty: Faulty) -> None:
    faulty.add("error", error="UNSUPPORTED_VERSION", api="api_versions")

    answer = await faulty.broker.answer(faulty.broker.frame(ApiKey.API_VERSIONS, 3))

    assert answer is not None
    assert decode_response(ApiKey.API_VERSIONS, 0, answer)[1].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_an_invalid_request_is_refused_although_it_is_struck(faulty: Faulty) -> None:
    fault = faulty.add("delay", seconds=0.001, api="elect_leaders")

    answer = await faulty.broker.call(ApiKey.ELECT_LEADERS, 2, election_type=7, topic_partitions=None, timeout_ms=1000)

    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert fault.count == 1


async def test_offsets_are_committed_and_fetched_of_what_is_not_struck(faulty: Faulty) -> None:
    group = GroupClient(faulty.broker)
    await group.find()
    faulty.add("error", error="NOT_COORDINATOR", api="offset_commit", topic="orders", partition=0)
    faulty.add("error", error="UNSTABLE_OFFSET_COMMIT", api="offset_fetch", topic="payments", times=1)

    committed = await group.commit(("orders", 0, 7), ("orders", 1, 7), ("payments", 0, 7))
    everything = await group.committed()

    assert sorted(committed) == [0, 0, ErrorCode.NOT_COORDINATOR]
    assert errors_of(everything) == {("orders", 1): 0, ("payments", 0): ErrorCode.UNSTABLE_OFFSET_COMMIT}
    assert everything.error_code == 0
    assert [await group.offset("orders"), await group.offset("orders", 1), await group.offset("payments")] == [-1, 7, 7]


@pytest.mark.parametrize("version", [1, 6])
async def test_a_topic_that_is_struck_is_not_deleted(faulty: Faulty, version: int) -> None:
    faulty.add("error", error="NOT_CONTROLLER", api="delete_topics", topic="orders")
    names = ["orders", "payments"]
    both: dict[str, Any] = {"topic_names": names} if version < 6 else {"topics": [(name, ZERO_UUID) for name in names]}

    answer = await faulty.broker.call(ApiKey.DELETE_TOPICS, version, timeout_ms=1000, **both)

    assert {row.name: row.error_code for row in answer.topics} == {"orders": ErrorCode.NOT_CONTROLLER, "payments": 0}
    metadata = await faulty.broker.call(ApiKey.METADATA, 1, topics=None)
    assert [topic.name for topic in metadata.topics] == ["orders"]


async def test_an_error_is_one_that_the_release_knows(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("0.10"))
    faulty = Faulty(broker)

    with pytest.raises(ValueError, match=r"Apache Kafka 0\.10\.2\.2, which this broker acts as, has no KAFKA_STORAGE"):
        faulty.add("error", error="KAFKA_STORAGE_ERROR", api="produce")
    with pytest.raises(ValueError, match="this broker offers no API 'delete_groups'"):
        faulty.add("delay", seconds=1, api="delete_groups")


async def test_a_fetch_with_an_error_is_answered_at_once_and_reads_the_others(faulty: Faulty) -> None:
    await faulty.broker.produce("orders", [b"a"])
    strike(faulty, "fetch", partition=1)

    answer = await faulty.broker.fetch(*BOTH, max_wait_ms=60_000, min_bytes=1 << 20)

    assert errors_of(answer) == {("orders", 0): 0, ("orders", 1): NOT_LEADER}
    records = {row.partition: bytes(row.records) for row in answer.topics[0].partitions}
    assert records[0] and not records[1]


async def test_a_partition_of_the_fetch_session_is_struck_though_the_request_names_none(faulty: Faulty) -> None:
    begun = await faulty.broker.fetch(*BOTH, session_id=0, session_epoch=0)
    strike(faulty, "fetch", partition=1, times=1)

    struck = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=1, max_wait_ms=60_000)
    after = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=2)

    assert begun.session_id > 0
    assert errors_of(struck) == {("orders", 1): NOT_LEADER}
    assert errors_of(after) == {("orders", 1): 0}, "the session tells that the error has gone"


async def test_a_partition_struck_when_the_session_begins_is_in_it(faulty: Faulty) -> None:
    strike(faulty, "fetch", partition=1, times=1)
    begun = await faulty.broker.fetch(*BOTH, session_id=0, session_epoch=0)
    await faulty.broker.produce("orders", [b"a"], partition=1)

    after = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=1)

    assert errors_of(begun) == {("orders", 0): 0, ("orders", 1): NOT_LEADER}
    assert errors_of(after) == {("orders", 1): 0}
    assert after.topics[0].partitions[0].records


async def test_a_partition_that_the_session_forgets_is_not_struck(faulty: Faulty) -> None:
    begun = await faulty.broker.fetch(*BOTH, session_id=0, session_epoch=0)
    fault = strike(faulty, "fetch", partition=1)

    answer = await faulty.broker.fetch(session_id=begun.session_id, session_epoch=1, forgotten_topics=[("orders", [1])])

    assert (list(answer.topics), fault.count) == ([], 0)


async def test_an_unknown_session_is_not_struck_and_an_error_of_a_session_is_the_whole_answer(faulty: Faulty) -> None:
    fault = faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="fetch")
    unknown = await faulty.broker.fetch(("orders", 0, 0), session_id=77, session_epoch=5)
    assert (unknown.error_code, fault.count) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)

    faulty.add("error", error="INVALID_FETCH_SESSION_EPOCH", api="fetch")
    begun = await faulty.broker.fetch(("orders", 0, 0), session_id=0, session_epoch=0)
    assert (begun.error_code, list(begun.topics)) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])


@pytest.mark.parametrize("version", [2, 3, 8, 12])
async def test_a_wrong_crc_is_in_a_copy_of_the_records(faulty: Faulty, version: int) -> None:
    await faulty.broker.produce("orders", [b"a", b"b"])
    await faulty.broker.produce("orders", [b"c"])
    right = await faulty.broker.fetch(("orders", 0, 0), version=version)
    fault = faulty.add("wrong_crc", topic="orders")

    wrong = await faulty.broker.fetch(("orders", 0, 0), version=version)
    faulty.injector.lift(fault.id)
    again = await faulty.broker.fetch(("orders", 0, 0), version=version)

    records = [bytes(each.topics[0].partitions[0].records) for each in (right, wrong, again)]
    changed = [at for at, (ours, theirs) in enumerate(zip(records[0], records[1], strict=True)) if ours != theirs]
    crc_at = 17 if version > 3 else 12
    assert changed[:4] == list(range(crc_at, crc_at + 4))
    assert len(changed) == (8 if version > 3 else 12), "of every batch, or message"
    assert records[0] == records[2]
    assert fault.count == 1


async def test_a_fetch_without_records_does_not_use_a_wrong_crc_up(faulty: Faulty) -> None:
    fault = faulty.add("wrong_crc", topic="orders", times=1)

    await faulty.broker.fetch(("orders", 0, 0))

    assert fault.count == 0


@pytest.mark.parametrize(("when", "end"), [("before", 0), ("after", 1)])
async def test_the_records_of_a_delayed_request_wait_too_or_not(faulty: Faulty, when: str, end: int) -> None:
    fault = faulty.add("delay", seconds=3600, api="produce", when=when)
    held = await faulty.broker.park(produce_to, faulty.broker, ("orders", 0))
    end_meanwhile = end_of(faulty.broker, "orders")

    faulty.injector.lift(fault.id)  # and what it holds goes on at once

    assert await held.seen() is not None
    assert (end_meanwhile, end_of(faulty.broker, "orders")) == (end, 1)


@pytest.mark.parametrize("connection", [2, "127.0.0.1:50002"])
async def test_a_fault_is_for_one_connection(faulty: Faulty, connection: int | str) -> None:
    await produce_to(faulty.broker, ("orders", 0))
    faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce", connection=connection)

    answered = [await produce_to(faulty.broker, ("orders", 0))]
    faulty.connect("127.0.0.1:50002")
    answered.append(await produce_to(faulty.broker, ("orders", 0)))

    assert [row["orders", 0] for row in answered] == [0, NOT_LEADER]
    assert faulty.injector.connections() == [(1, "127.0.0.1:50000", "test"), (2, "127.0.0.1:50002", "test")]


@pytest.mark.parametrize(("when", "end"), [("before", 0), ("after", 1)])
async def test_a_connection_is_closed_before_or_after_the_append(faulty: Faulty, when: str, end: int) -> None:
    faulty.add("disconnect", api="produce", when=when)

    with pytest.raises(CloseConnectionError, match=f"disconnect {when} serving"):
        await produce_to(faulty.broker, ("orders", 0))

    assert end_of(faulty.broker, "orders") == end


async def test_a_torn_frame_is_the_first_half_of_the_answer(faulty: Faulty) -> None:
    whole = await faulty.broker.call(ApiKey.METADATA, 1, topics=None)
    faulty.add("torn_frame", api="metadata")

    with pytest.raises(CloseConnectionError) as torn:
        await faulty.broker.call(ApiKey.METADATA, 1, topics=None)

    size = int.from_bytes(torn.value.last_bytes[:4], "big")
    assert len(torn.value.last_bytes) == (4 + size) // 2
    assert whole.topics


async def test_an_error_and_a_delay_strike_one_request(faulty: Faulty, autojump_clock: Any) -> None:
    delay, error = faulty.add("delay", seconds=5), strike(faulty)

    waited_seconds, answered = await seconds(produce_to(faulty.broker, ("orders", 0), acks=-1))

    assert answered == {("orders", 0): NOT_LEADER}
    assert waited_seconds == pytest.approx(5)
    assert [delay.count, error.count] == [1, 1]


async def test_lifting_all_leaves_none_and_lets_go_what_they_hold(faulty: Faulty) -> None:
    made = [faulty.add("delay", seconds=3600, api="produce"), faulty.add("slow", bytes_per_second=10)]
    assert faulty.injector.active() == [fault.id for fault in made]
    held = await faulty.broker.park(produce_to, faulty.broker, ("orders", 0))

    faulty.injector.lift_all()

    assert await held.seen() is not None
    assert faulty.injector.active() == []


async def test_a_fault_of_an_earlier_process_is_unknown_and_lifted(faulty: Faulty) -> None:
    faulty.injector.lift(3)  # of the process before: it is lifted already
    with pytest.raises(ValueError, match="unknown fault 3: faults end with the broker's process"):
        faulty.injector.describe(3)


async def test_the_newest_faults_are_remembered_and_those_that_can_strike(broker: InMemoryBroker) -> None:
    faulty = Faulty(broker, kept_max=3)
    struck = [faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce") for _ in range(2)]
    faulty.injector.lift(struck[1].id)

    later = [faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce") for _ in range(2)]

    assert list(faulty.injector._faults) == [struck[0].id, *(each.id for each in later)]
    with pytest.raises(ValueError, match="the newest 3 are remembered"):
        faulty.injector.describe(struck[1].id)
    with pytest.raises(ValueError, match="3 faults are active; lift some"):
        faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce")
