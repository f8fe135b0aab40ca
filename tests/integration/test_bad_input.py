"""Hostile and broken bytes: each gets its error code or a closed connection, and the broker goes on.

What is expected is what Apache Kafka 2.0.1 answers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey, decode_response
from tests.integration.brokers import BrokerProcess
from tests.integration.conftest import SESSION_SETTINGS, NewTopic
from tests.integration.hostile_batches import (
    CLOSED,
    CORRUPT_MESSAGE,
    CRC_COVERS_FROM,
    HEADER_CASES,
    OK,
    RECORD_CASES,
    UNKNOWN_SERVER_ERROR,
    Outcome,
    valid,
)
from tests.integration.sample_requests import array_paths, is_nullable, position_of_count, sample_body, with_count
from tests.integration.wire import (
    RawConnection,
    fetch_body,
    framed,
    list_offsets_body,
    produce_body,
    request_frame,
    the_partition,
)

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
INVALID_REQUIRED_ACKS = 21
UNSUPPORTED_VERSION = 35
FETCH_SESSION_ID_NOT_FOUND = 70
UNSUPPORTED_COMPRESSION_TYPE = 76
LARGEST = 0x7FFFFFFF
# Where Apache Kafka 2.0.1 answers UNKNOWN_SERVER_ERROR: what is wrong by name, or nothing to do.
SAYS_MORE = (UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, OK)
APIS = sorted(ApiKey)

Connect = Callable[[], RawConnection]
Versions = dict[int, range]


@pytest.fixture
def connect(broker: BrokerProcess) -> Iterator[Connect]:
    """Open raw connections; after the test the same broker process still answers."""
    yield lambda: RawConnection(broker.host, broker.port)
    with RawConnection(broker.host, broker.port) as connection:
        answer = connection.call(ApiKey.API_VERSIONS, 0, API_TABLE[ApiKey.API_VERSIONS].request())
    assert answer.error_code == OK
    assert broker.is_running


@pytest.fixture(scope="module")
def served(broker: BrokerProcess) -> Versions:
    """The versions of each API that both the broker and our table know."""
    with RawConnection(broker.host, broker.port) as connection:
        answer = connection.call(ApiKey.API_VERSIONS, 0, API_TABLE[ApiKey.API_VERSIONS].request())
    return {
        row.api_key: range(row.min_version, min(row.max_version, API_TABLE[row.api_key].versions[1]) + 1)
        for row in answer.api_keys
        if row.api_key in API_TABLE
    }


def says_why(broker: BrokerProcess, connection: RawConnection, is_apache_kafka: bool) -> None:
    """minibroker logs one line with the client's address for each connection it closes."""
    if not is_apache_kafka:
        broker.wait_for_log(re.escape(connection.address))


# -- frames


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 0), id="size 0"),
        pytest.param(struct.pack(">i", -1), id="size -1"),
        pytest.param(struct.pack(">i", -LARGEST - 1), id="the smallest size"),
        pytest.param(struct.pack(">i", LARGEST), id="the largest size"),
        pytest.param(struct.pack(">i", int(SESSION_SETTINGS["socket.request.max.bytes"]) + 1), id="over the limit"),
        pytest.param(framed(b"\0"), id="one byte"),
        pytest.param(framed(bytes(7)), id="less than a header"),
        pytest.param(framed(struct.pack(">hhih", 18, 0, 1, 100)), id="client id longer than the frame"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", id="http"),
        pytest.param(bytes.fromhex("16030100c8010000c40303") + bytes(190), id="tls hello"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2p1\r\n", id="ssh"),
    ],
)
def test_a_frame_that_is_none_closes_the_connection_at_once(
    connect: Connect, broker: BrokerProcess, is_apache_kafka: bool, data: bytes
) -> None:
    with connect() as connection:
        assert connection.exchange(data) is None
        says_why(broker, connection, is_apache_kafka)


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 20])
def test_a_client_that_leaves_in_the_middle_of_a_frame_disturbs_nobody(connect: Connect, cut: int) -> None:
    frame = request_frame(ApiKey.METADATA, 1, sample_body(ApiKey.METADATA, 1))

    with connect() as connection:
        connection.send(frame[:cut])


