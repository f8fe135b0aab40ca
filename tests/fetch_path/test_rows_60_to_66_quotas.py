"""Rows 60 to 66: quotas. Throttled answers and their sessions, how long, what is charged, what is exempt.

The connection that is muted: tests/broker/test_connection.py. Time is jumped.
"""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minibroker.broker.apis.fetch import fetched_bytes
from minibroker.broker.way import throttling
from minibroker.protocol.api import API_TABLE, ApiKey, encode_request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchResponse
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import fill, magics, row_of, sizes
from tests.broker.conftest import InMemoryBroker, MakeBroker, fetch_body
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


# -- Fetch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(FetchResponse.last_version + 1))
async def test_row_60_a_throttled_fetch_is_empty_in_every_version(broker: InMemoryBroker, version: int) -> None:
    await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 100)

    answer = await broker.fetch(("t", 0, 0), version=version)

    throttle_ms = muted_ms(broker)
    assert throttle_ms > (300 if version < 3 else 30_000)  # clients of v0-v2 get a part of a batch: of a whole window
    assert (list(answer.topics), answer.session_id, answer.error_code) == ([], 0, ErrorCode.NONE)
    assert answer.throttle_time_ms == (throttle_ms if version >= 1 else 0)


async def test_row_60_a_throttled_full_request_begins_no_session(broker: InMemoryBroker) -> None:
    await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 100)

    answer = await broker.fetch(("t", 0, 0), session_id=0, session_epoch=0)

    assert answer.session_id == 0
    assert broker.parts.fetch_sessions.statistics().sessions == 0


async def test_row_60_a_throttled_session_keeps_its_id_and_its_epoch_moves_on(broker: InMemoryBroker) -> None:
    begun = await broker.fetch(("t", 0, 0), ("t", 1, 0), session_id=0, session_epoch=0)
    await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 100)

    throttled = await broker.fetch(session_id=begun.session_id, session_epoch=1)
    assert (throttled.session_id, list(throttled.topics)) == (begun.session_id, [])
    assert throttled.throttle_time_ms > 0

    repeated = await broker.fetch(session_id=begun.session_id, session_epoch=1)
    assert repeated.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    await limit(broker, FETCH, 1_000_000)
    again = await broker.fetch(session_id=begun.session_id, session_epoch=2)
    assert len(row_of(again).records) > 4000  # nothing was taken as answered


async def test_row_60_a_throttled_fetch_of_an_overtaken_session_has_its_error(broker: InMemoryBroker) -> None:
    begun = await broker.fetch(("t", 0, 0), session_id=0, session_epoch=0)
    session = {"session_id": begun.session_id}
    parked = await broker.park(broker.fetch, **session, session_epoch=1, max_wait_ms=60_000)
    await broker.fetch(**session, session_epoch=2)
    await limit(broker, REQUEST, ALL_OF_IT)

    await fill(broker, "t")

    answer = await parked.seen()
    assert (answer.error_code, answer.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, begun.session_id)


async def test_row_60_an_unknown_session_is_the_answer_also_when_it_is_throttled(broker: InMemoryBroker) -> None:
    await limit(broker, REQUEST, ALL_OF_IT)

    answer = await broker.fetch(session_id=12345, session_epoch=1)

    assert (answer.error_code, answer.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert answer.throttle_time_ms == 1000


async def test_row_60_a_fetch_that_waits_is_answered_with_the_throttle_when_data_comes(broker: InMemoryBroker) -> None:
    await limit(broker, FETCH, 100)
    parked = await broker.park(broker.fetch, ("t", 0, 0), max_wait_ms=60_000)
    assert muted_ms(broker) == 0
    await trio.sleep(3)

    await fill(broker, "t", size=4000)

    answer = await parked.seen()
    assert list(answer.topics) == []
    assert answer.throttle_time_ms == muted_ms(broker) > 30_000 - 3000


async def test_row_61_the_greater_throttle_counts_and_taken_bytes_are_given_back(broker: InMemoryBroker) -> None:
    await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 1_000_000)
    await limit(broker, REQUEST, ALL_OF_IT)

    answer = await broker.fetch(("t", 0, 0), session_id=0, session_epoch=0)  # the request quota's is the greater

    assert (answer.throttle_time_ms, list(answer.topics), answer.session_id) == (1000, [], 0)

    await limit(broker, FETCH, 100)
    answers = [(await broker.fetch(("t", 0, 0))).throttle_time_ms for _ in range(3)]
    assert answers[0] == answers[1] == answers[2] > 30_000  # each alone: none is in the window


