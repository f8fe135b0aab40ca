"""Where settings come from: properties files as java.util.Properties reads them, and KAFKA_* variables.

Every expected value of a file was printed by JDK 17; the variables are those of the apache/kafka image.
"""

from __future__ import annotations

import pytest

from minibroker.broker.config.environment import settings_of_environment
from minibroker.broker.config.kafka_config import ConfigError, load_config
from minibroker.protocol.java_properties import PropertiesError, parse_properties, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3", {"a": "1", "b": "2", "c": "3"}),
        ("sp  :  x : y", {"sp": "x : y"}),
        ("eq==x\nco=:x\nb =: d", {"eq": "=x", "co": ":x", "b": ": d"}),
        ("tabs\t=\tv", {"tabs": "v"}),
        ("trailing = 4 ", {"trailing": "4 "}),
        ("nothing\nempty=", {"nothing": "", "empty": ""}),
        ("=no key", {"": "no key"}),
        ("  # a\n! b\n\n   \n#c\\\nd=1", {"d": "1"}),
        ("a=b # not a comment", {"a": "b # not a comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("e\\ f=g\nk\\=x\\:y=z\n\\=d", {"e f": "g", "k=x:y": "z", "=d": ""}),
        ("dir=C:\\\\new\\\\top", {"dir": "C:\\new\\top"}),
        ("esc=\\t\\n\\r\\f\\z\\\\\\u0041", {"esc": "\t\n\r\fz\\A"}),
        ("u=\\U0041\\u00E9", {"u": "U0041é"}),
        ("pair=\\ud83d\\ude00", {"pair": "\U0001f600"}),
        ("a=b\rc=d\r\ne=f\n\fg\fh", {"a": "b", "c": "d", "e": "f", "g": "h"}),
        ("vertical\x0btab=\u2028x", {"vertical\x0btab": "\u2028x"}),
    ],
)
def test_entries(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("long=one,\\\n     two,\\\r\n\tthree", {"long": "one,two,three"}),
        ("cont\\\n   key=v", {"contkey": "v"}),
        ("k \\\n = v", {"k": "v"}),
        ("c= \\\n   \\\n   v", {"c": "v"}),
        ("even=x\\\\\nb=1", {"even": "x\\", "b": "1"}),
        ("a=x\\\n# not a comment\nb=1", {"a": "x# not a comment", "b": "1"}),
        ("a=x\\\n   \n  b=1", {"a": "x", "b": "1"}),
        ("\\\n#x=1\n  \\\n  y=2", {"y": "2"}),
        ("end=x\\", {"end": "x"}),
        ("a=1\n\\", {"a": "1"}),
    ],
)
def test_lines_are_continued_after_a_backslash(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


def test_an_entry_knows_the_line_it_starts_on() -> None:
    text = "# one\r\na=1\n\nb=2,\\\n  3\nc=4"

    assert [(entry.key, entry.line) for entry in parse_properties(text)] == [("a", 2), ("b", 4), ("c", 6)]


@pytest.mark.parametrize("text", ["x=\\u12", "x=\\u12g4", "\\u=1"])
def test_a_broken_escape_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(PropertiesError, match=r"line 2: .*hexadecimal"):
        read_properties(f"a=1\n{text}")


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
    ("variables", "found"),
    [
        ({"KAFKA_LOG_RETENTION_MS": "1"}, {"log.retention.ms": ("1", "KAFKA_LOG_RETENTION_MS")}),
        ({"KAFKA_A__B": "1"}, {"a_b": ("1", "KAFKA_A__B")}),
        ({"KAFKA_A___B": "1"}, {"a-b": ("1", "KAFKA_A___B")}),
        ({"KAFKA_A____B": "1"}, {"a-.b": ("1", "KAFKA_A____B")}),
        ({"KAFKA_OPTS": "-D", "KAFKA_VERSION": "4.0", "HOME": "/", "MY_KAFKA_X": "1"}, {}),
        ({"KAFKA_NODE_ID": "1", "KAFKA_BROKER_ID": "2"}, {"broker.id": ("2", "KAFKA_BROKER_ID")}),
    ],
)
def test_which_variables_stand_for_which_settings(variables: dict[str, str], found: dict[str, tuple[str, str]]) -> None:
    assert settings_of_environment(variables) == found


def test_what_starts_the_image_starts_this_broker() -> None:
    config = load_config(None, [], listen=None, data_dir=None, environment=OF_THE_IMAGES_DOCUMENTATION)

    assert config.broker_id == 1
    assert config.listen_addresses == [("localhost", 9092)]
    assert config.num_partitions == 3
    assert config.group_initial_rebalance_delay_ms == 0
    assert config.warnings == []


def service_variables(service: str, host: str = "10.0.35.234") -> dict[str, str]:
    """What Kubernetes sets in a pod for a service of one named port (as kubernetes 1.31 envvars.FromServices)."""
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


def test_a_value_that_is_wrong_is_told_with_its_variable() -> None:
    with pytest.raises(ConfigError, match="KAFKA_NUM_PARTITIONS"):
        load_config(None, [], listen=None, data_dir=None, environment={"KAFKA_NUM_PARTITIONS": "many"})
