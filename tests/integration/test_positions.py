"""Where a consumer may start: beginning, end, an offset, a timestamp; and what it is told of offsets."""

from __future__ import annotations

import pytest

from tests.integration.clients import CLIENTS, LIBRARIES, ClientError
from tests.integration.conftest import GetClient, NewTopic
from tests.integration.records import CODECS, FIRST_TIMESTAMP_MS, numbered
from tests.matrices import pairwise

COUNT = 50
OFFSET_OUT_OF_RANGE = 1


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
    ("fifty", "reader", "start"), pairwise(CODECS, CLIENTS, [0, 1, 9, 10, 25, 49]), indirect=["fifty"]
)
def test_reading_starts_at_the_offset_asked_for_even_inside_a_batch(
    client: GetClient, fifty: str, reader: str, start: int
) -> None:
    read = client(reader).consume(fifty, COUNT - start, start=start)

    assert list(range(start, COUNT)) == [record.offset for record in read]
    assert [b"%d" % i for i in range(start, COUNT)] == [record.key for record in read]


@pytest.mark.parametrize("reader", CLIENTS)
def test_beginning_and_end_are_reported(client: GetClient, fifty: str, reader: str) -> None:
    assert client(reader).watermarks(fifty) == [0, COUNT]


@pytest.mark.parametrize("reader", CLIENTS)
def test_a_timestamp_finds_the_first_record_not_older(client: GetClient, fifty: str, reader: str) -> None:
    consumer = client(reader)
    asked = {
        FIRST_TIMESTAMP_MS - 1: 0,
        FIRST_TIMESTAMP_MS: 0,
        FIRST_TIMESTAMP_MS + 1: 1,
        FIRST_TIMESTAMP_MS + 10_000: 10,
        FIRST_TIMESTAMP_MS + 24_500: 25,
        FIRST_TIMESTAMP_MS + 49_000: 49,
        FIRST_TIMESTAMP_MS + 49_001: None,
    }

    found = consumer.offsets_for_times(fifty, list(asked))

    assert list(asked.values()) == [None if row is None else row[0] for row in found]
    if consumer.kind.reports_timestamps_of_offsets:
        assert [FIRST_TIMESTAMP_MS + 1000 * row[0] for row in found[:-1]] == [row[1] for row in found[:-1]]


@pytest.mark.parametrize("reader", CLIENTS)
def test_the_end_is_after_the_last_record(client: GetClient, fifty: str, reader: str) -> None:
    assert client(reader).follow(fifty) == COUNT


@pytest.mark.parametrize("reader", LIBRARIES)
@pytest.mark.parametrize("start", [COUNT + 1, 2**40])
def test_an_offset_past_the_end_is_out_of_range(client: GetClient, fifty: str, reader: str, start: int) -> None:
    with pytest.raises(ClientError, match=r"(?i)out.?of.?range|reset policy") as raised:
        client(reader).consume(fifty, 1, start=start, seconds=10)

    assert raised.value.kind != "DeadlineError"


@pytest.mark.parametrize("reader", CLIENTS)
def test_an_empty_partition_begins_and_ends_at_zero(client: GetClient, new_topic: NewTopic, reader: str) -> None:
    topic = new_topic("empty")

    assert client(reader).watermarks(topic) == [0, 0]
    assert client(reader).offsets_for_times(topic, [0]) == [None]
