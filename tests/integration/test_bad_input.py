"""Hostile and broken bytes: each gets its error code or a closed connection, and the broker goes on.

What is expected is what Apache Kafka 2.0.1 answers. Requests that are cut short, run on or lie about their counts are
in tests/protocol/test_messages.py, each at every byte; what is whole, and wrong in what it asks for, is in the recorded
conversations (tests/golden/conversations/kafka-2.0.1/); sizes of frames and other protocols are in
tests/protocol/test_framing.py and tests/fetch_path/test_rows_84_to_91_connections.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from minibroker.conformance.raw_connection import RawConnection
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import ApiKey
from tests.integration.brokers import BrokerProcess
from tests.integration.conftest import NewTopic
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
from tests.integration.wire import read, the_partition
from tests.requests import list_offsets_body, produce_body

UNSUPPORTED_COMPRESSION_TYPE = 76
# Where Apache Kafka 2.0.1 answers UNKNOWN_SERVER_ERROR: what is wrong by name, or nothing to do.
SAYS_MORE = (UNKNOWN_SERVER_ERROR, CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE, OK)

Connect = Callable[[], RawConnection]


@pytest.fixture
def connect(broker: BrokerProcess) -> Iterator[Connect]:
    """Open raw connections; after the test the same broker process still answers."""
    yield lambda: RawConnection(broker.host, broker.port)
    with RawConnection(broker.host, broker.port) as connection:
        answer = connection.ask_for_versions()
    assert answer.error_code == OK
    assert broker.is_running


@pytest.fixture(scope="module")
def target(new_topic: NewTopic) -> str:
    return new_topic("hostile", configs={"retention.ms": "-1"})


def outcome_of(connection: RawConnection, topic: str, version: int, records: bytes) -> Outcome:
    answer = connection.ask(ApiKey.PRODUCE, version, **produce_body(topic, records))
    return CLOSED if answer is None else int(the_partition(answer).error_code)


def log_end_offset(connection: RawConnection, topic: str) -> int:
    return int(the_partition(connection.call(ApiKey.LIST_OFFSETS, 1, **list_offsets_body(topic))).offset)


@pytest.mark.parametrize("version", [2, 3, 6])
@pytest.mark.parametrize("name", HEADER_CASES | RECORD_CASES)
def test_a_hostile_batch_is_refused_or_kept_as_it_came_and_the_next_is_written(
    connect: Connect, broker: BrokerProcess, is_apache_kafka: bool, target: str, name: str, version: int
) -> None:
    """Apache Kafka reads every record of every batch; minibroker believes a batch whose header and CRC are right."""
    case = (HEADER_CASES | RECORD_CASES)[name]
    expected = case.outcome_v2 if version < 3 and case.outcome_v2 is not None else case.outcome
    batch = case.build()
    with connect() as connection, connect() as other:
        before = log_end_offset(other, target)

        outcome = outcome_of(connection, target, version, batch)

        if is_apache_kafka or (name in HEADER_CASES and expected != UNKNOWN_SERVER_ERROR):
            assert outcome == expected
        assert outcome in ((expected, CORRUPT_MESSAGE, OK) if name in RECORD_CASES else (expected, *SAYS_MORE))
        if outcome != CLOSED:
            assert connection.ask_for_versions().error_code == OK
        elif not is_apache_kafka:
            broker.wait_for_log(re.escape(str(connection.own_address)))  # a line for each connection that it closes
        if outcome != OK:
            assert log_end_offset(other, target) == before
        elif name in RECORD_CASES:
            row = read(other, target, offset=before)
            assert bytes(row.records)[CRC_COVERS_FROM:] == batch[CRC_COVERS_FROM:]
        assert outcome_of(other, target, 3, valid()) == OK


def test_a_connection_dropped_before_the_answer_leaves_the_broker_answering(
    connect: Connect, new_topic: NewTopic
) -> None:
    topic = new_topic("dropped")

    for _ in range(20):
        with connect() as connection:
            connection.send(frame(ApiKey.PRODUCE, 3, **produce_body(topic, valid())) * 5)
            connection.reset()
        with connect() as connection:
            connection.send(frame(ApiKey.FETCH, 4, **fetch_body((topic, 0, 0), max_wait_ms=500, min_bytes=2**20)))
            connection.reset()
