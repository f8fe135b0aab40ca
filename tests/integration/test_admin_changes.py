"""Topics and brokers changed while they are in use, by the admin clients and by Kafka's own tool."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.protocol.errors import ErrorCode
from tests.integration.clients import ADMINS, Client, ClientError
from tests.integration.conftest import Drivers, GetClient, NewTopic, StartMinibroker
from tests.integration.kafka_tools import kafka_tool
from tests.integration.records import Record, incompressible, numbered
from tests.integration.topics import create_topic


@pytest.fixture(params=ADMINS)
def admin(client: GetClient, request: pytest.FixtureRequest) -> Client:
    return client(request.param)


def values_of(admin: Client, kind: str, name: str, *keys: str) -> dict[str, tuple[str, str]]:
    """Value and source of each."""
    described = admin.call("describe_configs", kind=kind, name=name, keys=list(keys))
    return {key: (row["value"], row["source"]) for key, row in described.items()}


def test_partitions_are_added_and_written_to(admin: Client, new_topic: NewTopic) -> None:
    topic = new_topic("grown", partitions=1)

    assert admin.call("create_partitions", topic=topic, count=3, validate_only=False) == ErrorCode.NONE

    assert [row["partition"] for row in admin.call("describe_topic", topic=topic)["partitions"]] == [0, 1, 2]
    assert [record.offset for record in admin.produce(topic, numbered(2), partition=2)] == [0, 1]


def test_partitions_that_cannot_be_added_are_refused(admin: Client, new_topic: NewTopic) -> None:
    topic = new_topic("not-grown", partitions=2)

    assert admin.call("create_partitions", topic=topic, count=1, validate_only=False) == ErrorCode.INVALID_PARTITIONS
    assert admin.call("create_partitions", topic=topic, count=5, validate_only=True) == ErrorCode.NONE
    code = admin.call("create_partitions", topic="absent", count=5, validate_only=False)

    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(admin.call("describe_topic", topic=topic)["partitions"]) == 2


def test_a_topics_configs_are_replaced(admin: Client, new_topic: NewTopic) -> None:
    topic = new_topic("replaced", configs={"segment.ms": "60000"})

    admin.call("alter_configs", kind="topic", name=topic, configs={"max.message.bytes": "5000"})

    # kafka-python sends along what was set before.
    kept = admin.name == "kafka-python-3.0"
    assert values_of(admin, "topic", topic, "max.message.bytes", "segment.ms") == {
        "max.message.bytes": ("5000", "DYNAMIC_TOPIC_CONFIG"),
        "segment.ms": ("60000", "DYNAMIC_TOPIC_CONFIG") if kept else ("604800000", "DEFAULT_CONFIG"),
    }
    with pytest.raises(ClientError) as raised:
        admin.produce(topic, [Record(b"key", incompressible(20_000))], linger_ms=1)
    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE


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


def test_wrong_configs_are_an_error_and_change_nothing(admin: Client, new_topic: NewTopic) -> None:
    topic = new_topic("unchanged", configs={"segment.ms": "60000"})

    if admin.name != "kafka-python-3.0":  # which drops the error code
        with pytest.raises(ClientError):
            admin.call("alter_configs", kind="topic", name=topic, configs={"retention.ms": "soon"})

    assert values_of(admin, "topic", topic, "segment.ms") == {"segment.ms": ("60000", "DYNAMIC_TOPIC_CONFIG")}


@pytest.mark.parametrize("name", ["kafka-python-3.0", "java-3.9"])
def test_the_sizes_of_logs_are_described(client: GetClient, new_topic: NewTopic, name: str) -> None:
    topic = new_topic("sized", partitions=2)
    client(name).produce(topic, [Record(b"key", incompressible(5000))], partition=1)

    sizes = client(name).call("log_sizes")

    assert sizes[f"{topic}-0"] == 0
    assert 5000 < sizes[f"{topic}-1"] < 6000


@pytest.mark.parametrize("name", ADMINS)
def test_a_brokers_settings_change_at_once_and_stay_after_a_kill(
    start_minibroker: StartMinibroker, drivers: Drivers, name: str
) -> None:
    broker = start_minibroker("--set", "broker.id=0").wait_until_ready()
    admin = drivers.get(name, broker.bootstrap)
    create_topic(broker, "t")

    admin.call("alter_configs", kind="broker", name="0", configs={"message.max.bytes": "5000"})
    admin.call("change_configs", kind="broker", name="0", changes={"log.retention.bytes": "77"})
    with pytest.raises(ClientError) as raised:
        admin.produce("t", [Record(b"key", incompressible(20_000))], linger_ms=1)

    assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
    broker.kill()
    again = start_minibroker("--set", "broker.id=0").wait_until_ready()
    assert values_of(drivers.get(name, again.bootstrap), "topic", "t", "max.message.bytes", "retention.bytes") == {
        "max.message.bytes": ("5000", "DYNAMIC_BROKER_CONFIG"),
        "retention.bytes": ("77", "DYNAMIC_BROKER_CONFIG"),
    }


@pytest.fixture
def config_command(start_minibroker: StartMinibroker, jars: Path) -> Callable[..., str]:
    """Kafka 2.0.1's own tool on a broker of its own; what it prints."""
    to = ("--bootstrap-server", start_minibroker("--set", "broker.id=0").wait_until_ready().bootstrap)
    what = ("kafka.admin.ConfigCommand", *to, "--entity-type", "brokers")
    return lambda *arguments: kafka_tool(jars, *what, *arguments, shows_errors=True, may_fail=True)


def test_kafkas_config_command_changes_and_describes_brokers(config_command: Callable[..., str]) -> None:
    this = ("--entity-name", "0")

    for entity, value in ((this, "7000"), (("--entity-default",), "8000")):
        said = config_command(*entity, "--alter", "--add-config", f"message.max.bytes={value}")
        assert "Completed updating" in said, said
    described = config_command(*this, "--describe")
    assert "message.max.bytes=7000" in described, described
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=8000" in described, described

    said = config_command(*this, "--alter", "--delete-config", "message.max.bytes")
    assert "Completed updating config" in said, said
    assert "message.max.bytes=7000" not in config_command(*this, "--describe")


def test_kafkas_config_command_is_told_what_may_not_be_changed(config_command: Callable[..., str]) -> None:
    said = config_command("--entity-name", "0", "--alter", "--add-config", "num.partitions=5")

    assert "Cannot update these configs dynamically: Set(num.partitions)" in said, said
