"""How a fetch waits and how much it brings, and where a consumer may start: an offset, a timestamp, either end."""

from __future__ import annotations

import time

import pytest

from tests.integration.clients import CLIENTS, LIBRARIES, Client, ClientError
from tests.integration.conftest import GetClient, NewTopic
from tests.integration.records import CODECS, FIRST_TIMESTAMP_MS, LARGE, Record, incompressible, numbered
from tests.matrices import pairwise

LONG_WAIT_MS = 20_000
PRODUCER = "confluent-kafka"
OTHER_PRODUCER = "kafka-python-3.0"
COUNT = 50


@pytest.fixture(params=CLIENTS)
def reader(client: GetClient, request: pytest.FixtureRequest) -> Client:
    return client(request.param)


def test_a_waiting_consumer_gets_a_record_long_before_its_wait_is_over(
    client: GetClient, new_topic: NewTopic, reader: Client
) -> None:
    topic = new_topic("long-poll")
    producer = client(PRODUCER if reader.name != PRODUCER else OTHER_PRODUCER)  # the reader's driver is busy waiting
    assert reader.follow(topic, fetch_max_wait_ms=LONG_WAIT_MS, fetch_min_bytes=1) == 0

    for record in numbered(5):
        reader.start_next(1)
        assert not reader.has_answered(within_seconds=0.05), "a record that was not produced"
        started = time.monotonic()
        (acked,) = producer.produce(topic, [record])
        (read,) = reader.finish_next()

        assert (record.value, acked.offset) == (read.value, read.offset)
        assert time.monotonic() - started < LONG_WAIT_MS / 1000 / 2


@pytest.fixture(scope="module")
def uneven(client: GetClient, new_topic: NewTopic) -> tuple[str, list[Record]]:
    """Two partitions, each with small batches around a record of 200 KiB."""
    topic = new_topic("uneven", partitions=2)
    written: list[Record] = []
    for partition in range(2):
        for batch in (numbered(3), [Record(b"large", incompressible(LARGE))], numbered(3, first=3)):
            written += client(PRODUCER).produce(topic, batch, partition=partition)
    return topic, written


LIMITS: dict[str, dict[str, int]] = {
    "a partition's limit smaller than a record": {"max_partition_fetch_bytes": 1024},
    "a fetch's limit smaller than a record": {"fetch_max_bytes": 1000},
    "one byte of each": {"max_partition_fetch_bytes": 1, "fetch_max_bytes": 1},
    "a limit inside the second batch": {"max_partition_fetch_bytes": 100_000},
    "room for everything": {"max_partition_fetch_bytes": 50 * 1024 * 1024},
}


@pytest.mark.parametrize("limit", LIMITS)
def test_every_record_is_read_under_any_limit(uneven: tuple[str, list[Record]], reader: Client, limit: str) -> None:
    topic, written = uneven

    read = reader.consume(topic, len(written), partitions=range(2), fetch_max_wait_ms=100, **LIMITS[limit])

    assert [(row.partition, row.offset, row.key, row.value) for row in written] == sorted(
        (row.partition, row.offset, row.key, row.value) for row in read
    )


@pytest.mark.parametrize("reader", LIBRARIES, indirect=True)
def test_eight_megabytes_over_several_partitions_are_read_in_order(
    client: GetClient, new_topic: NewTopic, reader: Client
) -> None:
    topic = new_topic("big", partitions=4)
    for partition in range(4):
        client(PRODUCER).produce(topic, numbered(200, size_bytes=10_000), partition=partition)

    read = reader.consume(topic, 800, partitions=range(4))

    for partition in range(4):
        rows = [(row.offset, row.key) for row in read if row.partition == partition]
        assert rows == [(i, b"%d" % i) for i in range(200)]


@pytest.fixture(scope="module", params=CODECS)
def fifty(client: GetClient, new_topic: NewTopic, request: pytest.FixtureRequest) -> str:
    """A topic with fifty records, ten a batch, one a second."""
    topic = new_topic(f"fifty-{request.param}")
    records = numbered(COUNT, first_timestamp_ms=FIRST_TIMESTAMP_MS)
    writer = client("confluent-kafka")
    for first in range(0, COUNT, 10):
        writer.produce(topic, records[first : first + 10], codec=request.param, linger_ms=50)
    return topic


@pytest.mark.parametrize(
    ("fifty", "reader", "start"), pairwise(CODECS, CLIENTS, [0, 1, 9, 10, 25, 49]), indirect=["fifty", "reader"]
)
def test_reading_starts_at_the_offset_asked_for_even_inside_a_batch(fifty: str, reader: Client, start: int) -> None:
    read = reader.consume(fifty, COUNT - start, start=start)

    assert [(row.offset, row.key) for row in read] == [(i, b"%d" % i) for i in range(start, COUNT)]


def test_beginning_and_end_are_reported_and_the_end_is_after_the_last_record(
    fifty: str, new_topic: NewTopic, reader: Client
) -> None:
    assert reader.watermarks(fifty) == [0, COUNT]
    assert reader.follow(fifty) == COUNT
    empty = new_topic("empty")
    assert reader.watermarks(empty) == [0, 0]
    assert reader.offsets_for_times(empty, [0]) == [None]


def test_a_timestamp_finds_the_first_record_not_older(fifty: str, reader: Client) -> None:
    asked = {
        FIRST_TIMESTAMP_MS - 1: 0,
        FIRST_TIMESTAMP_MS: 0,
        FIRST_TIMESTAMP_MS + 1: 1,
        FIRST_TIMESTAMP_MS + 10_000: 10,
        FIRST_TIMESTAMP_MS + 24_500: 25,
        FIRST_TIMESTAMP_MS + 49_000: 49,
        FIRST_TIMESTAMP_MS + 49_001: None,
    }

    found = reader.offsets_for_times(fifty, list(asked))

    assert list(asked.values()) == [None if row is None else row[0] for row in found]
    if reader.kind.reports_timestamps_of_offsets:
        assert [FIRST_TIMESTAMP_MS + 1000 * row[0] for row in found[:-1]] == [row[1] for row in found[:-1]]


@pytest.mark.parametrize("reader", LIBRARIES, indirect=True)
@pytest.mark.parametrize("start", [COUNT + 1, 2**40])
def test_an_offset_past_the_end_is_out_of_range(fifty: str, reader: Client, start: int) -> None:
    with pytest.raises(ClientError, match=r"(?i)out.?of.?range|reset policy") as raised:
        reader.consume(fifty, 1, start=start, seconds=10)

    assert raised.value.kind != "DeadlineError"
