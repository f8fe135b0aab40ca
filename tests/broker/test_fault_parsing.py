"""The faults that a test may ask for, and the refusals of others."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from minibroker.broker.config.profiles import EVERYTHING, profile_of
from minibroker.broker.wings.testing.faults.fault import Fault, RequestFacts, When
from minibroker.broker.wings.testing.faults.parsing import FaultParser
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode


def parsed(kind: str, **arguments: Any) -> Fault:
    return FaultParser(API_TABLE, EVERYTHING).fault(1, kind, arguments)


def asked(api: ApiKey = ApiKey.PRODUCE, **facts: Any) -> RequestFacts:
    given: dict[str, Any] = {"connection": 1, "address": "127.0.0.1:50000", "client_id": "app", "places": []} | facts
    return RequestFacts(api, *(given[name] for name in ("connection", "address", "client_id", "places")))


@pytest.mark.parametrize("name", ["list_offsets", "LIST_OFFSETS", "ListOffsets", "listoffsets"])
def test_an_api_has_its_name_in_any_spelling(name: str) -> None:
    assert parsed("delay", seconds=1, api=name).match.apis == {ApiKey.LIST_OFFSETS}


def test_several_apis_may_be_named() -> None:
    match = parsed("delay", seconds=1, api=["join_group", "sync_group"]).match

    assert [match.fits(asked(key)) for key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)] == [True, True]
    assert not match.fits(asked(ApiKey.HEARTBEAT))


def test_an_error_has_its_later_name_too() -> None:
    assert parsed("error", error="not_leader_or_follower", api="fetch").code is ErrorCode.NOT_LEADER_FOR_PARTITION


def test_a_fault_without_conditions_fits_every_request() -> None:
    match = parsed("delay", seconds=0.5).match

    assert match.fits(asked(ApiKey.HEARTBEAT, client_id=None))
    assert str(match) == "every request"
    assert [parsed("disconnect").when, parsed("disconnect", when="AFTER").when] == [When.BEFORE, When.AFTER]


@pytest.mark.parametrize(
    ("where", "fits"),
    [
        ({"topic": "orders"}, True),
        ({"topic": "orders", "partition": 0}, True),
        ({"topic": "orders", "partition": 1}, False),
        ({"topic": "payments"}, False),
        ({"client_id": "app"}, True),
        ({"client_id": "App"}, False),
        ({"connection": 1}, True),
        ({"connection": 2}, False),
        ({"connection": "127.0.0.1:50000"}, True),
        ({"connection": "127.0.0.1:5000"}, False),
        ({"api": "fetch"}, False),
        ({"api": "produce", "topic": "orders", "client_id": "other"}, False),
    ],
)
def test_all_conditions_of_a_fault_must_fit(where: dict[str, Any], fits: bool) -> None:
    request = asked(places=[("orders", 0), ("refunds", 1)])

    assert parsed("delay", seconds=1, **where).match.fits(request) is fits


def test_a_fault_of_a_topic_is_for_requests_of_everything_and_not_for_those_that_name_no_topic() -> None:
    match = parsed("delay", seconds=1, topic="orders").match

    assert match.fits(asked(ApiKey.METADATA, places=None))
    assert not match.fits(asked(ApiKey.HEARTBEAT))


def test_skip_lets_the_first_pass_and_times_ends_it() -> None:
    fault = parsed("delay", seconds=1, skip=2, times=1)

    assert [fault.strikes() for _ in range(4)] == [False, False, True, False]
    assert (fault.count, fault.is_active) == (1, False)


async def test_a_fault_for_some_seconds_ends_so_long_after_its_first_strike(autojump_clock: object) -> None:
    fault = parsed("delay", seconds=1, skip=1, for_seconds=3)
    struck = []
    for pause_seconds in (0, 5, 2, 2):
        await trio.sleep(pause_seconds)
        struck.append(fault.strikes())

    assert struck == [False, True, True, False]
    assert not fault.is_active


def test_a_fault_is_described_in_words() -> None:
    fault = parsed("error", error="NOT_COORDINATOR", api="heartbeat", client_id="app", times=3)
    fault.strikes()
    other = parsed("delay", seconds=1, api=["produce", "fetch"], topic="orders", connection=2)

    assert str(fault) == "NOT_COORDINATOR (before serving) for requests of Heartbeat from client 'app': struck 1 of 3"
    assert str(other.match) == "requests of Produce, Fetch for orders on connection 2"


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        ("explode", {}, "kind is one of error, delay, disconnect, torn_frame, wrong_crc, slow, not 'explode'"),
        ("error", {"error": "NOT_LEADER", "api": "fetch"}, "did you mean .*NOT_LEADER_FOR_PARTITION"),
        ("error", {"error": "xyz", "api": "fetch"}, "unknown error 'xyz'; known: BROKER_NOT_AVAILABLE, CLUSTER_"),
        ("error", {"error": "NONE", "api": "fetch"}, "unknown error 'NONE'"),
        ("error", {"error": 6, "api": "fetch"}, "unknown error 6"),
        ("error", {"error": "NOT_COORDINATOR"}, "error needs an api, such as api='produce'; this broker offers add"),
        ("delay", {"seconds": 1, "api": "prodcue"}, "no API 'prodcue'; it offers add_offsets_to_txn, .*produce"),
        ("delay", {"seconds": 1, "api": 0}, "api is a name or a list of names, not 0"),
        ("delay", {"seconds": 1, "api": [3]}, r"api is a name or a list of names, not \[3\]"),
        ("delay", {"seconds": 1, "api": []}, r"api is a name or a list of names, not \[\]"),
        ("delay", {}, "seconds is a number above 0 and at most 86400, not None"),
        ("delay", {"seconds": 0}, "seconds is a number above 0"),
        ("delay", {"seconds": float("nan")}, "seconds is a number above 0"),
        ("delay", {"seconds": float("inf")}, "seconds is a number above 0"),
        ("delay", {"seconds": True}, "seconds is a number above 0"),
        ("delay", {"seconds": 1, "times": 0}, "times is a whole number of at least 1, not 0"),
        ("delay", {"seconds": 1, "skip": -1}, "skip is a whole number of at least 0, not -1"),
        ("delay", {"seconds": 1, "partition": 0}, "partition needs a topic"),
        ("delay", {"seconds": 1, "topic": 5}, "topic is a string, not 5"),
        ("delay", {"seconds": 1, "connection": 0}, "connection is its number, from 1, or .*host:port, not 0"),
        ("delay", {"seconds": 1, "connection": "first"}, "connection is its number, from 1, or the client's host:port"),
        ("delay", {"seconds": 1, "when": "during"}, "when is one of before, after, not 'during'"),
        ("delay", {"seconds": 1, "for_seconds": 0}, "for_seconds is a number above 0"),
        ("delay", {"seconds": 1, "topik": "a"}, "delay takes no topik"),
        ("torn_frame", {"when": "before"}, "torn_frame takes no when"),
        ("slow", {"bytes_per_second": 0}, "bytes_per_second is a whole number of at least 1, not 0"),
        ("wrong_crc", {"api": "produce"}, "wrong_crc is for the answers of Fetch only; leave api out"),
        ("torn_frame", {"api": "heartbeat", "topic": "a"}, "heartbeat cannot be for one topic; it can for .*produce"),
        ("torn_frame", {"api": "create_topics", "topic": "a", "partition": 0}, "create_topics cannot be for one part"),
    ],
)  # fmt: skip
def test_an_impossible_fault_is_refused_with_the_choices(kind: str, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parsed(kind, **arguments)


def test_a_release_is_asked_for_nothing_it_has_not() -> None:
    book = FaultParser({ApiKey.PRODUCE: API_TABLE[ApiKey.PRODUCE]}, profile_of("0.11"))

    with pytest.raises(ValueError, match=r"it offers produce$"):
        book.fault(1, "delay", {"seconds": 1, "api": "fetch"})
    with pytest.raises(ValueError, match=r"0\.11\.0\.3, which this broker acts as, has no UNKNOWN_PRODUCER_ID"):
        book.fault(1, "error", {"error": "UNKNOWN_PRODUCER_ID", "api": "produce"})
