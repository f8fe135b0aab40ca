"""Secured brokers of `Broker` and of the plugin: one line makes them, and everything of an open broker works."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from minibroker import Acl, Broker, BrokerError, running_broker
from minibroker.protocol.sasl_client import MECHANISMS
from tests.minibroker.commands import minibroker, run_pytest

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.integration, pytest.mark.slow]

PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
WAIT_SECONDS = 20.0


def written(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """Write a record; the error of its delivery."""
    errors: list[KafkaError | None] = []
    producer = Producer(settings | {"log_level": 0, "message.timeout.ms": 20_000})
    producer.produce(topic, b"a record", on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_SECONDS)
    (error,) = errors
    return error


def read(settings: dict[str, Any], topic: str, group: str) -> bytes | KafkaError:
    """The first record of a topic, as a member of a group, or why there is none."""
    given = {"group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(settings | given)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_SECONDS)
        assert message is not None, "neither a record nor an error"
        return message.error() or message.value() or b""
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_everything_of_an_open_broker_works(protocol: str, tmp_path: Path) -> None:
    with Broker(security=protocol, users={"alice": "of alice"}, acls=[], control=True, transcript=True) as broker:
        broker.create_topic("orders", partitions=2)
        broker.produce("orders", [("key", "one")])
        assert [record.value for record in broker.records("orders", n=1)] == [b"one"]
        assert broker.topics() == {"orders": 2}
        broker.stop()
        address = broker.bootstrap_servers
        broker.start()
        assert (broker.bootstrap_servers, broker.topics()) == (address, {"orders": 2})
        assert written(broker.client_settings("confluent-kafka"), "orders") is None
        broker.reset()
        assert broker.topics() == {}
        texts = [each.read_text() for each in (broker.log_file, *broker.data_dir.glob("minibroker.*"))]
        assert not [text for text in texts if "of alice" in text]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_broker_may_have_one_mechanism_alone(mechanism: str) -> None:
    with running_broker(security="SASL_PLAINTEXT", users=["alice"], mechanisms=[mechanism]) as broker:
        broker.create_topic("orders")

        assert written(broker.client_settings("confluent-kafka", user="alice"), "orders") is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_user_has_the_rights_of_its_acls(protocol: str) -> None:
    acls = [Acl("alice", "read", topic="orders", group_prefix="alices-")]
    with Broker(security=protocol, users=["alice", "bob"], acls=acls) as broker:
        broker.create_topic("orders")
        alice, bob = (broker.client_settings("confluent-kafka", user=user) for user in ("alice", "bob"))

        denied = written(alice, "orders")
        assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        broker.add_acls(Acl("alice", "write", topic_prefix="ord"))
        assert written(alice, "orders") is None
        assert read(alice, "orders", "alices-group") == b"a record"
        error = read(bob, "orders", "alices-group")
        assert isinstance(error, KafkaError)
        assert error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)

        broker.remove_acls(Acl("alice", "write", topic_prefix="ord"))
        broker.stop()
        broker.start()
        denied = written(alice, "orders")
        assert denied is not None and denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, "after a restart, too"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ((), "CLUSTER_AUTHORIZATION_FAILED; an idempotent producer needs IdempotentWrite"),
        (("--acks", "1"), "TOPIC_AUTHORIZATION_FAILED; the cluster's ACLs deny this client"),
    ],
)
@pytest.mark.parametrize("client", ["librdkafka", "kafka-python"])
def test_a_producer_without_rights_is_refused_in_a_line(
    client: str, options: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    if client == "kafka-python":
        (tmp_path / "confluent_kafka.py").write_text("raise ModuleNotFoundError")
    (lines := tmp_path / "lines").write_text("one\n")
    acls = [Acl("alice", "describe", "describe_configs", topic="orders")]
    with Broker(security="SASL_PLAINTEXT", users=["alice"], acls=acls) as broker:
        broker.create_topic("orders")
        (file := tmp_path / "client.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in broker.client_settings("java", user="alice").items())
        )

        command = ("produce", "orders", "--file", lines, *options, "--command-config", file)
        refused = minibroker(*command, PYTHONPATH=str(tmp_path))

    assert reason in refused.complaint


def test_a_client_without_a_certificate_is_refused() -> None:
    with Broker(security="SSL", users=["alice"]) as broker:
        settings = broker.client_settings("confluent-kafka", user="alice")
        properties = [("-X", f"{name}={value}") for name, value in settings.items()]
        without = [each for each in properties if "ssl.key" not in each[1] and "ssl.certificate" not in each[1]]

        assert minibroker("topics", "list", *itertools.chain(*properties)).status == 0
        refused = minibroker("topics", "list", *itertools.chain(*without))

        assert "set ssl.keystore.location to a certificate of this client" in refused.complaint


def test_without_trustme_the_message_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)

    with pytest.raises(BrokerError, match="pip install trustme"):
        Broker(security="SASL_SSL")
    with Broker(security="SASL_PLAINTEXT") as broker:
        assert broker.topics() == {}


def test_passwords_are_not_on_the_command_line_of_the_broker() -> None:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "of alice"}) as broker:
        assert b"of alice" not in Path(f"/proc/{broker.pid}/cmdline").read_bytes()


def test_the_sessions_broker_may_be_secured(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nminibroker_security = SASL_SSL\n")
    pytester.makeconftest("""
        import pytest
        from minibroker import Acl

        @pytest.fixture(scope="session")
        def minibroker_users():
            return {"alice": "secret"}

        @pytest.fixture(scope="session")
        def minibroker_acls():
            return [Acl("alice", "all", topic="*")]
    """)
    pytester.makepyfile("""
        from confluent_kafka import Producer

        def test_one(minibroker, minibroker_topic):
            producer = Producer(minibroker.client_settings("confluent-kafka", user="alice"))
            producer.produce(minibroker_topic, b"one")
            producer.flush()
            assert [record.value for record in minibroker.records(minibroker_topic, n=1)] == [b"one"]

        def test_two(minibroker_clean, minibroker_factory):
            broker = minibroker_factory(security="SASL_PLAINTEXT", users={"bob": "secret"})
            assert broker.client_settings("java", user="bob")["security.protocol"] == "SASL_PLAINTEXT"
    """)

    run_pytest(pytester).assert_outcomes(passed=2)