async def test_row_62_a_fetch_is_charged_with_its_size_before_down_conversion(broker: InMemoryBroker) -> None:
    """In the layout of its version: the records that are converted to magic 0 have another size."""
    size_bytes = await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 500)

    converted = row_of(await broker.fetch(("t", 0, 0), version=1)).records
    throttled = await broker.fetch(("t", 0, 0), version=1)

    body = FetchResponse(topics=[("t", [(0, 0, 1, -1, -1, None, -1, bytes(size_bytes), None)])])
    counted = 4 + sum(map(len, FetchResponse.encode(1, body)))
    assert throttled.throttle_time_ms == 2 * counted * 2 - WINDOW_MS
    assert magics(converted)[0] == 0


async def test_row_65_the_throttle_is_what_exceeds_the_limit_over_the_window(broker: InMemoryBroker) -> None:
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


async def test_row_65_the_throttle_of_requests_is_at_most_a_sample(make_broker: MakeBroker) -> None:
    broker = make_broker(quota_window_size_seconds=3)
    await limit(broker, REQUEST, ALL_OF_IT)

    answer = await broker.call(ApiKey.METADATA, 5, topics=[], allow_auto_topic_creation=False)

    assert answer.throttle_time_ms == muted_ms(broker) == 3000


async def test_a_fetch_larger_than_the_window_is_limited_to_it(broker: InMemoryBroker) -> None:
    """As kafka 2.3: kafka 2.0.1 answers it without records for ever."""
    for _ in range(20):
        await fill(broker, "t", size=1000)
    await limit(broker, FETCH, 500)

    first = await broker.fetch(("t", 0, 0), ("t", 1, 0), min_bytes=20_000, max_wait_ms=60_000)
    await trio.sleep(muted_ms(broker) / 1000 + 0.5)
    second = await broker.fetch(("t", 0, 0), ("t", 1, 0), min_bytes=20_000, max_wait_ms=60_000)

    assert 0 < first.throttle_time_ms < 1000  # for the bytes around the records
    assert sizes(second) == [5000, 0]


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


# -- Produce --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["t", "absent"])
async def test_a_produce_is_charged_whatever_becomes_of_it(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker(auto_create_topics_enable="false")
    await broker.create_topic("t")
    await limit(broker, PRODUCE, 100)
    batch = build_batch([Record(0, 0, None, b"x" * 4000, ())])
    body: dict[str, Any] = {"acks": 1, "timeout_ms": 1000, "topics": [(topic, [(0, batch)])]}

    for version in range(3, 10):
        frame = broker.frame(ApiKey.PRODUCE, version, **body)
        await trio.sleep(11)
        answer = await broker.call(ApiKey.PRODUCE, version, **body)
        assert answer.throttle_time_ms == muted_ms(broker) == len(frame) * 10 - WINDOW_MS


async def test_a_produce_without_acks_mutes_for_its_bytes_and_not_for_its_time(broker: InMemoryBroker) -> None:
    await limit(broker, REQUEST, ALL_OF_IT)
    assert await broker.produce("t", [b"small"], acks=0) is None
    assert muted_ms(broker) == 0

    await limit(broker, PRODUCE, 100)
    assert await broker.produce("t", [b"x" * 4000], acks=0) is None
    assert muted_ms(broker) > 30_000


async def test_an_answer_states_only_its_own_throttle(broker: InMemoryBroker) -> None:
    await limit(broker, PRODUCE, 100)
    await broker.produce("t", [b"x" * 4000])
    assert muted_ms(broker) > 0

    answer = await broker.call(ApiKey.API_VERSIONS, 2)

    assert answer.throttle_time_ms == muted_ms(broker) == 0


# -- all APIs -------------------------------------------------------------------------------------------------

EXEMPT = {(ApiKey.WRITE_TXN_MARKERS, version) for version in (0, 1)} | {
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, version) for version in (0, 1)
}


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


async def test_row_64_versions_that_do_not_throttle_themselves_are_muted_likewise(broker: InMemoryBroker) -> None:
    """Of every API the answer comes at once: from Fetch v8 on the client waits by itself, too."""
    await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 100)

    answers = [(await broker.fetch(("t", 0, 0), version=version), muted_ms(broker)) for version in (7, 8)]

    assert answers[0][0].throttle_time_ms == answers[0][1] == answers[1][0].throttle_time_ms == answers[1][1] > 0


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


