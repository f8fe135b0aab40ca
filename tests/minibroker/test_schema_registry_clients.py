"""Confluent's serializers on the registry of a broker: records outlive the schemas that they were written with."""

from __future__ import annotations

import base64
import io
import json
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

import minibroker
from minibroker.cli.app import main
from tests.console.asking import get
from tests.console.conftest import console_of

pytest.importorskip("proto_schema_parser", reason="the registry needs its extra: pip install -e '.[schemas]'")
pytest.importorskip("httpx2", reason="serializers need theirs: pip install 'confluent-kafka[avro,json,protobuf]'")

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

START_SECONDS = 120.0  # of a cluster with registries, on a busy machine


@pytest.fixture(scope="module")
def broker() -> Iterator[minibroker.Broker]:
    with minibroker.Broker(schema_registry=True) as broker:
        yield broker


@pytest.fixture
def registry(broker: minibroker.Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        yield client


def through(broker: minibroker.Broker, topic: str, values: list[bytes]) -> list[bytes]:
    """Produce values, and consume all that the topic has."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for each in values:
        producer.produce(topic, each)
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        found = consumer.consume(len(values), timeout=30)
        return [each.value() or b"" for each in found]
    finally:
        consumer.close()


def avro(fields: str) -> str:
    return f'{{"type":"record","name":"User","fields":[{{"name":"name","type":"string"}}{fields}]}}'


@pytest.mark.ability("serializers", "confluent-kafka")
def test_avro_records_outlive_their_schema(broker: minibroker.Broker, registry: SchemaRegistryClient) -> None:
    context = SerializationContext("avro", MessageField.VALUE)
    texts = [avro(""), avro(',{"name":"age","type":"int","default":-1}'), avro(',{"name":"mail","type":"string"}')]
    first, second, breaking = (AvroSerializer(registry, text) for text in texts)

    records = through(broker, "avro", [first({"name": "a"}, context), second({"name": "b", "age": 3}, context)])

    old, new = AvroDeserializer(registry, texts[0]), AvroDeserializer(registry, texts[1])
    assert [new(each, context) for each in records] == [{"name": "a", "age": -1}, {"name": "b", "age": 3}]
    assert [old(each, context) for each in records] == [{"name": "a"}, {"name": "b"}]
    with pytest.raises(SchemaRegistryError, match="field mail of the reader has no default"):
        breaking({"name": "c", "mail": ""}, context)
    assert registry.get_versions("avro-value") == [1, 2]


@pytest.mark.ability("serializers", "confluent-kafka")
def test_json_records_outlive_their_schema(broker: minibroker.Broker, registry: SchemaRegistryClient) -> None:
    context = SerializationContext("json", MessageField.VALUE)

    def text(**properties: str) -> str:
        typed = {name: {"type": kind} for name, kind in properties.items()}
        return json.dumps({"title": "User", "type": "object", "properties": typed, "additionalProperties": False})

    texts = [text(name="string"), text(name="string", age="integer"), text(name="number")]
    first, second, breaking = (JSONSerializer(each, registry) for each in texts)

    records = through(broker, "json", [first({"name": "a"}, context), second({"name": "b", "age": 3}, context)])

    new = JSONDeserializer(texts[1], schema_registry_client=registry)
    assert [new(each, context) for each in records] == [{"name": "a"}, {"name": "b", "age": 3}]
    with pytest.raises(SchemaRegistryError, match="#/properties/name"):
        breaking({"name": 1}, context)


def protobuf(**fields: int) -> Any:
    """The class of a message `User` with these fields, by their types."""
    file = descriptor_pb2.FileDescriptorProto(name="user.proto", package="people", syntax="proto3")
    message = file.message_type.add(name="User")
    for number, (name, kind) in enumerate(fields.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("people.User"))


@pytest.mark.ability("serializers", "confluent-kafka")
def test_protobuf_records_outlive_their_schema(broker: minibroker.Broker, registry: SchemaRegistryClient) -> None:
    context = SerializationContext("protobuf", MessageField.VALUE)
    string, number = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT32
    First, Second, Breaking = protobuf(name=string), protobuf(name=string, age=number), protobuf(name=number)
    first, second, breaking = (ProtobufSerializer(each, registry) for each in (First, Second, Breaking))

    records = through(broker, "protobuf", [first(First(name="a"), context), second(Second(name="b", age=3), context)])

    new = ProtobufDeserializer(Second, {"use.deprecated.format": False}, registry)
    assert [(each.name, each.age) for each in (new(each, context) for each in records)] == [("a", 0), ("b", 3)]
    with pytest.raises(SchemaRegistryError, match="field name was string, and is int32"):
        breaking(Breaking(name=1), context)
    assert "string name = 1;" in str(registry.get_latest_version("protobuf-value").schema.schema_str)


def test_a_restarted_broker_has_its_schemas(broker: minibroker.Broker) -> None:
    url = broker.schema_registry_url
    with SchemaRegistryClient({"url": url}) as client:
        before = client.get_subjects()
    broker.kill()
    broker.start()

    assert broker.schema_registry_url == url
    with SchemaRegistryClient({"url": url}) as client:
        assert client.get_subjects() == before


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., str]:
    """A function that runs a command, and returns what it prints."""

    def run(*words: str, given: str = "", status: int = 0) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        assert main(words) == status
        printed = capfdbinary.readouterr()
        return (printed.out + printed.err).decode()

    return run


@pytest.mark.slow
def asked(url: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    """The status and the value of an answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url + path, data, headers), timeout=30) as answer:
            return answer.status, json.load(answer)
    except HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.mark.slow
