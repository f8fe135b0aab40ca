"""The registry's answers, recorded in tests/golden/schema_registry.txt, and its records in `_schemas`."""

from __future__ import annotations

import json

import pytest

from minibroker.broker.wings.registry.records import key_of, schema_key
from minibroker.broker.wings.registry.schema_log import SchemaLog
from minibroker.protocol.api import ApiKey
from minibroker.protocol.batches import iter_all_records
from tests.broker.conftest import InMemoryBroker
from tests.broker.schema_registry import AskedRegistry
from tests.broker.schema_registry_book import Conversation, held, read

pytest.importorskip("avro", reason="schemas need the extra: pip install -e '.[schemas]'")

USER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
USER_WITH_AGE = {**USER, "fields": [*USER["fields"], {"name": "age", "type": "int", "default": 0}]}
TEXT = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'


@pytest.fixture
async def registry(broker: InMemoryBroker) -> AskedRegistry:
    return AskedRegistry(broker)


def records(broker: InMemoryBroker) -> list[tuple[str, str | None]]:
    """The records of `_schemas` as text."""
    log = SchemaLog(broker.parts)
    return [
        ((record.key or b"").decode(), None if record.value is None else record.value.decode())
        for data, view in log._topic.read_batches(0)
        for record in iter_all_records(data, view, max_decompressed_bytes=1 << 20)
    ]


@pytest.mark.parametrize("conversation", read()[1], ids=lambda each: each.title)
async def test_a_registry_answers_as_recorded(conversation: Conversation, registry: AskedRegistry) -> None:
    assert await held(conversation, read()[0], registry) == conversation.text


async def test_schemas_are_stored_in_the_form_of_confluent(broker: InMemoryBroker, registry: AskedRegistry) -> None:
    assert await registry.register("users-value", USER) == (200, {"id": 1})
    assert await registry.register("users-value", USER_WITH_AGE) == (200, {"id": 2})
    assert await registry.ask("PUT", "/config", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert await registry.ask("PUT", "/mode/users-value", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    assert await registry.ask("PUT", "/mode/users-value", {"mode": "READWRITE"}) == (200, {"mode": "READWRITE"})
    assert await registry.ask("DELETE", "/subjects/users-value/versions/1") == (200, 1)
    assert await registry.ask("DELETE", "/subjects/users-value/versions/1?permanent=true") == (200, 1)
    assert await registry.ask("DELETE", "/subjects/users-value") == (200, [2])

    schema = '{"keytype":"SCHEMA","subject":"users-value","version":1,"magic":1}'
    escaped = json.dumps(TEXT)
    mode = '{"keytype":"MODE","subject":"users-value","magic":0}'
    assert [each for each in records(broker) if '"version":2,"magic":1' not in each[0]] == [
        (schema, f'{{"subject":"users-value","version":1,"id":1,"schema":{escaped},"deleted":false}}'),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        (mode, '{"mode":"READONLY"}'),
        (mode, '{"mode":"READWRITE"}'),
        (schema, f'{{"subject":"users-value","version":1,"id":1,"schema":{escaped},"deleted":true}}'),
        (schema, None),
        (
            '{"keytype":"DELETE_SUBJECT","subject":"users-value","magic":0}',
            '{"subject":"users-value","version":2}',
        ),
        (mode, None),
    ]
    assert broker.parts.state.topics["_schemas"].configs == {"cleanup.policy": "compact"}


async def test_what_another_registry_has_written_counts_at_once(
    broker: InMemoryBroker, registry: AskedRegistry
) -> None:
    """Also in a form of the text that this one would not write."""
    text = json.dumps(USER, indent=1)
    value = {"subject": "u", "version": 3, "id": 70, "md5": "x", "schema": text, "deleted": False}
    await broker.create_topic("_schemas", cleanup_policy="compact")
    other = AskedRegistry(broker)
    await other.ask("GET", "/subjects")
    log = SchemaLog(broker.parts)
    await log.write({b'{"keytype":"NOOP","magic":0}': None, b"not JSON": b"{}"})
    for key, wrong in (
        (schema_key("u", 1), b'"text"'),
        (schema_key("u", 1), b'{"id":"one","schema":"x"}'),
        (schema_key("u", 1), b'{"id":1,"schema":{}}'),
        (schema_key("u", 1), b'{"id":1,"schema":"x","references":["n"]}'),
        (b'{"keytype":"SCHEMA","subject":7,"version":1}', b'{"id":1,"schema":"x"}'),
        (b'{"keytype":"SCHEMA","subject":"u","version":1e999}', b'{"id":1,"schema":"x"}'),
        (key_of("CONFIG", "u"), b"[]"),
        (key_of("MODE", "u"), b'{"mode":[]}'),
        (key_of("MODE", "u"), b"[" * 100_000),
    ):
        await log.write({key: wrong})
    await log.write({b'{"keytype":"SCHEMA","subject":"u","version":3,"magic":1}': json.dumps(value).encode()})

    for each in (registry, other):
        assert await each.ask("POST", "/subjects/u", {"schema": TEXT}) == (
            200,
            {"subject": "u", "version": 3, "schema": text, "id": 70},
        )
    assert await registry.register("u", TEXT) == (200, {"id": 70})
    assert await registry.register("u", USER_WITH_AGE) == (200, {"id": 71})
    assert await other.ask("GET", "/subjects/u/versions") == (200, [3, 4])


async def test_a_topic_that_was_deleted_leaves_an_empty_registry(
    broker: InMemoryBroker, registry: AskedRegistry
) -> None:
    await registry.register("u", USER)
    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["_schemas"], timeout_ms=1000)

    assert await registry.ask("GET", "/subjects") == (200, [])
    assert await registry.register("v", USER_WITH_AGE) == (200, {"id": 1})


async def test_a_web_page_elsewhere_is_refused(registry: AskedRegistry) -> None:
    assert (await registry.ask("GET", "/subjects", host="registry.example:8081"))[0] == 400
    assert (await registry.ask("POST", "/subjects/u/versions", {}, origin="http://example.org"))[0] == 403
    assert (await registry.ask("GET", "/subjects", origin="http://localhost:8081"))[0] == 200
