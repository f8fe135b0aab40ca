"""ApiVersions and Metadata at the handlers."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
import trio

from minibroker.broker.apis.client import Client
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.storage.files import disk
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.requests import by_name


@pytest.mark.usefixtures("in_cluster")
async def test_api_versions_lists_what_clients_may_ask_for(make_broker: MakeBroker) -> None:
    answer = await make_broker().call(ApiKey.API_VERSIONS, 0)

    of_controllers, of_telemetry, of_share_states = range(4, 8), (71, 72), range(83, 88)
    unlisted = {*of_controllers, *of_telemetry, *of_share_states}
    assert [row.api_key for row in answer.api_keys] == sorted(API_TABLE.keys() - unlisted)
    assert all((row.min_version, row.max_version) == API_TABLE[row.api_key].versions for row in answer.api_keys)


@pytest.mark.time_jumps
async def test_older_connections_do_not_create_a_topic_that_a_reset_has_just_deleted(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    old, resetting, new = (Client("127.0.0.1:50000", "127.0.0.1", 9092, number) for number in (1, 2, 3))

    async def ask(client: Client, *names: str) -> list[ErrorCode]:
        broker.client = client
        answer = await broker.call(ApiKey.METADATA, 4, topics=by_name(*names), allow_auto_topic_creation=True)
        return [ErrorCode(topic.error_code) for topic in answer.topics]

    async def reset(client_id: str) -> None:
        broker.client = resetting
        await broker.call(ApiKey.DELETE_TOPICS, 0, client_id, topic_names=["t"], timeout_ms=1000)

    waits, there = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE
    await reset("minibroker-tests")
    assert [await ask(old, "t", "other") for _ in range(2)] == [[waits, waits], [waits, there]]
    await trio.sleep(1)
    assert [await ask(old, "t") for _ in range(2)] == [[waits], [there]]
    await reset("minibroker-tests")
    assert [await ask(old, "t"), await ask(new, "t"), await ask(old, "t")] == [[waits], [waits], [there]]
    await trio.sleep(1)
    await reset("an application")
    assert [await ask(old, "t") for _ in range(2)] == [[waits], [there]]


async def test_topics_of_one_request_are_stored_once(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "write", save := Mock(wraps=disk.write))

    answer = await broker.call(ApiKey.METADATA, 4, topics=by_name("a", "b", "no/name"), allow_auto_topic_creation=True)

    created, wrong = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [row.error_code for row in answer.topics] == [created, created, wrong]
    save.assert_called_once()