def test_a_request_sent_byte_by_byte_is_answered(connect: Connect) -> None:
    frame = request_frame(ApiKey.METADATA, 1, sample_body(ApiKey.METADATA, 1))

    with connect() as connection:
        for i in range(len(frame)):
            connection.send(frame[i : i + 1])
        answer = connection.receive_frame()

    assert answer is not None


def test_requests_sent_together_are_answered_in_order(connect: Connect, new_topic: NewTopic) -> None:
    topic = new_topic("pipelined")
    frames = []
    for i in range(300):
        key = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)[i % 3]
        body = (produce_body(topic, valid()), fetch_body(topic), list_offsets_body(topic))[i % 3]
        frames.append(request_frame(key, 1 if key == ApiKey.LIST_OFFSETS else 3, body, correlation_id=i))

    with connect() as connection:
        connection.send(b"".join(frames))
        answered = [connection.receive_frame() for _ in frames]

    assert [struct.unpack(">i", (frame or b"")[:4])[0] for frame in answered] == list(range(300))


# -- requests


@pytest.mark.parametrize(
    ("key", "version"),
    [(99, 0), (-1, 0), (LARGEST >> 16, 0), (ApiKey.PRODUCE, 99), (ApiKey.METADATA, -1), (ApiKey.FETCH, 100)],
)
def test_an_unknown_api_or_version_closes_the_connection(
    connect: Connect, broker: BrokerProcess, is_apache_kafka: bool, key: int, version: int
) -> None:
    with connect() as connection:
        assert connection.exchange(framed(struct.pack(">hhih", key, version, 1, -1) + bytes(20))) is None
        says_why(broker, connection, is_apache_kafka)


@pytest.mark.parametrize("version", [3, 4])
def test_a_string_longer_than_32767_bytes_closes_the_connection(
    connect: Connect, broker: BrokerProcess, is_apache_kafka: bool, version: int
) -> None:
    """As Kafka from 2.4 on, in flexible versions, whose lengths could say it; earlier ones do not know the version."""
    key = {"key": "x" * 32_768, "key_type": 0} if version == 3 else {"coordinator_keys": ["x" * 1_000_000]}
    body = API_TABLE[ApiKey.FIND_COORDINATOR].request(**key)

    with connect() as connection:
        assert connection.exchange(request_frame(ApiKey.FIND_COORDINATOR, version, body)) is None
        says_why(broker, connection, is_apache_kafka)


@pytest.mark.parametrize("version", [4, 99, -1, 32767])
def test_an_unknown_version_of_apiversions_is_answered_in_version_0(connect: Connect, version: int) -> None:
    with connect() as connection:
        frame = connection.exchange(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, version, 5, -1)))

        assert frame is not None
        correlation_id, answer = decode_response(ApiKey.API_VERSIONS, 0, frame)
        assert (correlation_id, answer.error_code) == (5, UNSUPPORTED_VERSION)
        assert connection.call(ApiKey.API_VERSIONS, 0, sample_body(ApiKey.API_VERSIONS, 0)).error_code == OK


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_every_request_is_answered_with_bytes_after_its_end(connect: Connect, served: Versions, key: ApiKey) -> None:
    for version in served.get(key, ()):
        payload = request_frame(key, version, sample_body(key, version))[4:]
        with connect() as connection:
            frame = connection.exchange(framed(payload + b"\1\2\3\4\5"))
            assert frame is not None, f"v{version}"
            assert decode_response(key, version, frame)[0] == 7


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_every_request_cut_anywhere_closes_the_connection(
    connect: Connect, served: Versions, broker: BrokerProcess, is_apache_kafka: bool, key: ApiKey
) -> None:
    for version in served.get(key, ()):
        payload = request_frame(key, version, sample_body(key, version))[4:]
        for cut in range(len(payload)):
            with connect() as connection:
                assert connection.exchange(framed(payload[:cut])) is None, f"v{version} cut at {cut}"
    if key in served:
        says_why(broker, connection, is_apache_kafka)


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_a_count_larger_than_the_request_closes_the_connection(connect: Connect, served: Versions, key: ApiKey) -> None:
    for version in served.get(key, ()):
        for path in array_paths(key, version):
            frame = request_frame(key, version, sample_body(key, version, repeated=path))
            is_flexible = version >= API_TABLE[key].request.first_flexible
            negative = [] if is_nullable(key, path) else [-1] if is_flexible else [-1, -LARGEST]
            for count in (LARGEST, 1_000_000, len(frame) + 1, *negative):
                with connect() as connection:
                    hostile = with_count(frame, key, version, count)
                    assert connection.exchange(hostile) is None, f"v{version} {path} {count}"