async def test_row_66_a_follower_is_not_throttled(broker: InMemoryBroker) -> None:
    """Kafka 2.0.1 exempts every Fetch that names a broker, also one that has no replica."""
    await fill(broker, "t", size=4000)
    await limit(broker, FETCH, 100)
    await limit(broker, REQUEST, ALL_OF_IT)

    answer = await broker.fetch(("t", 0, 0), replica_id=7, max_wait_ms=0)

    assert (row_of(answer).partition, answer.throttle_time_ms, muted_ms(broker)) == (0, 0, 0)


# -- whose quotas ---------------------------------------------------------------------------------------------


async def test_the_defaults_of_the_settings_hold_for_each_client_id(make_broker: MakeBroker) -> None:
    broker = make_broker(quota_producer_default=100, quota_consumer_default=200)
    await broker.create_topic("t")
    assert (await broker.produce("t", [b"x" * 4000])).error_code == ErrorCode.NONE
    produced_ms = muted_ms(broker)

    await broker.fetch(("t", 0, 0))

    assert (produced_ms // 1000, muted_ms(broker) // 1000) == (31, 10)
    assert (await broker.call(ApiKey.FETCH, 8, client_id="other", **fetch_body(("t", 0, 0)))).throttle_time_ms > 0
    muted_ms(broker)
    assert (await broker.call(ApiKey.FETCH, 8, client_id=None, **fetch_body(("t", 0, 0)))).throttle_time_ms == 0


async def test_a_quota_holds_for_what_was_used_before_it(broker: InMemoryBroker) -> None:
    await limit(broker, PRODUCE, 1_000_000)
    await broker.produce("t", [b"x" * 4000])
    assert muted_ms(broker) == 0

    await limit(broker, PRODUCE, 100)
    await broker.produce("t", [b"small"])

    assert muted_ms(broker) > 30_000


async def test_a_quota_of_a_user_is_shared_by_all_client_ids(broker: InMemoryBroker) -> None:
    await limit(broker, PRODUCE, 100, user="ANONYMOUS")
    await broker.produce("t", [b"x" * 4000])
    muted_ms(broker)

    body: dict[str, Any] = {"acks": 1, "timeout_ms": 1000, "topics": []}
    assert (await broker.call(ApiKey.PRODUCE, 5, client_id="other", **body)).throttle_time_ms > 30_000
    assert (await broker.call(ApiKey.PRODUCE, 5, client_id=None, **body)).throttle_time_ms > 30_000


async def test_quotas_of_an_earlier_run_hold(make_broker: MakeBroker, tmp_path: Any) -> None:
    broker = make_broker(tmp_path / "data")
    await limit(broker, PRODUCE, 100)
    broker.close()

    broker = make_broker(tmp_path / "data")
    await broker.create_topic("t")
    await broker.produce("t", [b"x" * 4000])

    assert muted_ms(broker) > 30_000


# -- an open broker -------------------------------------------------------------------------------------------


@pytest.mark.pure
async def test_a_broker_without_quotas_charges_nothing_and_reads_no_clock(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Any:
        raise AssertionError("charged")

    monkeypatch.setattr(throttling, "Charge", fail)

    assert (await broker.produce("t", [b"x"])).error_code == ErrorCode.NONE
    assert broker.client.charge is None


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

    frame = encode_request(ApiKey.API_VERSIONS, 2, 1, ME, API_TABLE[ApiKey.API_VERSIONS].request())
    assert await broker.answer(frame[4:]) is not None

    assert muted_ms(broker) == 1000  # (1.5 - 0.5) / 0.5 * 10 s, at most a sample


MANY = [(0, 0, 1, 1, 0, [(1, 2)] * 200, -1, b"x" * size, None) for size in (0, 127, 128, 16_383, 16_384)] * 30


@pytest.mark.parametrize("version", range(FetchResponse.first_version, FetchResponse.last_version + 1))
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(data=st.data())
@example(data=None)
def test_the_size_of_a_fetch_response_is_known_without_encoding_it(version: int, data: Any) -> None:
    many = FetchResponse(topics=[("t" * 200, MANY if version >= 4 else [(*row[:5], None, *row[6:]) for row in MANY])])
    body = many if data is None else data.draw(values(FetchResponse, version))

    assert fetched_bytes(version, body) == 4 + sum(map(len, FetchResponse.encode(version, body)))
