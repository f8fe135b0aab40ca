"""The control calls of the inside view: snapshots of the broker, what a filter chooses, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.wings.looking.calls import EXPLAINED_MAX, InsideCalls
from minibroker.broker.wings.looking.tracer import WANTS_MAX
from minibroker.protocol.api import ApiKey
from minibroker.transcript.file import TranscriptWriter
from minibroker.transcript.recorder import Recorder
from tests.broker.asking import fill
from tests.broker.conftest import InMemoryBroker
from tests.broker.traced import Traced

LONG_MS = 600_000


@pytest.fixture
async def traced(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> Traced:
    monkeypatch.setattr("minibroker.broker.wings.looking.tracer.SLOW_NS", 1 << 60)  # a busy machine is slow, too
    await broker.create_topic("orders", 2, segment_bytes=2000, index_interval_bytes=200)
    traced = Traced(broker)
    traced.calls.pull()
    return traced


# -- explain --------------------------------------------------------------------------------------------------


async def conversation(traced: Traced) -> None:
    """An empty fetch, one that waits for a produce of another client, one of a missing topic, and one with records."""
    broker = traced.broker
    await broker.fetch(("orders", 0, 0), client_id="billing")
    await broker.park(broker.fetch, ("orders", 0, 0), max_wait_ms=LONG_MS, client_id="billing")
    traced.connect()
    await broker.produce("orders", [b"one"])
    await broker.fetch(("missing", 0, 0))
    await broker.fetch(("orders", 0, 0))


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        pytest.param({}, [1, 2, 3, 4, 5], id="all"),
        pytest.param({"api": "fetch"}, [1, 2, 4, 5], id="an API"),
        pytest.param({"api": ["PRODUCE", "list_offsets"]}, [3], id="several"),
        pytest.param({"client_id": "billing"}, [1, 2], id="a client"),
        pytest.param({"connection": 2}, [3, 4, 5], id="a connection"),
        pytest.param({"topic": "missing"}, [4], id="a topic"),
        pytest.param({"topic": "orders", "api": "Fetch"}, [1, 2, 5], id="a topic of an API"),
        pytest.param({"parked": True}, [2], id="parked"),
        pytest.param({"empty": True}, [1], id="empty"),
        pytest.param({"failed": True}, [4], id="failed"),
        pytest.param({"slower_than_ms": 1e6}, [], id="slower"),
    ],
)
@pytest.mark.parametrize("is_followed", [True, False], ids=["followed", "asked for later"])
async def test_a_filter_chooses_the_explained_exchanges(
    traced: Traced, chosen: dict[str, Any], numbers: list[int], is_followed: bool
) -> None:
    since: int | str = 0
    if is_followed:
        traced.calls.release()
        since = traced.calls.explain(since="now", **chosen)["next"]
    await conversation(traced)

    answer = traced.calls.explain(since=since, **chosen)

    assert sorted(each["seq"] for each in answer["explained"]) == numbers
    assert json.loads(json.dumps(answer)) == answer
    assert traced.calls.explain(since=answer["next"], **chosen)["explained"] == []


async def test_a_filter_keeps_exchanges_outside_the_sample_and_goes_on_where_it_stopped(traced: Traced) -> None:
    traced.keep_each(1_000_000)
    since = traced.calls.explain(since="now", api="fetch")["next"]
    for _ in range(5):
        await traced.broker.fetch(("orders", 0, 0))

    first = traced.calls.explain(since=since, budget=3, api="fetch")
    second = traced.calls.explain(since=first["next"], budget=3, api="fetch")

    assert [len(each["explained"]) for each in (first, second)] == [3, 2]


async def test_a_call_explains_only_so_many_whatever_it_asks_for(traced: Traced) -> None:
    """A thousand took 60 to 200 ms, in which the broker served nobody."""
    since = traced.calls.explain(since="now", api="fetch")["next"]
    for _ in range(EXPLAINED_MAX + 1):
        await traced.broker.fetch(("orders", 0, 0))

    first = traced.calls.explain(since=since, budget=1000, api="fetch")
    second = traced.calls.explain(since=first["next"], budget=1000, api="fetch")

    assert [len(each["explained"]) for each in (first, second)] == [EXPLAINED_MAX, 1]


async def test_only_so_many_filters_are_followed_at_a_time(traced: Traced) -> None:
    for number in range(WANTS_MAX):
        traced.calls.explain(client_id=str(number))
    traced.calls.explain(client_id="0")

    with pytest.raises(ValueError, match="16 filters are followed already"):
        traced.calls.explain(client_id="one more")

    traced.skipped_ns += 2_000_000_001
    traced.calls.explain(client_id="one more")


@pytest.mark.parametrize(
    ("call", "arguments", "reason"),
    [
        ("pull", {"since": -1}, "since is a whole number from 0"),
        ("pull", {"budget": 0}, "budget is a whole number from 1 to 1000, not 0"),
        ("pull", {"budget": True}, "budget is a whole number"),
        ("pull", {"lease_ms": 10**9}, "lease_ms is a whole number from 100 to 3600000"),
        ("exchange", {"seq": "x"}, "request 'x' is no longer kept"),
        ("explain", {"api": "fetsch"}, "'fetsch' is not a known API"),
        ("explain", {"api": [1]}, "1 is not the name of an API"),
        ("explain", {"since": "then"}, "since is a number or 'now'"),
        ("explain", {"slower_than_ms": "1"}, "slower_than_ms is a number"),
        ("explain", {"topic": ["a"]}, "topic is a name"),
        ("log", {"topic": "missing", "partition": 0}, "unknown partition missing-0"),
        ("log", {"topic": ["x"], "partition": {}}, "topic is a name"),
        ("log", {"topic": "orders", "partition": 0, "offset": -5}, "offset is a whole number from 0"),
        ("logs", {"topic": "orders", "partitions": 3}, "partitions is a list of 200 numbers"),
        ("logs", {"topic": "orders", "partitions": [-1]}, "partition is a whole number"),
        ("logs", {"topic": "orders", "partitions": [0] * 201}, "partitions is a list of 200 numbers"),
        ("purgatory", {"budget": 10**6}, "budget is a whole number"),
        ("connections", {"after": None}, "after is a whole number"),
        ("sessions", {"budget": "many"}, "budget is a whole number"),
        ("groups", {"group_id": 7}, "group_id is a name"),
    ],
)
async def test_a_call_refuses_wrong_arguments_with_the_reason(
    traced: Traced, call: str, arguments: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        getattr(traced.calls, call)(**arguments)
    assert getattr(refused.value, "code", None) == ("not-kept" if call == "exchange" else None)


async def test_logs_have_their_ends_and_segments(traced: Traced) -> None:
    for _ in range(4):
        await traced.broker.produce("orders", [b"x" * 900])

    rows = traced.calls.logs("orders", [1, 0, 7])["rows"]

    assert [(row["partition"], row["log_end_offset"], row["segments"]) for row in rows] == [(1, 0, 1), (0, 4, 2)]
    assert traced.calls.logs("missing", [0])["rows"] == []


async def test_the_transcript_is_named_if_there_is_one(traced: Traced, tmp_path: Path) -> None:
    recorder, broker = Recorder(TranscriptWriter(tmp_path / "it"), max_record_bytes=1, max_bytes=1 << 20), traced.broker
    calls = InsideCalls(traced.tracer, broker.parts, broker.positions, broker.clock, recorder=recorder)
    named = calls.transcript()
    recorder.close()

    assert (named["path"], named["is_recording"]) == (str(tmp_path / "it"), True)
    assert not calls.transcript()["is_recording"]
    assert traced.calls.transcript()["path"] is None


# -- snapshots ------------------------------------------------------------------------------------------------


async def test_a_log_is_shown_by_segments_index_and_batches(traced: Traced) -> None:
    size = await fill(traced.broker, "orders", batches=40, size=50)
    log = traced.broker.log_of("orders")
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 2

    shown = traced.calls.log("orders", 0, offset=bases[1] + 7)

    assert [each["base_offset"] for each in shown["segments"]] == bases
    assert [each["is_active"] for each in shown["segments"]] == [False] * (len(bases) - 1) + [True]
    assert (shown["segment"], shown["more"], shown["log_end_offset"], shown["high_watermark"]) == (
        bases[1],
        None,
        40,
        40,
    )
    entry_offset, position, entry = shown["index"][shown["entry"]]
    assert (entry, entry_offset <= bases[1] + 7) == (shown["entry"], True)
    assert shown["batches"][0]["position"] == position
    assert [each["base_offset"] for each in shown["batches"]] == list(range(entry_offset, bases[2]))
    assert {each["bytes"] for each in shown["batches"]} == {size}
    assert traced.calls.log("orders", 0, after=bases[1])["segments"] == shown["segments"][2:]
    assert traced.calls.log("orders", 0, offset=41)["segment"] is None
    assert traced.calls.log("orders", 1)["batches"] == []


async def test_a_long_log_is_shown_in_pieces(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minibroker.broker.wings.looking.snapshots.SEGMENTS_MAX", 1)
    monkeypatch.setattr("minibroker.broker.wings.looking.snapshots.BATCHES_MAX", 2)
    monkeypatch.setattr("minibroker.broker.wings.looking.snapshots.ENTRIES_MAX", 3)
    await fill(traced.broker, "orders", batches=40, size=50)

    shown, bases = traced.calls.log("orders", 0, offset=0), []
    assert (len(shown["batches"]), shown["batches_more"], len(shown["index"])) == (2, True, 3)
    while True:
        bases += [each["base_offset"] for each in shown["segments"]]
        if shown["more"] is None:
            break
        shown = traced.calls.log("orders", 0, after=shown["more"])

    assert bases == traced.broker.log_of("orders").segments.bases


async def test_the_wheel_shows_operations_at_their_slots(mock_clock: object, traced: Traced) -> None:
    """Time stands still at the start of the wheel: elsewhere a deadline may be on a level that is not shown."""
    for partition, max_wait_ms in ((0, 100_000), (1, 50_000), (1, 100_000)):
        traced.connect()
        await traced.broker.park(traced.broker.fetch, ("orders", partition, 0), max_wait_ms=max_wait_ms)
    traced.tracer.now_ns = lambda: 0  # on a busy machine a snapshot may end before it is whole

    shown = traced.calls.purgatory()

    fetch = next(each for each in shown["purgatories"] if each["name"] == "Fetch")
    assert (fetch["delayed"], fetch["watched"]) == (3, 3)
    found = [each for each in shown["operations"] if each["kind"] == "Fetch"]
    assert [each["seq"] for each in found] == [2, 1, 3]
    assert {each["connection"] for each in found} == {2, 3, 4}
    for each in found:
        assert shown["levels"][each["level"]]["slot_ms"] == 256 ** each["level"]
        assert each["slot"] == each["deadline_ms"] >> (8 * each["level"]) & 255
        assert each["slot"] in dict(shown["levels"][each["level"]]["lit"])
    waiting = traced.calls.exchange(3)["wait"]
    assert (waiting["level"], waiting["slot"]) == (found[2]["level"], found[2]["slot"])
    assert len(traced.calls.purgatory(budget=1)["operations"]) == 1
    assert traced.calls.purgatory(budget=1)["more"]


async def test_a_snapshot_of_a_crowded_wheel_stops_in_time(traced: Traced) -> None:
    await traced.broker.park(traced.broker.fetch, ("orders", 0, 0), max_wait_ms=100_000)
    ticks = iter(range(0, 1 << 60, 2_000_000))
    traced.tracer.now_ns = lambda: next(ticks)

    shown = traced.calls.purgatory()

    assert ([each["lit"] for each in shown["levels"]], shown["later"], shown["more"]) == ([[], [], []], -1, True)


async def test_sessions_are_shown_in_pieces_by_their_ids(traced: Traced) -> None:
    for _ in range(3):
        await traced.broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_epoch=0)

    first = traced.calls.sessions(budget=2)
    second = traced.calls.sessions(after=first["more"], budget=2)

    rows = first["rows"] + second["rows"]
    assert [each["id"] for each in rows] == sorted(each["id"] for each in rows)
    assert (len(rows), second["more"], first["sessions"], first["partitions"]) == (3, None, 3, 6)
    assert (rows[0]["epoch"], rows[0]["is_follower"]) == (1, False)
    assert rows[0]["shown"] == [["orders", 0, 0, 0], ["orders", 1, 0, 0]]


async def test_every_answer_has_the_run_and_the_time(traced: Traced) -> None:
    answers = [getattr(traced.calls, each)() for each in ("pull", "purgatory", "connections", "sessions", "groups")]

    assert len({each["run"] for each in answers}) == 1
    times = [each["now_us"] for each in answers]
    assert times == sorted(times)
    assert traced.calls.apis()["apis"][str(int(ApiKey.LIST_OFFSETS))] == "ListOffsets"


async def test_the_recorded_answers_of_the_page_have_the_keys_of_real_ones(traced: Traced) -> None:
    moment = pytest.importorskip("tests.console.inside_moment", reason="install minibroker[dev], for playwright")
    scene = moment.recorded_scene()
    traced.calls.pull()
    await traced.broker.produce("orders", [b"one"])
    parked = await traced.broker.park(traced.broker.fetch, ("orders", 0, 1), max_wait_ms=5000)
    traced.connect()
    await traced.broker.produce("orders", [b"two"])
    assert await parked.seen() is not None
    [_, fetch, _] = traced.exchanges()

    real = traced.explained(fetch["seq"])

    assert unknown_keys(moment.explained(scene), real) == []
    log = traced.calls.log("orders", 0, 1)
    assert unknown_keys(moment.log(scene), log) == []
    assert unknown_keys(moment.purgatory(scene), traced.calls.purgatory()) == []


def unknown_keys(recorded: Any, real: Any, where: str = "") -> list[str]:
    """The keys of objects, at any depth, that a real answer does not have there."""
    if isinstance(recorded, dict) and isinstance(real, dict):
        return [
            problem
            for key, value in recorded.items()
            for problem in (unknown_keys(value, real[key], f"{where}.{key}") if key in real else [f"{where}.{key}"])
        ]
    if isinstance(recorded, list) and isinstance(real, list) and recorded and real:
        return unknown_keys(recorded[0], real[0], f"{where}[]")
    return []
