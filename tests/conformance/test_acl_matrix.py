"""Rights: what a request without one of them gets is what Apache Kafka 2.0.1 answered, for every API and version.

`acl_matrix.py` makes the cases from the table of rights, and records. The answers are held against the table too: a
request that lacks a right gets that right's error, one that lacks none gets no such error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from trio.testing import MockClock

from minibroker.conformance.answers import Plain
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0
from minibroker.conformance.steps import KEYS
from minibroker.protocol.api import API_TABLE
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.conformance.acl_matrix import (
    AUTHORIZER,
    DENIALS,
    LATER_RIGHTS,
    PREFIX,
    REQUESTS,
    Case,
    answers_at,
    cases,
    granted,
    kept_of,
    recorded,
    script,
    titles,
    unlike_recorded,
)
from tests.conformance.in_memory import InMemoryPeer
from tests.integration.brokers import Minibroker

CASES = cases()


@pytest.fixture
async def ours(make_broker: MakeBroker, autojump_clock: MockClock) -> list[Plain]:
    given = {**SETTINGS, **AUTHORIZER}
    broker: InMemoryBroker = make_broker(**{name.replace(".", "_"): value for name, value in given.items()})
    broker.clock.wall_now_ms = time.time_ns() // 1_000_000  # another time than that of the records
    return kept_of(await InMemoryPeer(broker, broker.nursery).hold(script(CASES), PREFIX), CASES)


def test_the_recording_has_every_case() -> None:
    assert [title for title, _ in recorded()] == titles(CASES)


def test_the_requests_ask_for_every_right_of_the_table() -> None:
    for key, last in LAST_VERSIONS_OF_KAFKA_2_0.items():
        declared = [right for right in API_TABLE[key].rights if right.versions[0] <= last]
        asked = {right for each in REQUESTS if KEYS[each.api] == key for right in each.asks}
        assert asked >= {right for right in declared if str(right) not in LATER_RIGHTS}, key


async def test_answers_are_those_of_apache_kafka(ours: list[Plain]) -> None:
    assert unlike_recorded(ours) == []


@pytest.mark.integration
@pytest.mark.slow
def test_a_broker_in_a_process_knows_clients_by_their_addresses(tmp_path: Path) -> None:
    broker = Minibroker(tmp_path, "--set", "broker.id=0", settings={**SETTINGS, **AUTHORIZER})
    try:
        broker.wait_until_ready()
        assert unlike_recorded(answers_at(broker.host, broker.port)) == []
    finally:
        broker.kill()


def test_a_request_that_lacks_a_right_gets_its_error_and_others_get_none() -> None:
    for case, (_, answer) in zip(CASES, recorded()[-len(CASES) :], strict=True):
        codes = set(codes_of_granted(answer)) & DENIALS
        if case.missing is None:
            assert not codes, (str(case), codes)
        elif not is_silent(case):
            all_missing = {right.refusal for right in case.request.asks if not granted(right, case.grants)}
            assert refusal(case) in codes, (str(case), codes)
            assert codes <= {refusal(case), *all_missing}, (str(case), codes)


def refusal(case: Case) -> int:
    assert case.missing is not None
    if case.request.api == "Fetch":
        return 29  # of followers too
    return int(case.missing.refusal)


def is_silent(case: Case) -> bool:
    """Whether the answer goes without what may not be known."""
    asks_for_all = case.request.api in ("Metadata", "OffsetFetch") and not case.request.body(0)["topics"]
    return case.request.api == "DescribeLogDirs" or (asks_for_all and str(case.missing) == "Describe Topic")


def codes_of_granted(answer: Plain) -> Iterator[int]:
    """The error codes of an answer, without those of rows that nobody has a right on."""
    if isinstance(answer, list):
        for each in answer:
            yield from codes_of_granted(each)
    elif isinstance(answer, dict):
        names = {answer.get(field) for field in ("name", "topic", "group_id", "resource_name")}
        if names & {"@hidden", "@absent", "@h"}:
            return
        if "error_code" in answer:
            yield answer["error_code"]
        for each in answer.values():
            yield from codes_of_granted(each)
