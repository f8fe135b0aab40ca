"""The inside view of requests: who waits, who wakes whom, and how bytes are found."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import pytest
import trio

from minibroker.broker.apis.failures import failure_of
from minibroker.broker.wings.looking.answers import first_error
from minibroker.broker.wings.looking.counters import Counters
from minibroker.broker.wings.looking.tracer import SAMPLE, distance
from minibroker.conformance.requests import fetch_body
from minibroker.protocol.api import API_TABLE, Api, ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from tests.broker.asking import batch_of, fill
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import SETTINGS, GroupClient
from tests.broker.peers import Connect
from tests.broker.peers import connect as connect
from tests.broker.scripted_follower import lead_elsewhere
from tests.broker.traced import Traced
from tests.integration.sample_requests import sample_body
from tests.requests import by_name, framed

LONG_MS = 600_000


@pytest.fixture
async def traced(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> Traced:
    monkeypatch.setattr("minibroker.broker.wings.looking.tracer.SLOW_NS", 1 << 60)  # a busy machine is slow, too
    await broker.create_topic("orders", 2)
    return Traced(broker)


@pytest.fixture
async def watched(traced: Traced) -> Traced:
    traced.calls.pull()
    return traced


# -- what is recorded, and for how long -----------------------------------------------------------------------


async def test_nothing_is_recorded_until_a_pull_asks_for_it(traced: Traced) -> None:
    await traced.broker.produce("orders", [b"one"])
    assert (traced.tracer.is_watching, traced.tracer.last_number) == (False, 0)

    assert traced.exchanges() == []
    await traced.broker.produce("orders", [b"two"])

    [seen] = traced.exchanges()
    assert (seen["seq"], seen["api"], seen["version"], seen["client"]) == (1, ApiKey.PRODUCE, 7, "test")
    assert (seen["outcome"], seen["error"], seen["topics"], seen["records"]) == ("at once", "", ["orders"], 1)
    assert 0 < seen["handled"] <= seen["answered"]
    assert (seen["woken"], seen["sent"]) == (-1, -1)  # there is no socket


@pytest.mark.parametrize("is_released", [False, True], ids=["its time is over", "released"])
async def test_the_end_of_a_lease_ends_the_recording(watched: Traced, is_released: bool) -> None:
    parked = await watched.broker.park(watched.broker.fetch, ("orders", 0, 0), max_wait_ms=LONG_MS)

    if is_released:
        watched.calls.release()
    else:
        watched.skipped_ns += 2_000_000_001
    await watched.broker.produce("orders", [b"one"])

    assert await parked.seen() is not None
    assert not watched.tracer.is_watching
    assert not watched.broker.parts.probes.is_looking
    assert watched.exchanges() == []
    await watched.broker.produce("orders", [b"two"])
    assert [each["api"] for each in watched.exchanges()] == [ApiKey.PRODUCE]


async def test_each_pull_renews_the_lease_and_returns_the_exchanges_since(watched: Traced) -> None:
    numbers: list[int] = []
    for _ in range(3):
        watched.skipped_ns += 1_500_000_000
        await watched.broker.produce("orders", [b"one"])
        pulled = watched.pull(since=numbers[-1] if numbers else 0)
        assert [each["seq"] for each in pulled["exchanges"]] == [len(numbers) + 1]
        assert (pulled["requests"], pulled["left_out"], pulled["skipped"]) == (1, 0, [])
        numbers.append(pulled["next"])
    assert watched.pull(since=numbers[-1])["exchanges"] == []


async def test_a_quota_that_begins_is_watched_too(watched: Traced) -> None:
    rows = [([("client-id", None)], [("producer_byte_rate", 1e9, False)])]
    await watched.broker.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=rows, validate_only=False)

    watched.skipped_ns += 100_000_000  # a request in less than a millisecond is a high rate
    watched.calls.pull()
    await watched.broker.produce("orders", [b"one"])

    assert watched.explained()["produce"]["partitions"][0]["records"] == 1


async def test_of_the_plain_requests_a_sample_is_kept_and_the_rest_is_counted(watched: Traced) -> None:
    async def ask(count: int) -> dict[str, Any]:
        for _ in range(count):
            await watched.broker.fetch(("orders", 0, 0))
        return watched.pull(budget=2)

    first = await ask(20)
    assert ([each["seq"] for each in first["exchanges"]], first["left_out"], first["requests"]) == ([19, 20], 18, 20)
    assert first["kept_every"] > 1

    watched.keep_each(5)
    second = await ask(20)
    assert (second["next"] - first["next"], second["skipped"]) == (4, [[1, ApiKey.FETCH, 16]])
    watched.skipped_ns += 1_000_000_000
    assert watched.pull()["kept_every"] == 1


async def test_requests_that_wait_or_wake_others_are_kept_outside_the_sample(watched: Traced) -> None:
    watched.keep_each(1_000_000)
    await watched.broker.fetch(("orders", 0, 0))
    await watched.broker.fetch(("missing", 0, 0))
    parked = await watched.broker.park(watched.broker.fetch, ("orders", 0, 0), max_wait_ms=LONG_MS)
    watched.connect()
    await watched.broker.produce("orders", [b"one"])
    assert await parked.seen() is not None

    kept = watched.exchanges()

    assert [(each["api"], each["outcome"]) for each in kept] == [(ApiKey.FETCH, "woken"), (ApiKey.PRODUCE, "at once")]
    produce = watched.explained(kept[1]["seq"])["produce"]["partitions"][0]
    assert (produce["high_watermark"], produce["log_end_offset"], produce["records"]) == ([0, 1], [0, 1], 1)
    assert (produce["segment"], produce["position"], produce["rolled"]) == (0, 0, False)
    fetch = watched.explained(kept[0]["seq"])
    assert fetch["wait"]["cause"]["seq"] == kept[1]["seq"]
    assert (fetch["fetch"]["bytes"] > 0, fetch["fetch"]["bytes_found_first"]) == (True, 0)


async def test_a_request_outside_of_the_sample_that_closes_its_connection_is_kept(watched: Traced) -> None:
    watched.keep_each(1_000_000)

    with pytest.raises(KafkaProtocolError):
        watched.broker.way.serve(bytearray(b"\x00\x01\x00\x63\x00\x00\x00\x07\xff\xff"), watched.broker.client)

    [seen] = watched.exchanges()
    assert (seen["outcome"], seen["correlation"], "no version 99" in seen["error"]) == ("closed", 7, True)


async def test_a_request_outside_of_the_sample_that_fails_is_kept_while_the_broker_counts(watched: Traced) -> None:
    broker = watched.broker
    parts = broker.parts
    counters = Counters(parts, tracer=watched.tracer)

    async def ask() -> None:
        watched.keep_each(1_000_000)
        await broker.fetch(("orders", 0, 0))
        await broker.produce("orders", [b"one"])
        await broker.fetch(("orders", 0, 0), ("missing", 0, 0))
        await broker.produce("missing", [b"one"])
        await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["missing"], timeout_ms=1000)
        await broker.call(ApiKey.METADATA, 5, topics=by_name("missing"), allow_auto_topic_creation=False)
        await broker.call(ApiKey.HEARTBEAT, 1, group_id="none", generation_id=1, member_id="none")

    await ask()
    assert watched.exchanges() == []
    counters.start()
    await ask()
    counters.stop()

    assert [(each["api"], each["error"]) for each in watched.exchanges()] == [
        (ApiKey.FETCH, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.PRODUCE, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.DELETE_TOPICS, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.METADATA, "UNKNOWN_TOPIC_OR_PARTITION"),
        (ApiKey.HEARTBEAT, "NOT_COORDINATOR"),
    ]


async def test_a_failure_before_the_watch_is_not_the_request_in_hand(watched: Traced) -> None:
    parts = watched.broker.parts
    counters = Counters(parts, tracer=watched.tracer)
    counters.start()
    watched.tracer.release()
    await watched.broker.produce("missing", [b"one"])

    watched.pull()
    watched.keep_each(1_000_000)
    await watched.broker.produce("orders", [b"one"])
    counters.stop()

    assert watched.exchanges() == []


async def test_of_those_outside_of_the_sample_so_many_are_kept_for_each_pull(watched: Traced) -> None:
    watched.pull(budget=2)
    watched.keep_each(1_000_000)
    for number in range(5):
        watched.connect()
        await watched.broker.park(watched.broker.fetch, ("orders", 0, 0), max_wait_ms=LONG_MS)
        assert len(list(watched.tracer.not_ended())) == min(number + 1, 2)
    watched.pull(budget=2)
    watched.keep_each(1_000_000)
    watched.connect()
    await watched.broker.park(watched.broker.fetch, ("orders", 0, 0), max_wait_ms=LONG_MS)
    assert len(list(watched.tracer.not_ended())) == 3


async def test_a_burst_between_two_pulls_makes_the_sample_thinner_and_is_counted(watched: Traced) -> None:
    watched.pull(budget=5)
    watched.keep_each(1)
    for _ in range(10 + 2 * SAMPLE + 4 * SAMPLE + 8):
        await watched.broker.fetch(("orders", 0, 0))

    assert watched.tracer.kept_every == 8
    assert watched.pull(budget=1000)["requests"] == 18 + 6 * SAMPLE


async def test_a_sample_of_which_none_came_between_two_pulls_stays_thin(watched: Traced) -> None:
    watched.stop_clock()
    watched.keep_each(1000)
    for _ in range(2):
        watched.skipped_ns += 100_000_000
        for _ in range(50):
            await watched.broker.fetch(("orders", 0, 0))
        pulled = watched.pull(budget=10)
        assert (pulled["exchanges"], pulled["kept_every"]) == ([], 5)
        watched.tracer._next += 1000


async def test_a_page_that_comes_back_after_its_lease_begins_a_new_sample(watched: Traced) -> None:
    for _ in range(30):
        await watched.broker.fetch(("orders", 0, 0))
    watched.calls.release()

    pulled = watched.pull()

    assert (pulled["requests"], pulled["kept_every"]) == (0, 1)


async def test_a_filter_traces_every_request_and_leaves_the_sample_as_it_is(watched: Traced) -> None:
    watched.keep_each(4)
    watched.calls.explain(since="now", lease_ms=5000, empty=True)
    for _ in range(8):
        await watched.broker.fetch(("orders", 1, 0))
        await watched.broker.produce("orders", [b"one"])
    assert len(watched.calls.explain(lease_ms=100, empty=True)["explained"]) == 8
    assert len(watched.exchanges(ApiKey.PRODUCE)) <= 4

    watched.skipped_ns += 200_000_000  # the filter's lease is over, that of the page is not
    watched.pull()
    watched.keep_each(1_000_000)
    kept = watched.tracer.last_number
    for _ in range(5):
        await watched.broker.fetch(("orders", 1, 0))
    assert watched.tracer.last_number == kept


def test_the_distances_of_a_sample_differ_and_have_its_mean() -> None:
    drawn = [distance(40) for _ in range(2000)]

    assert (min(drawn) >= 1, max(drawn) <= 79, len(set(drawn)) > 60) == (True, True, True)
    assert 37 < sum(drawn) / len(drawn) < 43
    assert {distance(1) for _ in range(100)} == {1}


async def test_the_ring_is_bounded(watched: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.broker.wings.looking.tracer.RING_SIZE", 5)
    for _ in range(8):
        await watched.broker.produce("orders", [b"one"])

    pulled = watched.pull(since=1)

    assert ([each["seq"] for each in pulled["exchanges"]], pulled["left_out"]) == ([4, 5, 6, 7, 8], 2)
    with pytest.raises(ValueError, match="request 3 is no longer kept"):
        watched.calls.exchange(3)


# -- an exchange and its explanation ----------------------------------------------------------------------------

Scene = Callable[[Traced], Awaitable[Any]]
FETCH, PRODUCE = ApiKey.FETCH, ApiKey.PRODUCE
ONE_BYTES = len(batch_of(b"x" * 50))
SEQUENCED: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}


def parked(*ends: Scene, **options: Any) -> Scene:
    """A fetch of orders-0 that waits until another client has done all of this."""

    async def scene(traced: Traced) -> None:
        waiting = await traced.broker.park(traced.broker.fetch, ("orders", 0, 0), **{"max_wait_ms": LONG_MS} | options)
        traced.connect()
        for end in ends:
            await end(traced)
        assert await waiting.seen() is not None

    return scene


def fetch(*rows: tuple[str, int, int], **options: Any) -> Scene:
    return lambda traced: traced.broker.fetch(*rows, **options)


def produce(*values: bytes, **options: Any) -> Scene:
    return lambda traced: traced.broker.produce("orders", list(values), **options)


def write(*batches: bytearray, partition: int = 0) -> Scene:
    """A produce of each batch as it is."""

    async def scene(traced: Traced) -> None:
        for batch in batches:
            await traced.broker.write("orders", bytearray(batch), partition=partition)

    return scene


def filled(scene: Scene, size: int, batches: int = 1) -> Scene:
    """The same, after records were written."""

    async def both(traced: Traced) -> None:
        await fill(traced.broker, "orders", batches=batches, size=size)
        await scene(traced)

    return both


async def delete(traced: Traced) -> None:
    await traced.broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["orders"], timeout_ms=1000)


async def lead_it_elsewhere(traced: Traced) -> None:
    lead_elsewhere(traced.broker, "orders")


async def fail(traced: Traced) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("minibroker.storage.files.disk.pwrite", Mock(side_effect=OSError(errno.EIO, "broken")))
        await traced.broker.produce("orders", [b"x"], partition=1)


def in_session(asked_id: int | None = None, epoch: int = 1, rows: int = 0, version: int = 11) -> Scene:
    """A fetch after the one that has begun a session of two partitions, by default of that session."""

    async def scene(traced: Traced) -> None:
        begun = await traced.broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_epoch=0)
        session_id = begun.session_id if asked_id is None else asked_id
        asked = [("orders", 0, 0)] * rows
        await traced.broker.fetch(*asked, version=version, session_id=session_id, session_epoch=epoch)

    return scene


def waited(case: str, cause: str | None, ended_by: str = "request") -> dict[str, Any]:
    seen = {"outcome": "woken", "wait.case": case, "wait.ended_by": ended_by, "wait.partition": "orders-0"}
    return seen | ({"wait.cause": None} if cause is None else {"wait.cause.api": cause})


def written(**row: Any) -> dict[str, Any]:
    return {f"produce.partitions.0.{name}": value for name, value in row.items()}


LONG_FETCH = {"min_bytes": len(batch_of(b"x" * 600)) + 100}
TAKEN = {
    "base_offset": 0,
    "last_offset": 0,
    "records": 1,
    "high_watermark": [0, 1],
    "log_end_offset": [0, 1],
    "magic": 2,
    "codec": "none",
    "is_duplicate": False,
    "error": "",
    "bytes": len(batch_of(b"one", key=b"k")),
}


@pytest.mark.parametrize(
    ("configs", "scene", "api", "seen"),
    [
        pytest.param({}, parked(produce(b"one", b"two")), FETCH, waited("D", "Produce") | {
            "wait.case_text": "there are enough bytes", "wait.watched": 1, "fetch.bytes_found_first": 0,
            "wait.cause.connection": 2, "wait.cause.partitions.0.high_watermark": [0, 2],
            "kinds": ["read", "session", "found", "parked", "woken", "read again", "answered"],
            "steps.4.detail": [
                "Produce 1 of #2 test appended 2 records to orders-0; its high watermark went from 0 to 2"
            ],
        }, id="a fetch that an append ends"),
        pytest.param({}, parked(lead_it_elsewhere), FETCH, waited("A", None, "other"), id="A: it leads no more"),
        pytest.param({}, parked(delete), FETCH, waited("B", "DeleteTopics"), id="B: the topic is deleted"),
        pytest.param({}, filled(parked(filled(produce(b"x"), 800), **LONG_FETCH), 600), FETCH,
                     waited("C", "Produce"), id="C: a segment was rolled"),
        pytest.param({}, filled(parked(produce(b"x" * 20), produce(b"x" * 20), **LONG_FETCH), 600), FETCH,
                     waited("D", "Produce"), id="D: enough bytes"),
        pytest.param({}, filled(parked(fail, **LONG_FETCH), 600), FETCH, waited("E", "Produce"),
                     id="E: the disk fails"),
        pytest.param({}, fetch(("orders", 0, 0), max_wait_ms=5000), FETCH, {
            "outcome": "expired", "wait.ended_by": "time", "wait.case": "", "wait.cause": None,
            "wait.max_wait_ms": 5000, "steps.4.title": "Its time was over",
            "steps.2.title": "1 partition read: 0 of 1 byte wanted",
            "steps.5.detail": ["orders-0 was asked for at its log end offset, 0"],
        }, id="a fetch whose time is over", marks=pytest.mark.time_jumps),
        pytest.param({"flush_messages": 1}, parked(produce(b"one")), FETCH, {
            "outcome": "woken", "wait.ended_by": "flush", "wait.cause": None,
        }, id="a fetch that an fsync ends"),
        pytest.param({"flush_messages": 1}, produce(b"one"), PRODUCE, {
            "outcome": "woken", "wait.ended_by": "flush", "wait.cause": None,
        }, id="a produce that an fsync ends"),
        pytest.param({}, produce(b"one", acks=0), PRODUCE, {
            "outcome": "silent", "produce.acks": 0, "titles.-1": "No response: acks=0",
            "produce.partitions.0.base_offset": 0,
        }, id="a produce without a response"),
        pytest.param({"index_interval_bytes": 200, "segment_bytes": 1 << 20},
                     filled(fetch(("orders", 0, 13), max_partition_bytes=ONE_BYTES), 50, batches=20), FETCH, {
            f"fetch.partitions.0.{name}": value for name, value in {
                "segment": 0, "position": 13 * ONE_BYTES, "bytes": ONE_BYTES, "base_offset": 13, "last_offset": 13,
                "high_watermark": 20, "log_end_offset": 20, "last_stable_offset": 20, "index_error": None,
            }.items()
        }, id="a fetch of one batch"),
        *[pytest.param({}, in_session(*asked), FETCH, {"fetch.session.decision": decision, "titles.1": title} | more,
                       id=decision) for asked, decision, title, more in (
            ((0, -1, 1), "sessionless", "No session", {"fetch.session.asked_id": 0}),
            ((0, 0, 1), "new", "Session {answered_id}: new", {"fetch.session.asked_id": 0}),
            ((None, 1), "incremental", "Session {asked_id}, epoch 1: incremental", {
                "fetch.session.partitions": 2, "fetch.session.named": 0, "fetch.session.next_epoch": 2,
                "fetch.answered": 0, "fetch.left_out": 2}),
            ((None, 7), "wrong epoch", "Session {asked_id}, epoch 7: wrong epoch", {}),
            ((99, 1, 1), "unknown id", "Session 99, epoch 1: unknown id", {}),
            ((0, -1, 1, 6), "none", "No session", {}),
        )],
        *[pytest.param(configs, write(batch_of(b"one", key=b"k")), PRODUCE,
                       written(validation=validation, **TAKEN), id=validation) for configs, validation in (
            ({}, "taken as sent"),
            ({"compression_type": "gzip"}, "each record checked: compression.type=gzip"),
            ({"cleanup_policy": "compact"}, "each record checked: cleanup.policy=compact"),
            ({"message_timestamp_type": "LogAppendTime"},
             "each record checked: message.timestamp.type=LogAppendTime"),
        )],
        pytest.param({}, write(batch_of(b"x" * 600, **SEQUENCED)), PRODUCE,
                     written(segment=0, position=0, rolled=False, is_duplicate=False), id="a first batch"),
        pytest.param({}, write(*[batch_of(b"x" * 600, **SEQUENCED)] * 2), PRODUCE,
                     written(is_duplicate=True, base_offset=0, high_watermark=[1, 1])
                     | {"titles.1": "orders-0 has 1 record, 670 bytes already"}, id="a duplicate"),
        pytest.param({}, filled(write(batch_of(b"x" * 600)), 600), PRODUCE,
                     written(segment=1, position=0, rolled=True)
                     | {"steps.1.detail.-1": "a new segment was rolled, 1"}, id="a batch that rolls"),
        pytest.param({}, write(batch_of(b"x"), partition=7), PRODUCE,
                     written(error="UNKNOWN_TOPIC_OR_PARTITION", base_offset=-1), id="a partition that is not there"),
    ],
)  # fmt: skip
async def test_an_exchange_is_explained(
    broker: InMemoryBroker, configs: dict[str, Any], scene: Scene, api: ApiKey, seen: dict[str, Any]
) -> None:
    await broker.create_topic("orders", 2, **{"segment_bytes": 1000} | configs)
    traced = Traced(broker)
    traced.calls.pull(lease_ms=3_600_000)
    await scene(traced)

    explained = traced.explained(traced.exchanges(api)[-1]["seq"])

    explained |= {name + "s": [step[name] for step in explained["steps"]] for name in ("kind", "title")}
    session = explained["fetch"]["session"] if explained["fetch"] else {}
    expected = {path: each.format(**session) if path == "titles.1" else each for path, each in seen.items()}
    assert {path: value_at(explained, path) for path in seen} == expected
    assert sum(explained["stages_us"].values()) == max(explained["us"].values())


def value_at(explained: Any, path: str) -> Any:
    for name in path.split("."):
        explained = explained[int(name) if isinstance(explained, list) else name]
    return explained


async def test_a_woken_fetch_and_its_producer_name_each_other(watched: Traced) -> None:
    await parked(produce(b"one"), max_wait_ms=5000)(watched)

    fetched, produced = watched.exchanges()
    assert (fetched["woken_by"], produced["woke"]) == (produced["seq"], [fetched["seq"]])
    assert (fetched["outcome"], fetched["case"], fetched["max_wait"]) == ("woken", "D", 5_000_000)
    assert fetched["handled"] <= fetched["woken"] <= fetched["answered"]


async def test_a_walk_begins_at_the_index_entry_before_the_offset(broker: InMemoryBroker) -> None:
    await broker.create_topic("orders", index_interval_bytes=200)
    traced = Traced(broker)
    traced.calls.pull()
    await filled(fetch(("orders", 0, 13), max_partition_bytes=ONE_BYTES), 50, batches=20)(traced)

    explained = traced.explained()
    index, log = explained["fetch"]["partitions"][0]["index"], broker.log_of("orders")
    entry = log.segments.active.offset_index.lookup(13)
    assert (index["offset"], index["position"]) == tuple(entry)
    assert index["entry"] == log.segments.active.offset_index.slot_before(13) > 0
    assert index["headers_looked_at"] == 13 - entry.position // ONE_BYTES + 1
    log.truncate_to(5, now_ms=0)
    assert traced.explained(explained["seq"])["fetch"]["partitions"][0]["index_error"] == "the log was truncated since"


async def test_a_waiting_fetch_is_pulled_with_its_limit(watched: Traced) -> None:
    watched.stop_clock()
    await watched.broker.park(watched.broker.fetch, ("orders", 1, 0), max_wait_ms=5000)
    assert watched.pull()["waiting"] == []
    watched.skipped_ns += 60_000_000

    pulled = watched.pull()

    [waiting] = pulled["waiting"]
    assert (waiting["outcome"], waiting["max_wait"], waiting["answered"]) == ("waits", 5_000_000, -1)
    assert (pulled["parked"], pulled["exchanges"], waiting["topics"]) == (1, [], ["orders"])
    explained = watched.explained(waiting["seq"])
    assert (explained["wait"]["ended_by"], explained["fetch"]["bytes_found_first"]) == ("", 0)
    assert explained["steps"][-1]["title"] == "Parked, for 5,000 ms at most"


async def test_a_defect_of_the_explanation_harms_no_request(
    watched: Traced, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a defect")

    monkeypatch.setattr(watched.tracer.facts, "take", fail)

    assert (await watched.broker.produce("orders", [b"one"])).error_code == ErrorCode.NONE

    assert "request 1 cannot be explained: a defect of minibroker" in caplog.text
    assert watched.exchanges()[0]["records"] == 0
    caplog.clear()


# -- groups ---------------------------------------------------------------------------------------------------


@pytest.mark.time_jumps
async def test_a_group_has_the_reason_of_its_rebalance_and_its_missed_members(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS)
    client = GroupClient(broker)
    await client.find()
    traced = Traced(broker)
    traced.calls.pull(lease_ms=3_600_000)
    first = await client.join()
    await client.sync(first, [(first.member_id, b"all")])
    assert traced.explained()["group"]["why"] == f"member {first.member_id} has joined"

    traced.connect()
    waiting = await client.start_join(session_timeout_ms=30_000)
    assert waiting.waits
    broker.client = traced.clients[0]
    await client.heartbeat(first)
    told = traced.explained()
    assert (told["error"], told["group"]["state"]) == ("REBALANCE_IN_PROGRESS", "PreparingRebalance")
    for _ in range(8):  # it stays in touch, but does not join again
        await trio.sleep(9)
        await client.heartbeat(first)
    second = await waiting.seen()

    joined = traced.explained(traced.exchanges(ApiKey.JOIN_GROUP)[-1]["seq"])
    assert joined["group"] == {
        "group_id": "group",
        "state": "CompletingRebalance",
        "generation": 2,
        "members": 1,
        "member_id": second.member_id,
        "protocol": "range",
        "is_leader": True,
        "why": f"member {second.member_id} has joined",
        "missed": [first.member_id],
        "offsets": [],
        "records": [],
        "epoch": None,
        "revokes": [],
        "lacks": [],
    }
    assert "The rebalance goes on: its time was over" in [step["title"] for step in joined["steps"]]
    [row] = traced.calls.groups("group")["rows"]
    assert (row["why"], row["missed"]) == (joined["group"]["why"], [first.member_id])


async def test_a_heartbeat_shows_the_partitions_that_its_member_gives_up_and_waits_for(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS, group_consumer_assignment_interval_ms=0)
    client = GroupClient(broker)
    await client.find()
    await broker.create_topic("t", 4)
    traced = Traced(broker)
    traced.calls.pull(lease_ms=3_600_000)

    async def beat(member_id: str, epoch: int, **body: Any) -> Any:
        given: dict[str, Any] = {"group_id": "group", "member_id": member_id, "member_epoch": epoch}
        await broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **given | body)
        explained = traced.explained()
        return explained["group"], [line for step in explained["steps"] for line in step["detail"]]

    joins: dict[str, Any] = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    await beat("a", 0, **joins)
    waits, of_b = await beat("b", 0, **joins)
    revokes, of_a = await beat("a", 2)

    assert (waits["state"], waits["epoch"], waits["why"]) == ("Reconciling", 3, "member b joins")
    assert (waits["lacks"], revokes["epoch"]) == ([["t", 2, "a"], ["t", 3, "a"]], 2)
    assert revokes["revokes"] == [["t", 2], ["t", 3]]
    assert "the member waits for t-2, t-3, which a has yet to give up" in of_b
    assert "the member gives up t-2, t-3 first, and gets nothing until then" in of_a
    assert traced.calls.groups("group")["rows"][0]["why"] == "member b joins"


async def test_a_commit_has_the_lag_that_it_leaves(make_broker: MakeBroker) -> None:
    broker = make_broker(**SETTINGS)
    client = GroupClient(broker)
    await client.find()
    await broker.create_topic("orders")
    await broker.produce("orders", [b"one", b"two", b"three"])
    traced = Traced(broker)
    traced.calls.pull()

    await client.commit(("orders", 0, 1))

    assert traced.explained()["group"]["offsets"] == [["orders", 0, 1, 2]]
    assert "orders-0 is committed at 1, its lag 2" in traced.explained()["steps"][1]["detail"]


# -- what leaves the socket -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "sent"),
    [
        (100, {"how": "copied", "calls": 1, "in_the_call": True, "slices": 1}),
        (20_000, {"how": "sendfile", "calls": 2, "in_the_call": True, "slices": 1}),
    ],
)
async def test_a_response_is_sent_by_copy_or_by_sendfile(
    watched: Traced, connect: Connect, size: int, sent: dict[str, Any]
) -> None:
    await fill(watched.broker, "orders", size=size)
    peer = watched.peer(connect)
    frame = watched.broker.frame(ApiKey.FETCH, 11, **fetch_body(("orders", 0, 0), max_partition_bytes=size * 2))

    peer.sock.send(framed(frame))
    answer = await peer.receive(size)

    assert len(answer) == size
    while not (seen := watched.exchanges(ApiKey.FETCH)):
        await peer.receive(1)
    explained = watched.explained(seen[-1]["seq"])
    assert {name: explained["sent"][name] for name in sent} == sent
    assert explained["us"]["answered"] <= explained["us"]["sent"]
    assert explained["bytes_out"] > size


async def test_a_request_whose_client_leaves_is_gone(watched: Traced, connect: Connect) -> None:
    peer = watched.peer(connect)
    frame = watched.broker.frame(ApiKey.FETCH, 11, **fetch_body(("orders", 0, 0), max_wait_ms=LONG_MS))
    await peer.send(frame)
    [row] = watched.calls.connections()["connections"]
    assert (row["connection"], row["in_hand"]["api"]) == (2, "Fetch")

    peer.connection.cancel_scope.cancel()
    await peer.has_ended.wait()
    watched.connections.clear()

    assert [each["outcome"] for each in watched.exchanges()] == ["gone"]
    assert watched.calls.connections()["connections"] == []


async def test_a_malformed_request_is_shown_with_the_reason_of_its_end(watched: Traced, connect: Connect) -> None:
    peer = watched.peer(connect)

    await peer.send(b"\x00\x01\x00\x63\x00\x00\x00\x07\xff\xff")

    [seen] = watched.exchanges()
    assert (seen["outcome"], seen["api"], seen["correlation"]) == ("closed", 1, 7)
    assert "Fetch has no version 99" in seen["error"]
    assert watched.titles()[-1] == "Closed the connection"


# -- errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda api: api.name)
def test_the_error_of_any_answer_is_found(api: Api) -> None:
    version = api.versions[1]
    request = Request(api.key, version, 1, None, sample_body(api.key, version))

    failed = failure_of(request, KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))

    assert first_error(api.key, failed) == "CLUSTER_AUTHORIZATION_FAILED"
