"""Which handler serves which API: each has one, and no more."""

from __future__ import annotations

import pytest

from minibroker.broker.way.codec import Handlers
from minibroker.broker.wings.share.share_apis import STATE_APIS
from minibroker.protocol.api import API_TABLE, ApiKey
from tests.broker.conftest import InMemoryBroker


async def test_every_api_has_its_handler_but_those_between_brokers_of_a_cluster(broker: InMemoryBroker) -> None:
    assert broker.parts.handlers.by_key.keys() == API_TABLE.keys() - set(STATE_APIS)


def test_an_api_with_two_handlers_is_refused() -> None:
    handlers = Handlers(API_TABLE)
    handlers.add({ApiKey.FETCH: lambda request, client: None})

    with pytest.raises(ValueError, match="FETCH has two handlers"):
        handlers.add({ApiKey.FETCH: lambda request, client: None})