def test_hostile_requests_cost_no_memory(connect: Connect, broker: BrokerProcess, is_apache_kafka: bool) -> None:
    if is_apache_kafka:
        pytest.skip("about minibroker's own process: run it without MINIBROKER_TEST_KAFKA")
    frame = request_frame(ApiKey.METADATA, 1, sample_body(ApiKey.METADATA, 1, repeated="topics"))
    position = position_of_count(frame)
    hostile = frame[:position] + struct.pack(">i", LARGEST) + frame[position + 4 :]
    before = broker.resident_bytes()

    for data in (hostile, struct.pack(">i", LARGEST), struct.pack(">i", 9_999_999) + b"x") * 20:
        with connect() as connection:
            connection.send(data)

    assert broker.resident_bytes() - before < 16 * 2**20


# -- what a request asks for


@pytest.mark.parametrize(
    ("topic", "partition"), [("absent", 0), (None, 1), (None, -1), (None, LARGEST), ("in valid", 0)]
)
def test_an_unknown_partition_is_an_error_of_that_partition(
    connect: Connect, new_topic: NewTopic, served: Versions, topic: str | None, partition: int
) -> None:
    topic = topic or new_topic("one-partition")

    with connect() as connection:
        for version in served[ApiKey.PRODUCE]:
            if version >= 3:
                body = produce_body(topic, valid(), partition=partition)
                row = the_partition(connection.call(ApiKey.PRODUCE, version, body))
                assert (row.error_code, row.base_offset) == (UNKNOWN_TOPIC_OR_PARTITION, -1), f"produce v{version}"
        for version in served[ApiKey.FETCH]:
            row = the_partition(connection.call(ApiKey.FETCH, version, fetch_body(topic, partition=partition)))
            assert (row.error_code, row.high_watermark) == (UNKNOWN_TOPIC_OR_PARTITION, -1), f"fetch v{version}"
        for version in served[ApiKey.LIST_OFFSETS]:
            body = list_offsets_body(topic, partition=partition)
            row = the_partition(connection.call(ApiKey.LIST_OFFSETS, version, body))
            assert row.error_code == UNKNOWN_TOPIC_OR_PARTITION, f"list offsets v{version}"


@pytest.mark.parametrize(
    ("name", "may_create", "code"),
    [
        ("absent", False, UNKNOWN_TOPIC_OR_PARTITION),
        ("in valid", False, UNKNOWN_TOPIC_OR_PARTITION),
        ("in valid", True, INVALID_TOPIC),
    ],
)
def test_metadata_says_what_is_wrong_with_a_topic(connect: Connect, name: str, may_create: bool, code: int) -> None:
    message = API_TABLE[ApiKey.METADATA].request
    body = message(topics=[message.row("topics")(name=name)], allow_auto_topic_creation=may_create)

    with connect() as connection:
        (row,) = connection.call(ApiKey.METADATA, 4, body).topics

    assert (row.name, row.error_code) == (name, code)


@pytest.mark.parametrize("offset", [1, 2**40, -2, -(2**63)])
def test_an_offset_outside_the_log_is_out_of_range(
    connect: Connect, new_topic: NewTopic, served: Versions, offset: int
) -> None:
    topic = new_topic("empty")

    with connect() as connection:
        for version in served[ApiKey.FETCH]:
            row = the_partition(connection.call(ApiKey.FETCH, version, fetch_body(topic, offset=offset)))
            assert row.error_code == OFFSET_OUT_OF_RANGE, f"v{version}"