@pytest.mark.parametrize("security", [None, "SASL_PLAINTEXT"])
def test_the_registries_of_a_cluster_answer_alike_and_outlive_each_broker(security: str | None) -> None:
    secured: dict[str, Any] = {"security": security, "users": {"alice": "a"}} if security else {}
    login = {"Authorization": f"Basic {base64.b64encode(b'alice:a').decode()}"} if security else {}
    with minibroker.Cluster(brokers=3, schema_registry=True, **secured).start(timeout_seconds=START_SECONDS) as cluster:
        urls = cluster.schema_registry_url.split(",")
        before = [asked(url, "/subjects", **login) for url in urls]
        made = [asked(url, f"/subjects/{url[-5:]}/versions", {"schema": '"int"'}, **login) for url in urls]
        alike = {str(asked(url, "/schemas/ids/1/versions", **login)) for url in urls}
        schema = [asked(url, "/schemas/ids/2", **login) for url in urls]
        nameless = [asked(url, "/subjects")[0] for url in urls]
        leader = cluster.until_leader("_schemas")
        (follower, _), url = sorted({1, 2, 3} - {leader}), urls[leader - 1]
        misled = asked(urls[follower - 1], "/subjects", **login, **{"X-Forward": "false"})
        cluster.kill(leader)
        settings = {"url": cluster.schema_registry_url} | ({"basic.auth.user.info": "alice:a"} if security else {})
        with SchemaRegistryClient(settings) as client:
            second = client.register_schema("late", Schema('"long"', "AVRO"))
        cluster.start(leader, timeout_seconds=START_SECONDS)
        after = asked(url, "/subjects/late/versions/latest", **login)

    assert before == [(200, [])] * 3
    assert made == [(200, {"id": 1})] * 3
    assert len(alike) == 1
    assert schema == [(404, {"error_code": 40403, "message": "Schema 2 not found"})] * 3
    assert nameless == [401 if security else 200] * 3
    assert misled[1]["error_code"] == 50001  # it does not lead, and a request is not passed on twice
    assert (second, after[1]["id"]) == (2, 2)


@pytest.mark.slow
def test_a_registry_whose_leader_does_not_answer_says_so(tmp_path: Path) -> None:
    cluster = minibroker.Cluster(brokers=2, schema_registry=True, data_dir=tmp_path)
    with cluster.start(timeout_seconds=START_SECONDS):
        urls = cluster.schema_registry_url.split(",")
        asked(urls[0], "/subjects/s/versions", {"schema": '"int"'})
        leader = cluster.until_leader("_schemas")
        (tmp_path / "cluster" / f"{leader}.registry").write_text("127.0.0.1 none")

        status, found = asked(urls[2 - leader], "/config", {"compatibility": "NONE"})
        unread = asked(urls[2 - leader], "/subjects/t/versions", {"schema": '"int"'})

    assert (status, found["error_code"]) == (405, 405)
    assert unread[1]["error_code"] == 50003
    assert unread[1]["message"].startswith(f"Error while forwarding the request to broker {leader}, the leader of _sch")


