"""The nodes of a cluster in ZooKeeper: what Apache Kafka 2.0.1 brokers have written is read, and written again equal to
the byte."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

import pytest

from minibroker.broker.wings.security.sasl.users import credentials_document
from minibroker.broker.wings.zookeeper_nodes import entities, nodes
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential
from minibroker.zookeeper.session import Ensemble, parse_ensemble
from tests.sources import ROOT

RECORDED = ROOT / "tests/golden/kafka-2.0.1-zookeeper-nodes.jsonl.gz"
# By the beginning of a path, what its node is; the first that fits.
FORMS: dict[str, nodes.Form[Any]] = {
    nodes.CLUSTER_ID: nodes.CLUSTER,
    nodes.BROKERS: nodes.BROKER,
    nodes.CONTROLLER: nodes.CONTROL,
    nodes.CONFIG_CHANGES: nodes.CONFIG_CHANGE,
    "/config/": nodes.CONFIG,
    nodes.ISR_CHANGES: nodes.PARTITIONS,
    nodes.REASSIGNMENT: nodes.MOVES,
    nodes.PRODUCER_IDS: nodes.PRODUCERS,
    nodes.TOPICS: nodes.TOPIC,
}


def form_of(path: str) -> nodes.Form[Any]:
    if path.endswith("/state"):
        return nodes.STATE
    return next(form for beginning, form in FORMS.items() if path.startswith(beginning))


def test_recorded_nodes_are_written_again_equal_to_the_byte() -> None:
    rows = [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    seen = set()
    for row in rows:
        if row["path"] != nodes.CONTROLLER_EPOCH:  # a plain number
            form, data = form_of(row["path"]), row["data"].encode()
            assert form.encode(form.decode(data)) == data
            seen.add(form)
    assert seen == {*FORMS.values(), nodes.STATE}


def test_nodes_of_older_brokers_and_other_orders_of_keys_are_read() -> None:
    state = b'{"isr":[3],"leader_epoch":4,"version":1,"leader":3,"controller_epoch":5}'
    assert nodes.STATE.decode(state) == nodes.StateNode(5, 3, 4, (3,))
    broker = nodes.BROKER.decode(b'{"version":1,"host":"h","port":9092,"jmx_port":-1}')
    assert (broker.endpoints, broker.protocols) == ({"PLAINTEXT": ("h", 9092)}, {"PLAINTEXT": "PLAINTEXT"})
    change = b'{"version":1,"entity_type":"topics","entity_name":"orders"}'
    assert nodes.CONFIG_CHANGE.decode(change) == "topics/orders"
    preferred = b'{"version": 1, "partitions": [{"topic": "orders", "partition": 1}]}'
    assert nodes.PARTITIONS.decode(preferred) == [TopicPartition("orders", 1)]


@pytest.mark.parametrize(
    ("form", "data"),
    [
        (nodes.BROKER, '{"endpoints":["PLAINTEXT://h:65536"]}'),
        (nodes.BROKER, '{"listener_security_protocol_map":[],"host":"h","port":[]}'),
        (nodes.CONTROL, '{"brokerid":1e999}'),
        (nodes.TOPIC, '{"partitions":[]}'),
        (nodes.TOPIC, '{"partitions":{"-1":[1]}}'),
        (nodes.TOPIC, '{"partitions":{"0":[2147483648]}}'),
        (nodes.STATE, '{"controller_epoch":1,"leader":1,"leader_epoch":2147483648,"isr":[1]}'),
        (nodes.CONFIG, '{"config":[]}'),
        (nodes.CONFIG, "[" * 100_000),
        (nodes.MOVES, '{"partitions":[{"topic":"t","partition":0}]}'),
        (nodes.LOG_DIR_EVENT, "[]"),
    ],
)
def test_a_node_that_no_broker_writes_is_refused(form: nodes.Form[Any], data: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        form.decode(data.encode())
    assert type(raised.value) in (ValueError, json.JSONDecodeError)


def test_a_broker_without_a_plaintext_listener_has_no_host() -> None:
    node = nodes.BrokerNode({"IN": ("::1", 9093)}, {"IN": "SASL_SSL"}, 7, "r1")
    document = json.loads(nodes.BROKER.encode(node))
    assert (document["host"], document["port"], document["rack"]) == (None, -1, "r1")
    assert document["endpoints"] == ["IN://[::1]:9093"]
    assert nodes.BROKER.decode(nodes.BROKER.encode(node)) == node


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ({"client-id": "app"}, "clients/app"),
        ({"client-id": None}, "clients/<default>"),
        ({"user": "CN=a, O=b*+"}, "users/CN%3Da%2C%20O%3Db%2A%2B"),
        ({"user": "alice", "client-id": None}, "users/alice/clients/<default>"),
        ({"user": None, "client-id": "a/b"}, "users/<default>/clients/a%2Fb"),
    ],
)
def test_users_and_client_ids_have_paths(entity: Mapping[str, str | None], path: str) -> None:
    assert entities.path_of(entity) == path
    assert entities.entity_of(path) == entity


def test_a_users_quotas_and_credentials_share_a_node() -> None:
    credentials = credentials_document(
        {"alice": {"SCRAM-SHA-256": ScramCredential(b"salt", b"stored", b"server", 4096)}}
    )
    quotas = [{"entity": {"user": "alice"}, "quotas": {"producer_byte_rate": 1024.0, "request_percentage": 12.5}}]
    both = entities.with_credentials({}, credentials)
    both |= entities.with_quotas(both, quotas)
    assert both == {
        "users/alice": {
            "SCRAM-SHA-256": "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096",
            "producer_byte_rate": "1024",
            "request_percentage": "12.5",
        }
    }
    assert (entities.credentials_of(both), entities.quotas_of(both)) == (credentials, quotas)
    without = entities.with_quotas(both, [])
    assert without["users/alice"].keys() == {"SCRAM-SHA-256"}


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("localhost:2181", [("localhost", 2181)], ""),
        ("a, b:2182/kafka/", [("a", 2181), ("b", 2182)], "/kafka"),
        ("[::1]:2181", [("::1", 2181)], ""),
    ],
)
def test_the_servers_of_zookeeper_connect_are_read(text: str, servers: list[tuple[str, int]], root: str) -> None:
    assert parse_ensemble(text) == Ensemble(servers, root)


@pytest.mark.parametrize("text", ["", "a:b", "a:0", "a:99999", ",b:1"])
def test_a_connect_string_without_a_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        parse_ensemble(text)
