"""Requests to a broker with an authorizer, where the matrix of rights (tests/conformance) does not reach: sessions,
batches, APIs and versions that kafka 2.0.1 lacks, what may not be hinted at."""

from __future__ import annotations

import pytest

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import KafkaProtocolError
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.secured import Secured


@pytest.fixture
async def secured(make_broker: MakeBroker) -> Secured:
    return Secured(make_broker)


# -- the guard ----------------------------------------------------------------------------------------------------


async def test_an_open_broker_has_no_guard(broker: InMemoryBroker) -> None:
    for key, handler in broker.parts.handlers.by_key.items():
        assert getattr(handler, "__name__", "").upper() == ApiKey(key).name, handler


@pytest.mark.parametrize("key", API_TABLE, ids=lambda key: API_TABLE[key].name)
async def test_a_user_without_rights_gets_an_answer_in_every_version(secured: Secured, key: ApiKey) -> None:
    from tests.integration.sample_requests import sample_body

    for version in range(API_TABLE[key].versions[1] + 1):
        body = sample_body(key, version)._asdict()
        try:
            assert await secured.ask(key, version, **body) is not None
        except KafkaProtocolError as error:
            assert "selects rules" in str(error)