def test_commands_write_and_read_by_the_registry(
    broker: minibroker.Broker, run: Callable[..., str], tmp_path: Path
) -> None:
    at, url = ("-b", broker.bootstrap_servers), broker.schema_registry_url
    broker.create_topic("commands")
    proto = tmp_path / "m.proto"
    proto.write_text('syntax = "proto3"; message M { string a = 1; }')

    first = run("produce", "commands", *at, "--encode", url, "--schema", str(proto), given='{"a":"x"}\n')
    run("produce", "commands", *at, "--encode", url, "--json", given='{"key":"k","value":{"a":"y"}}\n{"value":null}\n')
    run("produce", "commands", *at, given="plain\n")
    refused = run("produce", "commands", *at, "--encode", url, given='{"b":"x"}\n', status=1)
    missing = run("produce", "commands", *at, "--encode", url, "--schema", str(tmp_path / "no.avsc"), status=1)

    assert first == "produced: 1 record to commands\n"
    assert run("consume", "commands", *at, "--decode", url) == '{"a": "x"}\n{"a": "y"}\n\nplain\n'
    assert run("consume", "commands", *at, "--decode", url, "-w", "value.a=y", "-f", "%k %v\n") == 'k {"a": "y"}\n'
    assert 'Message type "M" has no field named "b"' in refused
    assert "cannot read --schema" in missing
    nowhere = run("consume", "commands", *at, "--decode", "127.0.0.1:9", status=1)
    assert "no schema registry answers at http://127.0.0.1:9" in nowhere
    assert "is not the address of a schema registry" in run("consume", "commands", *at, "--decode", "ftp://x", status=2)
    assert "name it with --encode URL" in run("produce", "commands", *at, "--schema", str(proto), status=2)


@pytest.mark.slow
def test_a_registry_has_the_security_of_its_broker() -> None:
    pytest.importorskip("trustme", reason="a secured broker needs the extra: pip install -e '.[secure]'")
    rules = [minibroker.Acl("alice", "read", topic="_schemas"), minibroker.Acl("bob", "write", topic="_schemas")]
    users = {"alice": "a-secret", "bob": "b-secret", "carol": "c-secret"}
    with minibroker.Broker(security="SASL_SSL", users=users, acls=rules, schema_registry=True) as broker:
        url, authority = broker.schema_registry_url, broker.client_settings("confluent-kafka")["ssl.ca.location"]

        def asked(login: str, ask: Callable[[SchemaRegistryClient], Any]) -> Any:
            """The answer, or the status and the message of a refusal."""
            settings = {"url": url, "ssl.ca.location": authority, "basic.auth.user.info": login, "max.retries": 0}
            with SchemaRegistryClient(settings) as client:
                try:
                    return ask(client)
                except SchemaRegistryError as refused:
                    return refused.http_status_code, refused.error_message

        def subjects(client: SchemaRegistryClient) -> list[str]:
            return client.get_subjects()

        assert asked("bob:b-secret", lambda client: client.register_schema("s", Schema('"string"', "AVRO"))) == 1
        assert asked("alice:a-secret", subjects) == ["s"]
        assert asked("carol:c-secret", subjects) == (403, "User:carol may not Read the topic _schemas")
        refused = (403, "User:alice may not Write the topic _schemas")
        assert asked("alice:a-secret", lambda client: client.delete_subject("s")) == refused
        for login in ("alice:wrong", "nobody:"):
            assert asked(login, subjects)[0] == 401
        context = ssl.create_default_context(cafile=authority)
        with pytest.raises(HTTPError, match="401") as nameless:
            urlopen(f"{url}/subjects", context=context)
        nameless.value.close()
        assert nameless.value.headers["WWW-Authenticate"] == 'Basic realm="schema registry"'


@pytest.mark.slow
def test_the_console_shows_records_decoded(broker: minibroker.Broker, registry: SchemaRegistryClient) -> None:
    serialize = AvroSerializer(registry, avro(""))
    broker.create_topic("shown")
    data = serialize({"name": "ann"}, SerializationContext("shown", MessageField.VALUE))
    broker.produce("shown", [data, b"\0\0\0\1\0no schema"])
    with console_of(broker.bootstrap_servers, "--schema-registry", broker.schema_registry_url) as console:
        page = get(console, "/api/topics/shown/messages?at=beginning")
        one = get(console, "/api/topics/shown/messages/0/0")

    values = [row["value"]["text"] for row in page["rows"]]
    assert values == ['{"name": "ann"}', "\0\0\0\1\0no schema"]
    assert page["rows"][0]["size"] == len(data)
    assert page["lacks"] == ["the schema registry refuses: Schema 256 not found"]
    assert one["decoded"] == {"key": None, "value": '{"name": "ann"}'}
    assert base64.b64decode(one["value"]["base64"]) == data  # which "Produce again" sends
