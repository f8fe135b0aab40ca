"""The guard before the handlers of a broker with an authorizer.

What it answers is in tests/golden/conversations/authorization.txt and in the matrix of rights (tests/conformance).
"""

from __future__ import annotations

import pytest

from minibroker.broker.apis.client import Client
from minibroker.broker.principal import Principal
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import KafkaProtocolError
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.integration.sample_requests import sample_body


async def test_an_open_broker_has_no_guard(broker: InMemoryBroker) -> None:
    await broker.call(ApiKey.API_VERSIONS, 0)

    assert broker.client.may_everything


@pytest.mark.usefixtures("in_cluster")
@pytest.mark.parametrize("key", API_TABLE, ids=lambda key: API_TABLE[key].name)
async def test_a_user_without_rights_gets_an_answer_in_every_version(make_broker: MakeBroker, key: ApiKey) -> None:
    broker = make_broker(authorizer_class_name="kafka.security.auth.SimpleAclAuthorizer")
    broker.client = Client("10.0.0.1:50000", "127.0.0.1", 9092, principal=Principal("User", "alice"))

    first, last = API_TABLE[key].versions
    for version in range(first, last + 1):
        try:
            assert await broker.call(key, version, **sample_body(key, version)._asdict()) is not None
        except KafkaProtocolError as error:
            assert "selects rules" in str(error)
