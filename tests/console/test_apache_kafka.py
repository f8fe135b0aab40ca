"""The console of Apache Kafka 2.0.1: the same pages, and what its protocol does not have says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from tests.console.asking import ask, change, get
from tests.console.conftest import console_of

pytestmark = [pytest.mark.slow, pytest.mark.integration]


def test_a_console_of_apache_kafka(tmp_path: Path) -> None:
    try:
        jars = kafka_jars()
    except KafkaUnavailable as unavailable:
        pytest.skip(str(unavailable))
    with (
        ApacheKafka(jars, tmp_path, heap="256m", settings={"group.initial.rebalance.delay.ms": 0}) as kafka,
        console_of(kafka.bootstrap, "--allow-changes") as console,
    ):
        change(console, "POST", "/api/topics", name="orders", partitions=2, settings={"retention.ms": "3600000"})
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "gzip"})
        for number in range(20):
            producer.produce("orders", str(number), key="k", partition=0, headers=[("h", b"1"), ("h", b"2")])
        producer.flush(20)
        consumer = Consumer(
            {"bootstrap.servers": kafka.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        while consumer.poll(1) is None:
            pass
        consumer.commit(asynchronous=False)

        cluster = get(console, "/api/cluster")
        topic = get(console, "/api/topics?filter=orders&figures=1")["rows"][0]
        partition = get(console, "/api/topics/orders")["rows"][0]
        page = get(console, "/api/topics/orders/messages?n=2")
        message = get(console, "/api/topics/orders/messages/0/19")
        group = get(console, "/api/groups/billing")
        sent = change(console, "POST", "/api/topics/orders/records", key="k", value="20", partition=1)
        settings = {row["name"]: row["value"] for row in get(console, "/api/topics/orders/settings")["rows"]}
        transactions = ask(console, "GET", "/api/transactions")
        clients = get(console, "/api/clients")
        metrics = ask(console, "GET", "/metrics").body.decode()
        consumer.close()

    assert (cluster["version"], cluster["control"], len(cluster["brokers"])) == ("2.0", False, 1)
    assert (topic["messages"], topic["bytes"] > 0) == (20, True)
    assert (partition["start"], partition["stable"], partition["end"]) == (0, 20, 20)
    assert [row["value"]["text"] for row in page["rows"]] == ["19", "18"]
    assert (message["batch"]["codec"], [each["name"] for each in message["headers"]]) == ("GZIP", ["h", "h"])
    assert (group["state"], len(group["members"]), group["members"][0]["partitions"]) == (
        "Stable", 1, ["orders-0", "orders-1"],
    )  # fmt: skip
    assert 0 <= group["lag"] < 20
    assert sent["rows"][0]["partition"] == 1
    assert settings["retention.ms"] == "3600000"
    assert 'kafka_topic_partition_current_offset{partition="1",topic="orders"} 1.0' in metrics
    assert 'kafka_consumergroup_current_offset{consumergroup="billing"' in metrics
    assert (transactions.status, "Kafka 3.0" in transactions.error) == (501, True)
    assert (clients["connections"], [each["group"] for each in clients["members"]]) == (None, ["billing"])
