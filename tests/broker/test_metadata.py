"""ApiVersions and Metadata at the handlers."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import trio

from minibroker.broker.apis.client import Client
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name


async def test_api_versions_lists_exactly_the_table_of_apis(broker: InMemoryBroker) -> None:
    answer = await broker.call(ApiKey.API_VERSIONS, 0)

    assert [row.api_key for row in answer.api_keys] == sorted(API_TABLE)
    assert all((row.min_version, row.max_version) == API_TABLE[row.api_key].versions for row in answer.api_keys)


async def test_an_unknown_topic_is_created_when_asked_for_and_allowed(make_broker: MakeBroker) -> None:
    broker = make_broker(num_partitions=2)

    forbidden = await broker.call(ApiKey.METADATA, 4, topics=by_name("t"), allow_auto_topic_creation=False)
    first = await broker.call(ApiKey.METADATA, 4, topics=by_name("t"), allow_auto_topic_creation=True)
    second = await broker.call(ApiKey.METADATA, 4, topics=by_name("t"), allow_auto_topic_creation=True)

    assert forbidden.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (second.topics[0].error_code, len(second.topics[0].partitions)) == (ErrorCode.NONE, 2)
    switched_off = await make_broker(auto_create_topics_enable="false").call(ApiKey.METADATA, 1, topics=by_name("t"))
    assert switched_off.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.time_jumps
async def test_older_connections_do_not_create_what_a_reset_has_just_deleted(broker: InMemoryBroker) -> None:
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


@pytest.mark.parametrize("settings", [{}, {"auto_create_topics_enable": "false"}])
@pytest.mark.parametrize(("name", "partitions"), [("__consumer_offsets", 3), ("__transaction_state", 4)])
async def test_a_coordinators_topic_is_made_as_the_coordinator_wants_it(
    make_broker: MakeBroker, settings: dict[str, Any], name: str, partitions: int
) -> None:
    """As kafka 2.0.1 (seen), whatever is said of automatic creation: with its partitions, and compacted."""
    counts = {"offsets_topic_num_partitions": "3", "transaction_state_log_num_partitions": "4"}
    broker = make_broker(**counts, **settings)
    ask: dict[str, Any] = {"topics": by_name(name), "allow_auto_topic_creation": False}

    first = await broker.call(ApiKey.METADATA, 4, **ask)
    second = await broker.call(ApiKey.METADATA, 4, **ask)

    assert (first.topics[0].error_code, first.topics[0].is_internal) == (ErrorCode.LEADER_NOT_AVAILABLE, True)
    assert len(second.topics[0].partitions) == partitions
    assert broker.app._state.topics[name].configs["cleanup.policy"] == "compact"


async def test_topics_of_one_request_are_stored_once(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker.app._state, "_store", save := Mock())

    answer = await broker.call(ApiKey.METADATA, 4, topics=by_name("a", "b", "no/name"), allow_auto_topic_creation=True)

    created, wrong = ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [row.error_code for row in answer.topics] == [created, created, wrong]
    save.assert_called_once()


TWO_LISTENERS = {
    "listeners": "OUT://:9093,IN://localhost:9092",
    "listener_security_protocol_map": "OUT:PLAINTEXT,IN:PLAINTEXT",
    "advertised_listeners": "OUT://kafka.example:1234",
    "inter_broker_listener_name": "OUT",
}


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({"advertised_listeners": "PLAINTEXT://kafka.example:1234"}, ("kafka.example", 1234)),
        (TWO_LISTENERS, ("kafka.example", 1234)),
        ({"listeners": "PLAINTEXT://localhost:9092"}, ("127.0.0.1", 9092)),
    ],
    ids=["advertised", "advertised for their listener", "the address they came to"],
)
async def test_advertised_address(make_broker: MakeBroker, settings: dict[str, str], address: tuple[str, int]) -> None:
    broker = make_broker(**settings)
    broker.client.listener = settings.get("inter_broker_listener_name", "PLAINTEXT")

    answer = await broker.call(ApiKey.METADATA, 1, topics=[])

    assert [(row.host, row.port) for row in answer.brokers] == [address]


SOME_ID = bytes(range(16))


@pytest.mark.parametrize("version", range(13))
async def test_every_version_has_leaders_and_from_version_10_topic_ids(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("a", 2)

    answer = await broker.call(ApiKey.METADATA, version, topics=by_name("a"))

    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("a", ErrorCode.NONE)
    assert [row.leader_id for row in topic.partitions] == [0, 0]
    assert (topic.topic_id != ZERO_UUID) == (version >= 10)


async def test_topics_are_found_by_their_ids_and_unknown_ones_come_first(broker: InMemoryBroker) -> None:
    for name in ("a", "b"):
        await broker.create_topic(name)
    known = {row.name: row.topic_id for row in (await broker.call(ApiKey.METADATA, 12, topics=None)).topics}

    answer = await broker.call(ApiKey.METADATA, 12, topics=[(known["b"], None), (SOME_ID, None), (known["a"], "x")])

    assert [(row.error_code, row.name, row.topic_id) for row in answer.topics] == [
        (ErrorCode.UNKNOWN_TOPIC_ID, None, SOME_ID),
        (ErrorCode.NONE, "b", known["b"]),
        (ErrorCode.NONE, "a", known["a"]),
    ]


@pytest.mark.parametrize(
    ("version", "topic"),
    [(10, (SOME_ID, "a")), (11, (SOME_ID, None)), (11, (ZERO_UUID, None)), (12, (ZERO_UUID, None))],
)
async def test_ids_before_version_12_and_topics_without_any_name_are_invalid(
    broker: InMemoryBroker, version: int, topic: tuple[bytes, str | None]
) -> None:
    answer = await broker.call(ApiKey.METADATA, version, topics=[topic])

    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]


async def test_without_an_authorizer_everything_is_allowed_and_told_who_asks(broker: InMemoryBroker) -> None:
    await broker.create_topic("a")

    async def told(version: int, **options: Any) -> tuple[int, int]:
        answer = await broker.call(ApiKey.METADATA, version, topics=by_name("a"), **options)
        return answer.cluster_authorized_operations, answer.topics[0].topic_authorized_operations

    both = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    assert await told(8) == (-(2**31), -(2**31))
    assert await told(8, **both) == (0b1111110100000, 0b110111111000)
    assert await told(11, include_topic_authorized_operations=True) == (-(2**31), 0b110111111000)


async def test_api_versions_3_is_told_to_who_says_what_it_is(broker: InMemoryBroker) -> None:
    async def told(name: str, version: str) -> tuple[int, bool]:
        answer = await broker.call(ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version=version)
        return answer.error_code, len(answer.api_keys) > 10

    assert await told("a-b", "3.9.0") == (ErrorCode.NONE, True)
    for name, version in (("", "1"), ("my client", "1"), ("client", "-1"), ("client", "1.")):
        assert await told(name, version) == (ErrorCode.INVALID_REQUEST, False)
