"""What a broker answers that acts as a release: error codes of its time, and its habits."""

from __future__ import annotations

import pytest

from minibroker.broker.apis.known_errors import CAME_WITH, Places, error_places, known_code
from minibroker.broker.config.profiles import profile_of
from minibroker.protocol.api import API_TABLE, Api, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import NOW_MS, MakeBroker
from tests.broker.releases import BROKER, PROFILES, TOPIC, create

# -- error codes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("0.10", ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("0.11", ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ("1.1", ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.UNKNOWN_PRODUCER_ID),
        ("0.11", ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("2.0", ErrorCode.LISTENER_NOT_FOUND, ErrorCode.LISTENER_NOT_FOUND),
        ("2.0", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ("2.0", ErrorCode.NONE, ErrorCode.NONE),
    ],
)
def test_a_code_that_came_after_the_release_is_said_otherwise(name: str, code: ErrorCode, said: ErrorCode) -> None:
    assert profile_of(name).error_code_for(code) == said


@pytest.mark.parametrize(
    ("name", "said"), [("0.11", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), ("1.1", ErrorCode.UNKNOWN_PRODUCER_ID)]
)
async def test_a_producer_there_is_no_trace_of_is_refused_in_words_of_the_release(
    make_broker: MakeBroker, name: str, said: ErrorCode
) -> None:
    broker = make_broker(profile=profile_of(name))
    await create(broker, "topic")
    batch = build_batch([Record(0, NOW_MS, None, b"value", ())], producer_id=4711, producer_epoch=0, base_sequence=5)

    answer = await broker.call(ApiKey.PRODUCE, 3, acks=1, timeout_ms=1000, topics=[("topic", [(0, batch)])])

    row = answer.topics[0].partitions[0]
    assert (said, -1) == (row.error_code, row.base_offset)


async def test_a_partitions_code_is_said_otherwise_and_the_rest_stays(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("0.11")._replace(last_error=ErrorCode.OFFSET_OUT_OF_RANGE))
    await create(broker, "topic")
    await create(broker, "other")

    answer = await broker.fetch(("topic", 0, 0), ("other", 0, 9), ("nope", 0, 0), version=5)

    rows = [(topic.topic, row.error_code) for topic in answer.topics for row in topic.partitions]
    assert sorted(rows) == [
        ("nope", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("other", ErrorCode.OFFSET_OUT_OF_RANGE),
        ("topic", ErrorCode.NONE),
    ]


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_every_error_code_of_every_answer_is_looked_at(api: Api) -> None:
    declared = [path for path, field in api.response.walk() if field.name == "error_code"]

    assert count_of(error_places(api.response.fields)) == len(declared)


def count_of(places: Places) -> int:
    return sum(1 if inner is None else count_of(inner) for _, inner in places)


STORAGE_ERROR, NOT_LEADER = ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_FOR_PARTITION
FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("key", "first", "code", "before"),
    [
        (ApiKey.PRODUCE, 4, STORAGE_ERROR, NOT_LEADER),
        (ApiKey.FETCH, 6, STORAGE_ERROR, NOT_LEADER),
        (ApiKey.INIT_PRODUCER_ID, 4, FENCED, OLD_EPOCH),
        (ApiKey.ADD_PARTITIONS_TO_TXN, 2, FENCED, OLD_EPOCH),
        (ApiKey.ADD_OFFSETS_TO_TXN, 2, FENCED, OLD_EPOCH),
        (ApiKey.END_TXN, 2, FENCED, OLD_EPOCH),
    ],
)
def test_a_code_that_came_with_a_version_is_not_given_to_older_ones(
    key: ApiKey, first: int, code: ErrorCode, before: ErrorCode
) -> None:
    assert (known_code(key, first - 1, code), known_code(key, first, code)) == (before, code)
    assert known_code(key, 0, ErrorCode.UNKNOWN_SERVER_ERROR) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert known_code(key, 0, ErrorCode.NONE) is ErrorCode.NONE
    assert len(CAME_WITH) == 6


