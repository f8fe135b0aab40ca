"""Rows 62, 63 and 65: quotas. What is charged and for how long, of which APIs.

What else a client sees of quotas is in tests/golden/conversations/quotas.txt; the connection that is muted in
tests/broker/test_connection.py. Time is jumped.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.broker.apis.fetch import fetched_bytes
from minibroker.broker.wings.quotas import throttling
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import fill, magics, row_of
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.integration.sample_requests import sample_body
from tests.protocol.message_values import values

pytestmark = pytest.mark.time_jumps

PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ALL_OF_IT = 1e-7  # percent: any request takes longer
WINDOW_MS = 10_000  # that a new window counts as
ME = "test"  # the client id of the harness


async def limit(broker: InMemoryBroker, key: str, value: float, **entity: str | None) -> None:
    """Set a quota: of the harness's client id, unless `user` or `client_id` name another entity."""
    named = entity or {"client_id": ME}
    row = [(kind.replace("_", "-"), name) for kind, name in named.items()]
    answer = await broker.call(
        ApiKey.ALTER_CLIENT_QUOTAS, 1, client_id="admin", entries=[(row, [(key, value, False)])], validate_only=False
    )
    assert answer.entries[0].error_code == ErrorCode.NONE, answer


def muted_ms(broker: InMemoryBroker) -> int:
    """For how long the connection reads nothing, from now on; and forget it."""
    until_ms, broker.client.muted_until_ms = broker.client.muted_until_ms, 0
    return until_ms - broker.clock.monotonic_ms() if until_ms else 0


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker()
    await broker.create_topic("t", partitions=2)
    return broker


async def test_row_62_a_fetch_is_charged_with_its_size_before_down_conversion(broker: InMemoryBroker) -> None:
    """In the layout of its version: the records that are converted to magic 0 have another size."""
    size_bytes = await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 500)

    converted = row_of(await broker.fetch(("t", 0, 0), version=1)).records
    throttled = await broker.fetch(("t", 0, 0), version=1)

    body = FetchResponse(topics=[("t", [(0, 0, 1, -1, -1, None, -1, bytes(size_bytes), None, None)])])
    counted = 4 + sum(map(len, FetchResponse.encode(1, body)))
    assert throttled.throttle_time_ms == 2 * counted * 2 - WINDOW_MS
    assert magics(converted)[0] == 0


async def test_row_65_the_throttle_time_is_the_excess_over_the_window(broker: InMemoryBroker) -> None:
    await limit(broker, PRODUCE, 10_000)
    batch = build_batch([Record(0, 0, None, b"x" * 150_000, ())])
    body: dict[str, Any] = {"acks": 1, "timeout_ms": 1000, "topics": [("t", [(0, batch)])]}
    frame = broker.frame(ApiKey.PRODUCE, 5, **body)

    answer = await broker.call(ApiKey.PRODUCE, 5, **body)

    assert answer.throttle_time_ms == round(len(frame) / 10 - WINDOW_MS) == muted_ms(broker)
    await trio.sleep(3)
    small = await broker.call(ApiKey.PRODUCE, 5, **{**body, "topics": []})
    counted = len(frame) + len(broker.frame(ApiKey.PRODUCE, 5, **{**body, "topics": []}))
    assert small.throttle_time_ms == round(counted / 10 - WINDOW_MS)  # 3 samples are full, but the window as long