def test_a_fetch_session_nobody_opened_is_an_error_of_the_whole_fetch(connect: Connect) -> None:
    body = fetch_body("absent")._replace(session_id=12345, session_epoch=3)

    with connect() as connection:
        answer = connection.call(ApiKey.FETCH, 7, body)

    assert (answer.error_code, len(answer.topics)) == (FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist_are_refused(connect: Connect, new_topic: NewTopic, acks: int) -> None:
    topic = new_topic("acks")

    with connect() as connection:
        row = the_partition(connection.call(ApiKey.PRODUCE, 3, produce_body(topic, valid(), acks=acks)))

    assert row.error_code == INVALID_REQUIRED_ACKS


def test_a_failed_produce_without_acks_closes_the_connection(
    connect: Connect, broker: BrokerProcess, is_apache_kafka: bool
) -> None:
    with connect() as connection:
        assert connection.exchange(request_frame(ApiKey.PRODUCE, 3, produce_body("absent", valid(), acks=0))) is None
        says_why(broker, connection, is_apache_kafka)


# -- record batches


@pytest.fixture(scope="module")
def target(new_topic: NewTopic) -> str:
    return new_topic("hostile", configs={"retention.ms": "-1"})


def outcome_of(connection: RawConnection, topic: str, version: int, records: bytes) -> Outcome:
    frame = connection.exchange(request_frame(ApiKey.PRODUCE, version, produce_body(topic, records)))
    if frame is None:
        return CLOSED
    return int(the_partition(decode_response(ApiKey.PRODUCE, version, frame)[1]).error_code)


def log_end_offset(connection: RawConnection, topic: str) -> int:
    return int(the_partition(connection.call(ApiKey.LIST_OFFSETS, 1, list_offsets_body(topic))).offset)


@pytest.mark.parametrize("version", [2, 3, 6])
@pytest.mark.parametrize("name", HEADER_CASES)
def test_a_hostile_batch_is_refused_and_nothing_of_it_is_written(
    connect: Connect, broker: BrokerProcess, is_apache_kafka: bool, target: str, name: str, version: int
) -> None:
    case = HEADER_CASES[name]
    expected = case.outcome_v2 if version < 3 and case.outcome_v2 is not None else case.outcome
    with connect() as other:
        before = log_end_offset(other, target)
        with connect() as connection:
            outcome = outcome_of(connection, target, version, case.build())

            if expected == UNKNOWN_SERVER_ERROR and not is_apache_kafka:
                assert outcome in SAYS_MORE
            else:
                assert outcome == expected
            if outcome == CLOSED:
                says_why(broker, connection, is_apache_kafka)
            else:
                assert connection.call(ApiKey.API_VERSIONS, 0, sample_body(ApiKey.API_VERSIONS, 0)).error_code == OK
        if outcome != OK:
            assert log_end_offset(other, target) == before
        assert outcome_of(other, target, 3, valid()) == OK


@pytest.mark.parametrize("version", [2, 3, 6])
@pytest.mark.parametrize("name", RECORD_CASES)
def test_a_batch_that_lies_about_its_records_is_refused_or_kept_as_it_came(
    connect: Connect, is_apache_kafka: bool, target: str, name: str, version: int
) -> None:
    """Apache Kafka reads every record of every batch; minibroker believes a batch whose header and CRC are right."""
    case = RECORD_CASES[name]
    batch = case.build()
    with connect() as connection:
        before = log_end_offset(connection, target)

        outcome = outcome_of(connection, target, version, batch)

        if is_apache_kafka:
            assert outcome == case.outcome
        assert outcome in (case.outcome, CORRUPT_MESSAGE, OK)
        if outcome == OK:
            row = the_partition(connection.call(ApiKey.FETCH, 4, fetch_body(target, offset=before)))
            assert bytes(row.records)[CRC_COVERS_FROM:] == batch[CRC_COVERS_FROM:]
        else:
            assert log_end_offset(connection, target) == before
        assert outcome_of(connection, target, 3, valid()) == OK


def test_a_connection_dropped_before_the_answer_disturbs_nobody(connect: Connect, new_topic: NewTopic) -> None:
    topic = new_topic("dropped")

    for _ in range(20):
        with connect() as connection:
            connection.send(request_frame(ApiKey.PRODUCE, 3, produce_body(topic, valid())) * 5)
            connection.reset()
        with connect() as connection:
            body = fetch_body(topic)._replace(max_wait_ms=500, min_bytes=2**20)
            connection.send(request_frame(ApiKey.FETCH, 4, body))
            connection.reset()
