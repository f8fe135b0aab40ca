"""Every API, in every version it has: an error can be told of all of it, and of one topic alone where it has topics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from minibroker.broker.wings.testing.faults.rows import ROWS, answered_rows, requested_rows
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.schema import Array, Field
from tests.broker.conftest import MakeBroker
from tests.broker.faulty import Faulty
from tests.broker.transactional import FEW
from tests.integration.sample_requests import NO_SUCH_NAME, sample_body

# As Kafka answers them that fail: with no directory.
SAY_NOTHING = {(ApiKey.DESCRIBE_LOG_DIRS, version) for version in range(3)}
CODE = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
# They have no rows: the sample's group is no share group.
OF_NO_GROUP = (ApiKey.ALTER_SHARE_GROUP_OFFSETS, ApiKey.DELETE_SHARE_GROUP_OFFSETS)


@pytest.fixture
async def faulty(make_broker: MakeBroker, in_cluster: None) -> Faulty:
    broker = make_broker(**FEW, offsets_topic_replication_factor=1, transaction_state_log_replication_factor=1)
    await broker.create_topic("orders")
    await broker.create_topic("other")
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key=NO_SUCH_NAME)  # the sample's group
    rows = [("orders", [(0, 7, -1, -1, "")])]
    await broker.call(ApiKey.OFFSET_COMMIT, 2, group_id=NO_SUCH_NAME, generation_id=-1, member_id="", topics=rows)
    return Faulty(broker)


def versions_of(key: int) -> range:
    first, last = API_TABLE[key].versions
    return range(first, last + 1)


def codes_in(fields: Sequence[Field], row: Any) -> Iterator[int]:
    """All there are in an answer, or a row of it."""
    for field, value in zip(fields, row, strict=True):
        if field.name == "error_code":
            yield value
        elif isinstance(field.kind, Array) and field.kind.fields:
            for inner in value or ():
                yield from codes_in(field.kind.fields, inner)


@pytest.mark.parametrize("key", API_TABLE, ids=lambda key: API_TABLE[key].name)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_every_api_can_be_failed(faulty: Faulty, key: ApiKey, when: str) -> None:
    fault = faulty.add("error", error=CODE.name, api=key.name, when=when)

    for version in versions_of(key):
        answer = await faulty.broker.call(key, version, **sample_body(key, version)._asdict())

        assert CODE in codes_in(API_TABLE[key].response.fields, answer) or (key, version) in SAY_NOTHING, version

    assert fault.count == len(versions_of(key))


@pytest.mark.parametrize("names", [["orders"], ["orders", "other"], ["other"]], ids="-".join)
@pytest.mark.parametrize("key", [key for key in ROWS if key not in OF_NO_GROUP], ids=lambda key: API_TABLE[key].name)
async def test_every_api_of_topics_can_be_failed_for_one(faulty: Faulty, key: ApiKey, names: list[str]) -> None:
    faulty.add("error", error=CODE.name, api=key.name, topic="orders")
    for version in versions_of(key):
        answer = await faulty.broker.call(key, version, **body_naming(key, version, names)._asdict())

        answered = answered_rows(key, version)
        path = answered.field if answered.around is None else f"{answered.around}.{answered.field}"
        fields = API_TABLE[key].response.fields_at(path)
        rows = [row for holder in answered.holders(answer) for row in getattr(holder, answered.field)]
        failed = {row[answered.topic]: CODE in codes_in(fields, row) for row in rows}
        assert failed == {name: name == "orders" for name in names}, version


def body_naming(key: ApiKey, version: int, names: list[str]) -> Any:
    """A sample of a request, for these topics."""
    body, asked = sample_body(key, version), requested_rows(key, version)
    sample = getattr(asked.holders(body)[0], asked.field)[0]
    if isinstance(sample, str):
        return asked.with_topics(body, [names])
    name_field = next(each for each in ("topic", "name", "topic_name") if each in sample._fields)
    return asked.with_topics(body, [[sample._replace(**{name_field: name}) for name in names]])