async def test_a_batch_larger_than_the_window_is_logged_once(
    broker: InMemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(broker, "t", size=9000)
    await limit(broker, FETCH, 100)

    for _ in range(2):
        with caplog.at_level(logging.WARNING):
            await broker.fetch(("t", 0, 0))

    (line,) = [record.message for record in caplog.records if "consumer_byte_rate" in record.message]
    assert "client id 'test' of user ANONYMOUS" in line and "allows 1000 bytes" in line


# -- all APIs -------------------------------------------------------------------------------------------------

EXEMPT = {
    (key, version)
    for key, api in API_TABLE.items()
    for version in range(api.versions[1] + 1)
    if api.is_between_brokers and (key != ApiKey.OFFSET_FOR_LEADER_EPOCH or version < 2)
}


@pytest.mark.usefixtures("in_cluster")
@pytest.mark.parametrize("key", API_TABLE, ids=lambda key: API_TABLE[key].name)
async def test_row_63_every_api_is_answered_at_once_and_muted(broker: InMemoryBroker, key: ApiKey) -> None:
    """With the throttle time in each version that has the field; as kafka 2.0.1 KafkaApis, whatever the request is."""
    await limit(broker, REQUEST, ALL_OF_IT)
    response = API_TABLE[key].response
    first, last = API_TABLE[key].versions

    for version in range(first, last + 1):
        body = sample_body(key, version)._asdict()
        if key is ApiKey.FETCH:
            body["replica_id"] = -1  # of a consumer
        answer = await broker.call(key, version, client_id=ME, **body)

        throttle_ms = 0 if (key, version) in EXEMPT else 1000
        has_field = any(field.name == "throttle_time_ms" and field.is_in(version) for field in response.fields)
        assert muted_ms(broker) == throttle_ms, version
        assert getattr(answer, "throttle_time_ms", 0) == (throttle_ms if has_field else 0), version


async def test_a_request_between_brokers_that_is_denied_is_throttled(broker: InMemoryBroker) -> None:
    await limit(broker, REQUEST, ALL_OF_IT)
    body: dict[str, Any] = {"topics": [("t", [(0, -1, 0)])]}
    await broker.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 1, **body)
    assert muted_ms(broker) == 0

    handlers = broker.parts.handlers.by_key
    served = handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH]

    def denied(request: Any, client: Any) -> Any:
        answer: Any = served(request, client)
        ((name, rows),) = answer.topics
        return answer._replace(topics=[(name, [(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, *row[1:]) for row in rows])])

    handlers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = denied
    await broker.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 1, **body)
    assert muted_ms(broker) == 1000


# -- an open broker -------------------------------------------------------------------------------------------


@pytest.mark.pure
async def test_a_broker_without_quotas_charges_nothing_and_reads_no_clock(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise AssertionError("charged")

    monkeypatch.setattr(throttling, "Charge", fail)

    assert (await broker.produce("t", [b"x"])).error_code == ErrorCode.NONE
    assert (await broker.fetch(("t", 0, 0))).error_code == ErrorCode.NONE
    assert broker.client.meter is None


async def test_requests_are_timed_only_with_a_quota_on_their_time(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await limit(broker, PRODUCE, 100)
    read: list[int] = []

    def clock() -> int:
        read.append(1)
        return len(read)

    monkeypatch.setattr("time.perf_counter_ns", clock)
    await broker.produce("t", [b"x"])
    assert read == []

    await limit(broker, REQUEST, 100, client_id="another")
    await broker.produce("t", [b"x"])
    assert len(read) == 2


async def test_the_time_of_a_handler_is_a_percentage_of_the_window(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 ms of a core in a window of 10 s are 1.5 %: three times the limit."""
    await limit(broker, REQUEST, 0.5, client_id=ME)
    times = iter(range(1, 10**12, 150_000_000))
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(times))

    assert await broker.call(ApiKey.API_VERSIONS, 2, ME) is not None

    assert muted_ms(broker) == 1000  # (1.5 - 0.5) / 0.5 * 10 s, at most a sample


MANY = [(0, 0, 1, 1, 0, [(1, 2)] * 200, -1, b"x" * size, None, None) for size in (0, 127, 128, 16_383, 16_384)] * 30


@pytest.mark.parametrize("version", range(FetchResponse.first_version, FetchResponse.last_version + 1))
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
@given(data=st.data())
@example(data=None)
def test_the_size_of_a_fetch_response_is_known_without_encoding_it(version: int, data: Any) -> None:
    topic = "t" * 200 if version < 13 else ZERO_UUID
    many = FetchResponse(topics=[(topic, MANY if version >= 4 else [(*row[:5], None, *row[6:]) for row in MANY])])
    body = many if data is None else data.draw(values(FetchResponse, version))

    assert fetched_bytes(version, body) == 4 + sum(map(len, FetchResponse.encode(version, body)))
