"""DescribeClientQuotas and AlterClientQuotas: what is refused, what is found, what is kept.

The errors are those of Apache Kafka 3.9.1, seen on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.apis import client_quotas
from minibroker.broker.cluster.file_state import FILE_NAME
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker

U, C = "user", "client-id"
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
ANN = [(U, "ann")]
EXACT, DEFAULT, ANY = range(3)

Entity = Sequence[tuple[str, str | None]]


async def alter(broker: InMemoryBroker, *entries: Any, version: int = 1, validate_only: bool = False) -> list[Any]:
    """Alter; an entry is an entity and its operations: a key with its value, None to remove it."""
    rows = [(entity, [(key, value or 0.0, value is None) for key, value in ops]) for entity, ops in entries]
    answer = await broker.call(ApiKey.ALTER_CLIENT_QUOTAS, version, entries=rows, validate_only=validate_only)
    return [(row.error_code, row.error_message, [tuple(each) for each in row.entity]) for row in answer.entries]


async def describe(broker: InMemoryBroker, *components: Any, strict: bool = False, version: int = 1) -> Any:
    answer = await broker.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=list(components), strict=strict)
    if answer.entries is None:
        return answer.error_code, answer.error_message
    return {tuple(map(tuple, row.entity)): dict(map(tuple, row.values)) for row in answer.entries}


@pytest.mark.parametrize("version", [0, 1])
async def test_quotas_are_set_described_changed_and_removed(broker: InMemoryBroker, version: int) -> None:
    ok = (ErrorCode.NONE, None)
    assert await alter(broker, (ANN, [(PRODUCE, 100), (REQUEST, 33.5)]), version=version) == [(*ok, ANN)]
    assert await describe(broker, version=version) == {tuple(ANN): {PRODUCE: 100.0, REQUEST: 33.5}}

    await alter(broker, (ANN, [(PRODUCE, 200), (FETCH, 7), (REQUEST, None)]), version=version)
    assert await describe(broker, version=version) == {tuple(ANN): {FETCH: 7.0, PRODUCE: 200.0}}

    await alter(broker, (ANN, [(PRODUCE, None), (FETCH, None)]), version=version)
    assert await describe(broker, version=version) == {}


async def test_the_types_of_an_entity_are_answered_in_one_order(broker: InMemoryBroker) -> None:
    ((_, _, entity),) = await alter(broker, ([(U, None), (C, "c")], [(PRODUCE, 1)]))

    assert entity == [(C, "c"), (U, None)]
    assert list(await describe(broker)) == [((C, "c"), (U, None))]


MUTATIONS = "controller_mutation_rate"
TWICE = "Ignoring duplicate entity ClientQuotaEntity(entries={user=ann})"
REFUSED: dict[str, tuple[Entity, list[tuple[str, float | None]], str]] = {
    "no entity": ([], [(PRODUCE, 1)], "Invalid empty client quota entity"),
    "a type": ([("group", "a")], [(PRODUCE, 1)], "Unhandled client quota entity type: group"),
    "a type beside another": ([(U, "a"), ("ip", "::1")], [(PRODUCE, 1)], "Unhandled client quota entity type: ip"),
    "an empty type": ([("", "a")], [(PRODUCE, 1)], "Unhandled client quota entity type: "),
    "an empty user": ([(U, "")], [(PRODUCE, 1)], "Empty user not supported"),
    "an empty client id": ([(C, "")], [(PRODUCE, 1)], "Empty client-id not supported"),
    "a key": (ANN, [("nope", 1)], "Invalid configuration key nope"),
    "a key of later Kafka": (ANN, [(MUTATIONS, 1)], f"Invalid configuration key {MUTATIONS}"),
    "a negative rate": (ANN, [(FETCH, -1)], "Quota consumer_byte_rate must be greater than 0"),
    "a zero": (ANN, [(REQUEST, 0)], "Quota request_percentage must be greater than 0"),
    "NaN": (ANN, [(REQUEST, math.nan)], "Quota request_percentage must be greater than 0"),
    "a fraction": (ANN, [(PRODUCE, 100.5)], "producer_byte_rate cannot be a fractional value."),
    "a small fraction": (ANN, [(PRODUCE, 1.00001)], "producer_byte_rate cannot be a fractional value."),
    "too much": (ANN, [(PRODUCE, 1e19)], "Proposed value for producer_byte_rate is too large for a LONG."),
    "infinitely much": (ANN, [(PRODUCE, math.inf)], "Proposed value for producer_byte_rate is too large for a LONG."),
    "a key twice": (ANN, [(PRODUCE, 1), (PRODUCE, 2)], TWICE),
    "set and removed": (ANN, [(PRODUCE, 1), (PRODUCE, None)], TWICE),
    "the first error": (ANN, [(PRODUCE, 1), ("x", 1), (FETCH, -1)], "Invalid configuration key x"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_entry_changes_nothing(broker: InMemoryBroker, name: str) -> None:
    entity, ops, message = REFUSED[name]

    ((code, told, _),) = await alter(broker, (entity, ops))

    assert (code, told) == (ErrorCode.INVALID_REQUEST, message)
    assert await describe(broker) == {}


@pytest.mark.parametrize(
    ("key", "value"), [(PRODUCE, 2.0**63), (PRODUCE, 1.0000001), (REQUEST, 1e-9), (REQUEST, math.inf), (REQUEST, 1e19)]
)
async def test_values_at_the_bounds_are_accepted(
    make_broker: MakeBroker, tmp_path: Path, key: str, value: float
) -> None:
    broker = make_broker(tmp_path / "data")
    await alter(broker, (ANN, [(key, value)]))
    broker.close()

    assert await describe(make_broker(tmp_path / "data")) == {tuple(ANN): {key: value}}


async def test_an_entity_twice_is_refused_and_others_are_altered(broker: InMemoryBroker) -> None:
    both: list[tuple[str, str | None]] = [(U, "b"), (C, "c")]
    rows = await alter(broker, (both, [(PRODUCE, 1)]), (both[::-1], [(FETCH, 2)]), (ANN, [(PRODUCE, 3)]))

    text = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=b})"
    assert rows == [(ErrorCode.INVALID_REQUEST, text, both[::-1]), (ErrorCode.NONE, None, ANN)]
    assert await describe(broker) == {tuple(ANN): {PRODUCE: 3.0}}


async def test_of_a_type_twice_the_last_name_counts(broker: InMemoryBroker) -> None:
    assert (await alter(broker, ([(U, "a"), (U, "b")], [(PRODUCE, 7)])))[0][2] == [(U, "b")]


async def test_validation_alone_changes_nothing(broker: InMemoryBroker) -> None:
    rows = await alter(broker, (ANN, [(PRODUCE, 1)]), ([(U, "bob")], [(PRODUCE, -1)]), validate_only=True)

    assert [code for code, *_ in rows] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert await describe(broker) == {}


async def test_what_is_not_there_may_be_removed(broker: InMemoryBroker) -> None:
    rows = await alter(broker, ([(U, "absent")], [(PRODUCE, None), ("nope", None)]))

    assert [code for code, *_ in rows] == [ErrorCode.NONE]


# -- filters --------------------------------------------------------------------------------------------------

SET: list[Entity] = [
    ANN,
    [(U, "bob")],
    [(U, None)],
    [(C, "c")],
    [(C, None)],
    [(C, "c"), (U, "ann")],
    [(C, None), (U, None)],
]
FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], list[int], list[int]]] = {
    # components; the places in SET that match; those that match strictly
    "all": ([], [0, 1, 2, 3, 4, 5, 6], []),
    "a user": ([(U, EXACT, "ann")], [0, 5], [0]),
    "an absent user": ([(U, EXACT, "zoe")], [], []),
    "an empty user": ([(U, EXACT, "")], [], []),
    "the default user": ([(U, DEFAULT, None)], [2, 6], [2]),
    "any user": ([(U, ANY, None)], [0, 1, 2, 5, 6], [0, 1, 2]),
    "any client id": ([(C, ANY, None)], [3, 4, 5, 6], [3, 4]),
    "both": ([(U, ANY, None), (C, ANY, None)], [5, 6], [5, 6]),
    "both by name": ([(C, EXACT, "c"), (U, EXACT, "ann")], [5], [5]),
    "both defaults": ([(C, DEFAULT, None), (U, DEFAULT, None)], [6], [6]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
async def test_filters_find_what_they_name(broker: InMemoryBroker, name: str) -> None:
    components, found, found_strictly = FILTERS[name]
    await alter(broker, *((entity, [(PRODUCE, place + 1)]) for place, entity in enumerate(SET)))

    for strict, places in ((False, found), (True, found_strictly)):
        answer = await describe(broker, *components, strict=strict)
        assert [rates[PRODUCE] - 1 for rates in answer.values()] == places


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([(U, EXACT, None)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([(U, DEFAULT, "x")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([(U, ANY, "x")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([(U, 3, None)], 42, "Unknown match type 3"),
        ([(U, -1, None)], 42, "Unknown match type -1"),
        ([("group", ANY, None)], 35, "Unsupported entity type group"),
        ([("", ANY, None)], 42, "Invalid empty entity type."),
        ([(U, ANY, None), (U, EXACT, "a")], 42, "Entity type user cannot appear more than once in the filter."),
    ],
)
async def test_filters_that_kafka_refuses_are_refused(
    broker: InMemoryBroker, components: Any, code: int, message: str
) -> None:
    assert await describe(broker, *components) == (code, message)


# -- what is kept ---------------------------------------------------------------------------------------------


async def test_quotas_outlive_the_broker(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "data")
    odd = "a/b c%\u00e9<default>"
    await alter(broker, *((entity, [(FETCH, 5)]) for entity in SET), ([(U, odd)], [(PRODUCE, 1)]))
    before = await describe(broker)
    broker.close()

    assert await describe(make_broker(tmp_path / "data")) == before
    assert len(before) == len(SET) + 1


async def test_a_quota_that_cannot_be_stored_does_not_hold(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(broker.app._state, "_store", fail)

    ((code, _, _),) = await alter(broker, (ANN, [(PRODUCE, 1)]))

    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await describe(broker) == {}
    assert broker.app._state.client_quotas == {}


async def test_the_names_of_all_entities_are_bounded(
    make_broker: MakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_quotas, "NAMES_MAX_BYTES", 10_000)
    broker = make_broker(tmp_path / "data")
    assert (await alter(broker, ([(U, "x" * 9000)], [(PRODUCE, 1)])))[0][0] == ErrorCode.NONE

    ((code, _, _),) = await alter(broker, ([(C, "y" * 1001)], [(PRODUCE, 1)]))

    assert code == ErrorCode.INVALID_REQUEST
    stored = json.loads((tmp_path / "data" / FILE_NAME).read_text())["client_quotas"]
    assert [list(each["entity"]) for each in stored] == [[U]]
