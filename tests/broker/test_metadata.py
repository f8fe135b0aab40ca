"""ApiVersions, Metadata and FindCoordinator at the handlers."""

from __future__ import annotations

import pytest

from minibroker.broker.apis.registry import handlers
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError


async def test_api_versions_lists_exactly_the_handler_table(broker) -> None:
    answer = await broker.call(ApiKey.API_VERSIONS, 0)

    parts = [type("Any", (), {"__getattr__": lambda self, name: name})() for _ in range(4)]
    served = sorted(handlers(*parts))
    assert [row.api_key for row in answer.api_keys] == served
    assert all((row.min_version, row.max_version) == API_TABLE[row.api_key].versions for row in answer.api_keys)


@pytest.mark.parametrize("version", [4, 99, -1])
async def test_an_unknown_version_of_api_versions_is_answered_in_v0(broker, version: int) -> None:
    frame = bytearray(encode_request(ApiKey.API_VERSIONS, 0, 1, "c", API_TABLE[ApiKey.API_VERSIONS].request())[4:])
    frame[2:4] = version.to_bytes(2, "big", signed=True)

    answer = await broker.answer(bytes(frame))

    body = decode_response(ApiKey.API_VERSIONS, 0, answer)[1]
    assert body.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list(body.api_keys) == []


@pytest.mark.parametrize(("key", "version"), [(ApiKey.FETCH, 99), (ApiKey.METADATA, -1), (250, 0), (-5, 0)])
async def test_other_unknown_apis_and_versions_are_protocol_errors(broker, key: int, version: int) -> None:
    frame = b"".join(number.to_bytes(2, "big", signed=True) for number in (key, version)) + bytes(4) + b"\xff\xff"

    with pytest.raises(KafkaProtocolError):
        await broker.answer(frame)


async def test_all_topics_none_and_some(broker) -> None:
    for name in ("a", "b"):
        await broker.create_topic(name, 2)

    async def names(version: int, topics) -> list[str]:
        return sorted(topic.name for topic in (await broker.call(ApiKey.METADATA, version, topics=topics)).topics)

    assert await names(0, []) == ["a", "b"]
    assert await names(1, None) == ["a", "b"]
    assert await names(1, []) == []
    assert await names(1, [("a",)]) == ["a"]


async def test_an_unknown_topic_is_created_when_asked_for_and_allowed(make_broker) -> None:
    broker = make_broker(num_partitions=2)

    forbidden = await broker.call(ApiKey.METADATA, 4, topics=[("t",)], allow_auto_topic_creation=False)
    first = await broker.call(ApiKey.METADATA, 4, topics=[("t",)], allow_auto_topic_creation=True)
    second = await broker.call(ApiKey.METADATA, 4, topics=[("t",)], allow_auto_topic_creation=True)

    assert forbidden.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert first.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (second.topics[0].error_code, len(second.topics[0].partitions)) == (ErrorCode.NONE, 2)


async def test_automatic_creation_can_be_switched_off(make_broker) -> None:
    broker = make_broker(auto_create_topics_enable="false")

    answer = await broker.call(ApiKey.METADATA, 1, topics=[("t",)])

    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_clients_are_told_the_advertised_listener(make_broker) -> None:
    broker = make_broker(advertised_listeners="PLAINTEXT://kafka.example:1234")

    answer = await broker.call(ApiKey.METADATA, 1, topics=[])

    assert [(row.host, row.port) for row in answer.brokers] == [("kafka.example", 1234)]


async def test_there_is_no_group_coordinator_yet_and_it_says_so(broker) -> None:
    answer = await broker.call(ApiKey.FIND_COORDINATOR, 0, key="group")

    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
