"""`broker.explain` and `minibroker explain` with real clients: why their requests were answered as they were.

Blocks, waits and the forms of the command are in tests/minibroker/test_explain.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minibroker import Broker
from minibroker.explain import FetchedPartition, ProducedPartition
from tests.integration.kafka_python import KafkaConsumer, KafkaProducer
from tests.minibroker.commands import minibroker, running
from tests.minibroker.records_by_hand import Records

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
POLL_MS = 10_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(control=True, settings=SETTINGS) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    broker.reset()
    broker.create_topic("orders", partitions=1)
    return "orders"


@pytest.fixture
def consumer(broker: Broker, topic: str) -> Iterator[Any]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap_servers,
        client_id="billing-1",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=5000,
    )
    yield consumer
    consumer.close()


def test_an_explained_fetch_names_the_producer_that_woke_it(broker: Broker, topic: str, consumer: Any) -> None:
    with broker.explain(topic=topic) as explained:
        while not broker._control.call("inside.pull", lease_ms=100)["parked"]:
            consumer.poll(100)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="orders-api")
        producer.send(topic, b"x" * 20_000, partition=0).get(60)
        producer.close()
        assert consumer.poll(POLL_MS)

    fetch = next(each for each in explained if each.api == "Fetch" and each.partitions and each.partitions[0].bytes)
    produce = next(each for each in explained if each.api == "Produce")
    assert (fetch.outcome, fetch.client_id, fetch.error) == ("woken", "billing-1", "")
    wait = fetch.wait
    assert wait is not None
    assert (wait.case, wait.partition, wait.ended_by, wait.max_wait_ms) == ("D", "orders-0", "request", 5000)
    assert wait.cause is not None
    assert (wait.cause.api, wait.cause.client_id, wait.cause.connection) == (
        "Produce",
        "orders-api",
        produce.connection,
    )
    [read], [appended] = fetch.partitions, produce.partitions
    assert isinstance(read, FetchedPartition)
    assert isinstance(appended, ProducedPartition)
    assert (read.asked_offset, read.high_watermark, read.segment, read.position) == (0, 1, 0, 0)
    assert (appended.base_offset, appended.records, appended.bytes) == (0, 1, read.bytes)
    assert "Case D: there are enough bytes" in str(fetch)
    assert f"of #{produce.connection} orders-api appended 1 record to orders-0" in repr(fetch)
    assert fetch.json["sent"]["how"] == "sendfile"
    assert 0 < wait.waited_ms < fetch.took_ms


def test_an_explained_share_fetch_says_who_holds_which_records(broker: Broker, topic: str) -> None:
    broker.produce(topic, [b"x"] * 9)
    with (
        broker.explain(api=("ShareFetch", "ShareAcknowledge")) as explained,
        Records(broker.bootstrap_servers).share("billing", topic, (0, 0, 1), (2, 2, 2), (4, 4, 3)),
    ):
        fetch, acknowledgement = explained.wait(2)

    assert re.search(r"orders-0: 0 to 8 are acquired by m1 for [\d,]+ ms, and [\d,]+ ms more; delivery 1", str(fetch))
    assert [each[2:7] for each in acknowledgement.json["group"]["records"]] == [
        [1, 1, "acquired", 1, "m1"],
        [2, 2, "available", 1, ""],
        [3, 3, "acquired", 1, "m1"],
        [4, 4, "archived", 1, ""],
        [5, 8, "acquired", 1, "m1"],
    ]
    assert "orders-0: 2 is available; delivery 1" in str(acknowledgement)
    assert "and more records in flight" in str(acknowledgement)


def test_the_command_explains_while_requests_go_by(broker: Broker, topic: str) -> None:
    with running(
        "explain", "--control", broker._control_path, "--api", "produce", "--topic", topic, "-n", 1
    ) as command:
        assert command.stderr is not None
        assert command.stdout is not None
        assert "explaining requests from now on" in command.stderr.readline()
        broker.produce(topic, [b"one", b"two"])
        printed = command.stdout.read()
        assert command.wait(60) == 0

    assert "orders-0 takes 2 records, " in printed
    assert "its high watermark went from 0 to 2" in printed


def test_on_a_secured_broker_logins_and_fetches_are_explained(tmp_path: Path) -> None:
    with Broker(control=True, security="SASL_SSL", users=["alice"], settings=SETTINGS) as broker:
        broker.produce("orders", [b"x" * 20_000])
        java = broker.client_settings("java", user="alice")
        wrong = tmp_path / "wrong.properties"
        wrong.write_text(
            "".join(f"{key}={value}\n" for key, value in java.items()).replace('password="', 'password="no')
        )
        with broker.explain(api=("SaslHandshake", "SaslAuthenticate", "Fetch")) as explained:
            consumer = KafkaConsumer(
                "orders", **broker.client_settings("kafka-python", user="alice"), auto_offset_reset="earliest"
            )
            assert consumer.poll(POLL_MS)
            consumer.close()
            refused = minibroker("topics", "list", "-b", broker.bootstrap_servers, "--command-config", wrong)

    assert refused.status == 1
    logins = [each for each in explained if each.api.startswith("Sasl")]
    assert {each.api for each in logins} == {"SaslHandshake", "SaslAuthenticate"}
    assert "User:alice" in {each.json["principal"] for each in logins if not each.error}
    failed = next(each for each in logins if each.error)
    assert failed.error == "SASL_AUTHENTICATION_FAILED"
    assert "connection.failed.authentication.delay.ms is over" in str(failed)
    fetch = next(each for each in explained if each.api == "Fetch" and each.partitions and each.partitions[0].bytes)
    assert fetch.json["sent"]["how"] == "encrypted"
    assert "TLS encrypts every byte" in str(fetch)
