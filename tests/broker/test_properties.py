"""The sources of settings: properties files as java.util.Properties reads them, and KAFKA_* variables.

Every expected value of a file was printed by JDK 17; the variables are those of the apache/kafka image.
"""

from __future__ import annotations

import pytest

from minibroker.broker.config.kafka_config import ConfigError, load_config
from minibroker.protocol.java_properties import parse_properties


def test_an_entry_knows_the_line_it_starts_on() -> None:
    text = "# one\r\na=1\n\nb=2,\\\n  3\nc=4"

    assert [(entry.key, entry.line) for entry in parse_properties(text)] == [("a", 2), ("b", 4), ("c", 6)]


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


def test_variables_that_start_the_image_start_this_broker() -> None:
    config = load_config(None, [], listen=None, data_dir=None, environment=OF_THE_IMAGES_DOCUMENTATION)

    assert config.broker_id == 1
    assert config.listen_addresses == [("localhost", 9092)]
    assert config.num_partitions == 3
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.warnings == []


def service_variables(service: str, host: str = "10.0.35.234") -> dict[str, str]:
    """The variables of a pod for a service of one named port (as kubernetes 1.31 envvars.FromServices)."""
    address = f"tcp://{f'[{host}]' if ':' in host else host}:9092"
    return {
        f"{service}_SERVICE_HOST": host,
        f"{service}_SERVICE_PORT": "9092",
        f"{service}_SERVICE_PORT_CLIENT": "9092",
        f"{service}_PORT": address,
        f"{service}_PORT_9092_TCP": address,
        f"{service}_PORT_9092_TCP_PROTO": "tcp",
        f"{service}_PORT_9092_TCP_PORT": "9092",
        f"{service}_PORT_9092_TCP_ADDR": host,
    }


@pytest.mark.parametrize(
    "services",
    [
        service_variables("KAFKA"),
        service_variables("KAFKA", "fd00::7"),
        service_variables("KAFKA") | service_variables("KAFKA_ADVERTISED") | service_variables("KAFKA_0"),
        service_variables("KAFKA_SERVICE") | service_variables("KAFKA_JMX") | service_variables("KAFKA_LOG_DIRS"),
        {"KAFKA_PORT": "udp://10.0.35.234:9092", "KAFKA_ADVERTISED_PORT": "sctp://10.0.35.234:9092"},
    ],
)
def test_variables_of_kubernetes_services_are_one_note_and_no_settings(services: dict[str, str]) -> None:
    given = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_ADVERTISED_HOST_NAME": "kafka", "PORT": "tcp://10.0.0.1:80"}

    config = load_config(None, [], listen=None, data_dir=None, environment=services | given)

    assert (config.num_partitions, config.advertised_host_name) == (3, "kafka")
    assert config.warnings == []
    assert config.notes == [
        f"{', '.join(sorted(services))}: no effect, Kubernetes sets them to addresses of services; "
        "`enableServiceLinks: false` keeps them out of a pod"
    ]


def test_a_port_that_a_variable_names_is_a_setting() -> None:
    given = {"KAFKA_PORT": "9099", "KAFKA_ADVERTISED_PORT": "9098"}

    config = load_config(None, [], listen=None, data_dir=None, environment=given)

    assert (config.listen_addresses, config.advertised_port, config.notes) == ([("", 9099)], 9098, [])


def test_the_command_line_wins_over_the_environment() -> None:
    config = load_config(
        None, ["num.partitions=5"], listen=None, data_dir=None, environment={"KAFKA_NUM_PARTITIONS": "3"}
    )

    assert config.num_partitions == 5


def test_an_error_names_the_variable_of_a_wrong_value() -> None:
    with pytest.raises(ConfigError, match="KAFKA_NUM_PARTITIONS"):
        load_config(None, [], listen=None, data_dir=None, environment={"KAFKA_NUM_PARTITIONS": "many"})