# -- habits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "state"), [("0.11", "AwaitingSync"), ("1.1", "CompletingRebalance")])
async def test_a_group_that_waits_for_its_leader_is_called_by_the_name_of_its_time(
    make_broker: MakeBroker, name: str, state: str
) -> None:
    broker = make_broker(profile=profile_of(name), group_initial_rebalance_delay_ms=0)
    await broker.call(ApiKey.FIND_COORDINATOR, 0, key="group")
    await broker.call(
        ApiKey.JOIN_GROUP,
        0,
        group_id="group",
        session_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[("range", b"")],
    )

    described = await broker.call(ApiKey.DESCRIBE_GROUPS, 0, groups=["group"])

    assert described.groups[0].group_state == state


@pytest.mark.parametrize(("name", "error"), [("1.1", ErrorCode.NONE), ("2.0", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
async def test_offsets_of_partitions_a_topic_does_not_have(
    make_broker: MakeBroker, name: str, error: ErrorCode
) -> None:
    broker = make_broker(profile=profile_of(name))
    await create(broker, "topic")
    await broker.call(ApiKey.FIND_COORDINATOR, 0, key="group")
    topics = [("topic", [(7, 5, -1, -1, "")]), ("nope", [(0, 5, -1, -1, "")])]

    answer = await broker.call(ApiKey.OFFSET_COMMIT, 2, group_id="group", topics=topics)

    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert sorted(codes) == sorted([error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


@pytest.mark.parametrize(("name", "error"), [("1.1", ErrorCode.NONE), ("2.0", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
async def test_configs_of_a_topic_there_is_not(make_broker: MakeBroker, name: str, error: ErrorCode) -> None:
    broker = make_broker(profile=profile_of(name))

    described = await broker.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[(TOPIC, "nope", ["retention.ms"])])

    assert error == described.results[0].error_code
    assert (error == ErrorCode.NONE) == bool(described.results[0].configs)


async def test_before_1_1_a_broker_cannot_be_changed(make_broker: MakeBroker) -> None:
    broker = make_broker(profile=profile_of("0.11"))
    wish = [(BROKER, "0", [("log.retention.ms", "9")])]

    altered = await broker.call(ApiKey.ALTER_CONFIGS, 0, resources=wish, validate_only=False)
    described = await broker.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[(BROKER, "0", ["log.retention.ms"])])
    of_all = await broker.call(ApiKey.DESCRIBE_CONFIGS, 0, resources=[(BROKER, "", None)])

    assert [altered.responses[0].error_code, of_all.results[0].error_code] == [ErrorCode.INVALID_REQUEST] * 2
    assert described.results[0].configs[0].read_only
    assert described.results[0].configs[0].value is None


@pytest.mark.parametrize(("name", "is_default"), [("0.11", True), ("1.1", False)])
async def test_a_topics_default_that_the_broker_was_given(make_broker: MakeBroker, name: str, is_default: bool) -> None:
    broker = make_broker(profile=profile_of(name), log_retention_ms=1000)
    await create(broker, "topic", segment_bytes="2000")

    described = await broker.call(
        ApiKey.DESCRIBE_CONFIGS, 0, resources=[(TOPIC, "topic", ["retention.ms", "segment.bytes"])]
    )

    rows = {row.name: row.is_default for row in described.results[0].configs}
    assert rows == {"retention.ms": is_default, "segment.bytes": False}


@pytest.mark.parametrize("name", PROFILES)
async def test_a_topic_that_may_not_be_deleted(make_broker: MakeBroker, name: str) -> None:
    broker = make_broker(profile=profile_of(name), delete_topic_enable="false")
    await create(broker, "topic")

    answer = await broker.call(ApiKey.DELETE_TOPICS, 0, topic_names=["topic", "nope"], timeout_ms=1000)

    assert [(row.name, row.error_code) for row in answer.topics] == [
        ("topic", ErrorCode.REQUEST_TIMED_OUT),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
