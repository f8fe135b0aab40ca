"""KAFKA_* variables, as the apache/kafka image has them."""

from __future__ import annotations

import pytest

from minibroker.broker.config.environment import settings_of_environment
from minibroker.broker.config.kafka_config import ConfigError, load_config

# What the documentation of the apache/kafka image has people start it with.
OF_THE_IMAGES_DOCUMENTATION = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFKA_NUM_PARTITIONS": "3",
    "KAFKA_HEAP_OPTS": "-Xmx1G",
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "PATH": "/bin",
}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_A__B", "a_b"),
        ("KAFKA_A___B", "a-b"),
        ("KAFKA_A____B", "a-.b"),
    ],
)
def test_a_variable_stands_for_a_setting(variable: str, name: str) -> None:
    assert settings_of_environment({variable: "1"}) == {name: ("1", variable)}


def test_what_is_no_setting_is_left_out() -> None:
    assert settings_of_environment({"KAFKA_OPTS": "-D", "KAFKA_VERSION": "4.0", "HOME": "/", "MY_KAFKA_X": "1"}) == {}


def test_what_starts_the_image_starts_this_broker() -> None:
    config = load_config(None, [], listen=None, data_dir=None, environment=OF_THE_IMAGES_DOCUMENTATION)

    assert config.broker_id == 1
    assert config.listen_addresses == [("localhost", 9092)]
    assert config.num_partitions == 3
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.warnings == []


def test_the_command_line_wins_over_the_environment() -> None:
    config = load_config(
        None, ["num.partitions=5"], listen=None, data_dir=None, environment={"KAFKA_NUM_PARTITIONS": "3"}
    )

    assert config.num_partitions == 5


def test_a_value_that_is_wrong_is_told_with_its_variable() -> None:
    with pytest.raises(ConfigError, match="KAFKA_NUM_PARTITIONS"):
        load_config(None, [], listen=None, data_dir=None, environment={"KAFKA_NUM_PARTITIONS": "many"})


def test_an_id_of_the_broker_wins_over_that_of_the_node() -> None:
    found = settings_of_environment({"KAFKA_NODE_ID": "1", "KAFKA_BROKER_ID": "2"})

    assert found == {"broker.id": ("2", "KAFKA_BROKER_ID")}
