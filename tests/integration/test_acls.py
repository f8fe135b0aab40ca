"""Users log in, and may do what the ACLs allow them: by real clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from minibroker.cli.app import main
from tests.conformance.sasl import SETTINGS
from tests.integration.brokers import Minibroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0"
ANSWER_SECONDS = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Minibroker]:
    """A broker whose plain listener may do everything; a user that logs in may do nothing yet."""
    settings = {
        **SETTINGS,
        "listeners": LISTENERS,
        "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    started = Minibroker(tmp_path, "--data-dir", str(tmp_path / "data"), settings=settings, flags=False)
    yield started.wait_until_ready()
    started.kill()


def administer(broker: Minibroker, *arguments: str) -> None:
    plain = f"127.0.0.1:{broker.ports['PLAINTEXT']}"
    assert main([*arguments, "--bootstrap-server", plain]) == 0


def login(broker: Minibroker) -> dict[str, str]:
    return {
        "bootstrap.servers": f"127.0.0.1:{broker.ports['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "carol",
        "sasl.password": "carol-secret",
    }


def sent(broker: Minibroker, topic: str) -> KafkaError | None:
    """The error of a record that carol sends; None for none."""
    outcomes: list[KafkaError | None] = []
    producer = Producer(login(broker))
    producer.produce(topic, b"v", on_delivery=lambda error, message: outcomes.append(error))
    producer.flush(ANSWER_SECONDS)
    (outcome,) = outcomes
    return outcome


def test_a_user_may_do_what_was_allowed_to_it(broker: Minibroker) -> None:
    administer(broker, "topics", "create", "orders")
    refused = sent(broker, "orders")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    administer(broker, "acls", "add", "--allow", "carol", "--producer", "--topic", "ord", "--prefixed")
    assert sent(broker, "orders") is None

    consumer = Consumer({**login(broker), "group.id": "reports", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    polled = consumer.poll(ANSWER_SECONDS)
    error = None if polled is None else polled.error()
    assert error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    administer(broker, "acls", "add", "--allow", "carol", "--consumer", "--topic", "orders", "--group", "reports")
    consumer = Consumer({**login(broker), "group.id": "reports", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    found = consumer.poll(ANSWER_SECONDS)
    assert found is not None and found.error() is None and found.value() == b"v"
    consumer.close()
