"""Topics made, listed, described, changed and deleted by the admin clients; configs; and the errors of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.integration.clients import ADMINS, CLIENTS, Client, ClientError
from tests.integration.conftest import Drivers, GetClient, NewTopic, StartMinibroker
from tests.integration.kafka_tools import kafka_tool
from tests.integration.members import wait_until
from tests.integration.records import Record, incompressible, numbered
from tests.integration.topics import create_topic


@pytest.fixture(params=ADMINS)
def admin(client: GetClient, request: pytest.FixtureRequest) -> Client:
    return client(request.param)


def create(admin: Client, topic: str, **options: Any) -> int:
    """Create a topic; return the error code."""
    return create_all(admin, {topic: options})[topic]


def create_all(admin: Client, topics: dict[str, dict[str, Any]], *, validate_only: bool = False) -> dict[str, int]:
    """Create topics, of one partition where the options name no other number; return the error codes."""
    rows = {name: {"num_partitions": 1, "replication_factor": 1} | options for name, options in topics.items()}
    codes: dict[str, int] = admin.call("create_topics", topics=rows, validate_only=validate_only)
    return codes


def values_of(admin: Client, kind: str, name: str, *keys: str) -> dict[str, tuple[str, str]]:
    """Value and source of each."""
    described = admin.call("describe_configs", kind=kind, name=name, keys=list(keys))
    return {key: (row["value"], row["source"]) for key, row in described.items()}


def assert_too_large(producer: Client, topic: str) -> None:
    """A record of 20,000 bytes is refused."""
    with pytest.raises(ClientError) as raised:
        producer.produce(topic, [Record(b"key", incompressible(20_000))], linger_ms=1)
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE


def wait_until_absent(admin: Client, topic: str) -> None:
    wait_until(lambda: topic not in admin.call("list_topics"), f"the end of {topic}")


@pytest.mark.ability("administration")
def test_a_topic_is_created_listed_described_grown_and_deleted(admin: Client) -> None:
    topic, cluster = f"made-by-{admin.name}", admin.call("cluster")
    ((node_id, host, port),) = cluster["nodes"]
    assert (host, node_id, port > 0) == ("127.0.0.1", cluster["controller"], True)

    def described() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = admin.call("describe_topic", topic=topic)["partitions"]
        return rows

    assert create(admin, topic, num_partitions=3) == ErrorCode.NONE

    assert topic in admin.call("list_topics")
    assert described() == [{"partition": number, "leader": node_id, "replicas": [node_id]} for number in range(3)]
    assert admin.call("create_partitions", topic=topic, count=5, validate_only=False) == ErrorCode.NONE
    assert [row["partition"] for row in described()] == [0, 1, 2, 3, 4]
    assert [record.offset for record in admin.produce(topic, numbered(2), partition=4)] == [0, 1]
    assert {topic: ErrorCode.NONE} == admin.call("delete_topics", topics=[topic])
    wait_until_absent(admin, topic)


@pytest.mark.ability("administration")
def test_several_topics_are_answered_one_by_one(admin: Client, new_topic: NewTopic) -> None:
    existing, fresh = new_topic("existing"), f"fresh-{admin.name}"
    wanted: dict[str, dict[str, Any]] = {
        existing: {},
        fresh: {},
        "in valid": {},
        "replicated": {"replication_factor": 2},
        "configured": {"configs": {"no.such.config": "1"}},
    }

    codes = create_all(admin, wanted)
    validated = create_all(admin, {"validated": {}, "in valid": {}}, validate_only=True)
    listed = set(admin.call("list_topics"))
    deleted = admin.call("delete_topics", topics=[fresh, "absent"])

    assert codes == {
        existing: ErrorCode.TOPIC_ALREADY_EXISTS,
        fresh: ErrorCode.NONE,
        "in valid": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "replicated": ErrorCode.INVALID_REPLICATION_FACTOR,
        "configured": ErrorCode.INVALID_CONFIG,
    }
    assert validated == {"validated": ErrorCode.NONE, "in valid": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert listed & {*wanted, "validated"} == {existing, fresh}
    assert deleted == {fresh: ErrorCode.NONE, "absent": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("writer", CLIENTS)
def test_producing_to_an_unknown_topic_creates_it(client: GetClient, writer: str) -> None:
    topic = f"created-by-producing-{writer}"

    acked = client(writer).produce(topic, numbered(3))

    assert [record.offset for record in acked] == [0, 1, 2]
    described = client("kafka-python-3.0").call("describe_topic", topic=topic)
    assert [row["partition"] for row in described["partitions"]] == [0, 1]


@pytest.mark.ability("administration")
def test_a_topics_configs_are_replaced(admin: Client, new_topic: NewTopic) -> None:
    topic = new_topic("replaced", configs={"segment.ms": "60000"})

    admin.call("alter_configs", kind="topic", name=topic, configs={"max.message.bytes": "5000"})

    # kafka-python sends along what was set before.
    kept = admin.name == "kafka-python-3.0"
    assert values_of(admin, "topic", topic, "max.message.bytes", "segment.ms") == {
        "max.message.bytes": ("5000", "DYNAMIC_TOPIC_CONFIG"),
        "segment.ms": ("60000", "DYNAMIC_TOPIC_CONFIG") if kept else ("604800000", "DEFAULT_CONFIG"),
    }
    assert_too_large(admin, topic)


@pytest.mark.ability("administration")
def test_single_configs_of_a_topic_are_changed(admin: Client, new_topic: NewTopic, is_apache_kafka: bool) -> None:
    if is_apache_kafka:
        pytest.skip("IncrementalAlterConfigs came with Kafka 2.3")
    topic = new_topic("changed", configs={"segment.ms": "60000", "retention.bytes": "77"})

    changes = {"segment.ms": None, "cleanup.policy": "compact"}
    admin.call("change_configs", kind="topic", name=topic, changes=changes)

    assert values_of(admin, "topic", topic, "segment.ms", "cleanup.policy", "retention.bytes") == {
        "segment.ms": ("604800000", "DEFAULT_CONFIG"),
        "cleanup.policy": ("compact", "DYNAMIC_TOPIC_CONFIG"),
        "retention.bytes": ("77", "DYNAMIC_TOPIC_CONFIG"),
    }


@pytest.mark.ability("administration")
@pytest.mark.parametrize("name", ["kafka-python-3.0", "java-3.9"])
def test_the_sizes_of_logs_are_described(client: GetClient, new_topic: NewTopic, name: str) -> None:
    topic = new_topic("sized", partitions=2)
    client(name).produce(topic, [Record(b"key", incompressible(5000))], partition=1)

    sizes = client(name).call("log_sizes")

    assert sizes[f"{topic}-0"] == 0
    assert 5000 < sizes[f"{topic}-1"] < 6000


@pytest.mark.ability("administration")
@pytest.mark.parametrize("name", ADMINS)
def test_a_brokers_settings_change_at_once_and_stay_after_a_kill(
    start_minibroker: StartMinibroker, drivers: Drivers, name: str
) -> None:
    broker = start_minibroker("--set", "broker.id=0").wait_until_ready()
    admin = drivers.get(name, broker.bootstrap)
    create_topic(broker, "t")

    admin.call("alter_configs", kind="broker", name="0", configs={"message.max.bytes": "5000"})
    admin.call("change_configs", kind="broker", name="0", changes={"log.retention.bytes": "77"})

    assert_too_large(admin, "t")
    broker.kill()
    again = start_minibroker("--set", "broker.id=0").wait_until_ready()
    assert values_of(drivers.get(name, again.bootstrap), "topic", "t", "max.message.bytes", "retention.bytes") == {
        "max.message.bytes": ("5000", "DYNAMIC_BROKER_CONFIG"),
        "retention.bytes": ("77", "DYNAMIC_BROKER_CONFIG"),
    }


def test_kafkas_config_command_changes_and_describes_brokers(start_minibroker: StartMinibroker, jars: Path) -> None:
    bootstrap = start_minibroker("--set", "broker.id=0").wait_until_ready().bootstrap
    this, every = ("--entity-name", "0"), ("--entity-default",)

    def run(*arguments: str) -> str:
        what = ("kafka.admin.ConfigCommand", "--bootstrap-server", bootstrap, "--entity-type", "brokers")
        return kafka_tool(jars, *what, *arguments, shows_errors=True)

    for entity, value in ((this, "7000"), (every, "8000")):
        assert "Completed updating" in run(*entity, "--alter", "--add-config", f"message.max.bytes={value}")
    described = run(*this, "--describe")
    assert "message.max.bytes=7000" in described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=8000" in described

    assert "Completed updating config" in run(*this, "--alter", "--delete-config", "message.max.bytes")
    assert "message.max.bytes=7000" not in run(*this, "--describe")
