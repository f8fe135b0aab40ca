"""The sources of settings: properties files as java.util.Properties reads them, and KAFKA_* variables.

Every expected value of a file was printed by JDK 17; the variables are those of the apache/kafka image.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig, load_config
from minibroker.broker.wings.images import other_images
from minibroker.broker.wings.images.environment import settings_of_environment
from minibroker.broker.wings.images.images import Images
from minibroker.protocol.jaas import parse_jaas
from minibroker.protocol.java_properties import parse_properties
from tests.sources import ROOT


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
    config = load_config(None, [], listen=None, data_dir=None, images=Images(OF_THE_IMAGES_DOCUMENTATION))

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

    config = load_config(None, [], listen=None, data_dir=None, images=Images(services | given))

    assert (config.num_partitions, config.advertised_host_name) == (3, "kafka")
    assert config.warnings == []
    assert config.notes == [
        f"{', '.join(sorted(services))}: no effect, Kubernetes sets them to addresses of services; "
        "`enableServiceLinks: false` keeps them out of a pod"
    ]


def test_a_port_that_a_variable_names_is_a_setting() -> None:
    given = {"KAFKA_PORT": "9099", "KAFKA_ADVERTISED_PORT": "9098"}

    config = load_config(None, [], listen=None, data_dir=None, images=Images(given))

    assert (config.listen_addresses, config.advertised_port, config.notes) == ([("", 9099)], 9098, [])


def configured(environment: dict[str, str]) -> KafkaConfig:
    return load_config(None, [], listen=None, data_dir=None, images=Images(environment))


def test_variables_of_bitnamis_image_are_settings_and_its_users_log_in_by_plain(tmp_path: Path) -> None:
    (tmp_path / "passwords").write_text("a1,b2\n")
    config = configured(
        {
            "KAFKA_CFG_NODE_ID": "7",
            "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
            "KAFKA_CFG_LISTENERS": "CLIENT://:9092,CONTROLLER://:9093,INSIDE://:9094",
            "KAFKA_CFG_ADVERTISED_LISTENERS": "CLIENT://kafka:9092,INSIDE://kafka:9094",
            "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,CLIENT:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
            "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
            "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "7@kafka:9093",
            "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "INSIDE",
            "KAFKA_CFG_NUM_PARTITIONS": "3",
            "KAFKA_NUM_PARTITIONS": "5",
            "KAFKA_KRAFT_CLUSTER_ID": "abcdefghijklmnopqrstuv",
            "KAFKA_CLIENT_USERS": "alice,bob",
            "KAFKA_CLIENT_PASSWORDS_FILE": str(tmp_path / "passwords"),
            "KAFKA_INTER_BROKER_USER": "broker",
            "KAFKA_INTER_BROKER_PASSWORD": 'c"3',
            "KAFKA_TLS_CLIENT_AUTH": "none",
            "ALLOW_PLAINTEXT_LISTENER": "yes",
            "BITNAMI_DEBUG": "yes",
        }
    )

    assert (config.broker_id, config.num_partitions, config.ssl_client_auth) == (7, 3, "none")
    assert [each.name for each in config.endpoints] == ["CLIENT", "INSIDE"]
    assert parse_jaas(config.given["listener.name.client.plain.sasl.jaas.config"]).options == {
        "username": "broker",
        "password": 'c"3',
        "user_alice": "a1",
        "user_bob": "b2",
        "user_broker": 'c"3',
    }
    assert config.given["sasl.enabled.mechanisms"] == "PLAIN"
    assert config.warnings == []


def test_key_stores_of_the_images_are_files_among_their_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_images, "SECRETS", tmp_path)
    (tmp_path / "password").write_text("secret\n")
    settings = settings_of_environment(
        {
            "KAFKA_SSL_KEYSTORE_FILENAME": "server.p12",
            "KAFKA_SSL_KEYSTORE_CREDENTIALS": "password",
            "KAFKA_LISTENER_NAME_IN_SCRAM__SHA__256_SASL_JAAS_CONFIG": "one",
            "KAFKA_LISTENER_NAME_IN_SCRAM___SHA___512_SASL_JAAS_CONFIG": "other",
        }
    ).settings

    assert {name: value for name, (value, _) in settings.items()} == {
        "ssl.keystore.location": str(tmp_path / "server.p12"),
        "ssl.keystore.password": "secret",
        "listener.name.in.scram-sha-256.sasl.jaas.config": "one",
        "listener.name.in.scram-sha-512.sasl.jaas.config": "other",
    }


# The variables that the scripts of each image read, with a value of its documentation.
VARIABLES_OF_IMAGES = {
    "apache/kafka": """
        KAFKA_NODE_ID=1 KAFKA_LOG_RETENTION_MS=1 KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://a:1 KAFKA_OPTS=-Dx=1
        KAFKA_SSL_KEYSTORE_FILENAME=a.p12 KAFKA_SSL_TRUSTSTORE_FILENAME=b.p12 KAFKA_SSL_KEYSTORE_CREDENTIALS=password
        KAFKA_SSL_KEY_CREDENTIALS=password KAFKA_SSL_TRUSTSTORE_CREDENTIALS=password KAFKA_JMX_OPTS=-Dy=1 CLUSTER_ID=x
        KAFKA_LOG4J_ROOT_LOGLEVEL=WARN KAFKA_LOG4J_LOGGERS=kafka=WARN KAFKA_TOOLS_LOG4J_LOGLEVEL=WARN
        KAFKA_HEAP_OPTS=-Xmx1G KAFKA_JVM_PERFORMANCE_OPTS=-server KAFKA_GC_LOG_OPTS=-Xlog:gc KAFKA_LOG4J_OPTS=-Dlog4j=f
        KAFKA_LOG4J_CONFIG_FILE=f KAFKA_JMX_PORT=9101 KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR=1
    """,
    "bitnami/kafka": """
        ALLOW_PLAINTEXT_LISTENER=yes KAFKA_CFG_LISTENERS=A://:1 KAFKA_CFG_MAX_REQUEST_SIZE=1 KAFKA_ENABLE_KRAFT=yes
        KAFKA_INTER_BROKER_USER=u KAFKA_INTER_BROKER_PASSWORD=p KAFKA_CLIENT_USERS=a KAFKA_CLIENT_PASSWORDS=b
        KAFKA_CLIENT_PASSWORDS_FILE=password KAFKA_CERTIFICATE_PASSWORD=c KAFKA_TLS_TYPE=PEM KAFKA_TLS_TRUSTSTORE_FILE=f
        KAFKA_TLS_CLIENT_AUTH=none KAFKA_OPTS_FILE=password KAFKA_KRAFT_CLUSTER_ID=x KAFKA_ZOOKEEPER_PROTOCOL=SASL
        KAFKA_ZOOKEEPER_USER=u KAFKA_ZOOKEEPER_PASSWORD=p KAFKA_ZOOKEEPER_TLS_TYPE=JKS KAFKA_EXTRA_FLAGS=-x
        KAFKA_ZOOKEEPER_TLS_TRUSTSTORE_FILE=f KAFKA_SKIP_KRAFT_STORAGE_INIT=yes KAFKA_CONTROLLER_USER=u
        KAFKA_CONTROLLER_PASSWORD=p KAFKA_CLIENT_LISTENER_NAME=C KAFKA_PORT_NUMBER=1 KAFKA_KRAFT_BOOTSTRAP_SCRAM_USERS=1
        KAFKA_MOUNTED_CONF_DIR=/m KAFKA_INITIAL_CONTROLLERS=0@h:1:u JAVA_TOOL_OPTIONS=-Dz=1 KAFKA_VOLUME_DIR=/b
    """,
    "confluentinc/cp-kafka": """
        KAFKA_BROKER_ID=1 KAFKA_ZOOKEEPER_CONNECT=z:1 KAFKA_ADVERTISED_LISTENERS=PLAINTEXT_HOST://localhost:9092
        KAFKA_JMX_PORT=9101 KAFKA_JMX_HOSTNAME=localhost KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR=1
        KAFKA_METRIC_REPORTERS=io.confluent.metrics.reporter.ConfluentMetricsReporter CONFLUENT_METRICS_ENABLE=true
        CONFLUENT_SUPPORT_CUSTOMER_ID=anonymous KAFKA_AUTHORIZER_CLASS_NAME=kafka.security.authorizer.AclAuthorizer
        KAFKA_SCHEMA_REGISTRY_URL=http://s:8081 KAFKA_SSL_KEYSTORE_FILENAME=a.jks KAFKA_OPTS=-javaagent:/jmx.jar=7071
    """,
    "wurstmeister/kafka": """
        KAFKA_ADVERTISED_HOST_NAME=k KAFKA_ADVERTISED_PORT=9094 KAFKA_PORT=9092 KAFKA_HOST_NAME=k KAFKA_BROKER_ID=-1
        HOSTNAME_COMMAND=hostname PORT_COMMAND=x BROKER_ID_COMMAND=x RACK_COMMAND=x CUSTOM_INIT_SCRIPT=x JMX_PORT=1099
        KAFKA_PROTOCOL_NAME=A KAFKA_ADVERTISED_PROTOCOL_NAME=A KAFKA_INTER_BROKER_PORT=1 KAFKA_LOG_DIRS=/kafka
        KAFKA_CREATE_TOPICS=a:1:1 KAFKA_CREATE_TOPICS_SEPARATOR=; KAFKA_OPTS=-Djava.security.krb5.conf=/k
    """,
}
# First topics; a mounted file; a quorum of one; what a SASL listener needs.
EFFECT_ELSEWHERE = {"KAFKA_CREATE_TOPICS", "KAFKA_CREATE_TOPICS_SEPARATOR", "KAFKA_MOUNTED_CONF_DIR"}
EFFECT_ELSEWHERE |= {"KAFKA_INITIAL_CONTROLLERS", "KAFKA_INTER_BROKER_USER", "KAFKA_INTER_BROKER_PASSWORD"}


@pytest.mark.parametrize("image", VARIABLES_OF_IMAGES)
def test_every_variable_of_an_image_has_an_effect_or_is_named(
    image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_images, "SECRETS", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("-Dw=1\n")
    nothing = configured({"HOME": "/"})

    ignored = set()
    variables = dict(each.split("=", 1) for each in VARIABLES_OF_IMAGES[image].split())
    for variable, value in variables.items():
        try:
            config = configured({variable: value})
        except ConfigError as error:
            said = [str(error)]
        else:
            said = [*config.warnings, *config.notes]
            said += [variable] if config.given != nothing.given else []
        if not any(variable.removesuffix("_FILE") in line for line in said):
            ignored.add(variable)
    assert ignored == variables.keys() & EFFECT_ELSEWHERE


def test_a_mounted_file_has_the_settings_and_variables_win_over_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.properties").write_text(
        "listeners=A://:7\nlistener.security.protocol.map=A:PLAINTEXT\n"
        "inter.broker.listener.name=A\nlog.dir=/there\nnum.partitions=3\n"
    )
    of_the_dockerfile = dict(re.findall(r"(KAFKA_\w+)=(\S+)", (ROOT / "Dockerfile").read_text()))
    given = {"KAFKA_MOUNTED_CONF_DIR": str(tmp_path), "KAFKA_NUM_PARTITIONS": "5"}

    config = configured(of_the_dockerfile | given)

    assert config.listen_addresses == [("", 7)]
    assert (config.num_partitions, config.log_dir) == (5, Path("/there"))
    assert config.notes[0] == f"settings are read from {tmp_path}/server.properties, and variables win over it"
    assert of_the_dockerfile == {name: value for value, name in other_images.OF_THE_DOCKERFILE.values()}


def test_variables_without_effect_are_one_warning_with_alternatives() -> None:
    config = configured(
        {
            "HOSTNAME_COMMAND": "hostname",
            "KAFKA_OPTS": "-Xmx1G -javaagent:/jmx.jar=7071 -Djavax.net.ssl.keyStorePassword=hunter2",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "KAFKA_LOG4J_LOGGERS": "kafka=WARN",
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            "KAFKA_PROTOCOL_NAME": "INSIDE",
            "KAFKA_CREATE_TOPICS": "orders:1:1",
            "KAFKA_ZOOKEEPER_PROTOCOL": "SASL",
            "KAFKA_ZOOKEEPER_TLS_TYPE": "JKS",
            "KAFKA_METRIC_REPORTERS": "io.confluent.metrics.reporter.ConfluentMetricsReporter",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
            "CONFLUENT_METRICS_ENABLE": "true",
            "KAFKA_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:9092",
            "KAFKA_SECURITY_INTER_BROKER_PROTOCOL": "SASL_PLAINTEXT",
            "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256",
            "KAFKA_CLIENT_USERS": "alice",
            "KAFKA_CLIENT_PASSWORDS": "a",
        }
    )

    assert config.warnings == [
        "variables of other images without effect here: CONFLUENT_METRICS_ENABLE, "
        "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE, KAFKA_METRIC_REPORTERS; "
        "KAFKA_ZOOKEEPER_PROTOCOL, KAFKA_ZOOKEEPER_TLS_TYPE (use --zookeeper); "
        "HOSTNAME_COMMAND (use KAFKA_ADVERTISED_LISTENERS); "
        "KAFKA_PROTOCOL_NAME (use KAFKA_LISTENERS and KAFKA_ADVERTISED_LISTENERS); "
        "KAFKA_CLIENT_USERS (use `minibroker users add` for SCRAM); "
        "KAFKA_OPTS -javaagent (use `serve --metrics HOST:PORT`)"
    ]
    assert config.notes[-1] == (
        "CLUSTER_ID, KAFKA_LOG4J_LOGGERS, KAFKA_HEAP_OPTS, KAFKA_OPTS (-Djavax.net.ssl.keyStorePassword): no effect, "
        "this broker has no JVM, and an id of its own for its cluster"
    )


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://_{HOSTNAME_COMMAND}:9092"},
            "KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://_{HOSTNAME_COMMAND}:9092: commands are not run; "
            "write the address itself",
        ),
        (
            {"KAFKA_SSL_KEY_CREDENTIALS": "absent"},
            "KAFKA_SSL_KEY_CREDENTIALS: cannot read /etc/kafka/secrets/absent: No such file or directory",
        ),
        (
            {"KAFKA_CLIENT_USERS": "alice,bob", "KAFKA_CLIENT_PASSWORDS": "a"},
            "KAFKA_CLIENT_USERS has 2 users, KAFKA_CLIENT_PASSWORDS has 1: give each user one",
        ),
    ],
)
def test_variables_of_other_images_that_cannot_be_followed_end_the_start(
    environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(environment)
    assert str(refused.value) == message


def test_the_command_line_wins_over_the_environment() -> None:
    config = load_config(
        None, ["num.partitions=5"], listen=None, data_dir=None, images=Images({"KAFKA_NUM_PARTITIONS": "3"})
    )

    assert config.num_partitions == 5


def test_an_error_names_the_variable_of_a_wrong_value() -> None:
    with pytest.raises(ConfigError, match="KAFKA_NUM_PARTITIONS"):
        load_config(None, [], listen=None, data_dir=None, images=Images({"KAFKA_NUM_PARTITIONS": "many"}))
