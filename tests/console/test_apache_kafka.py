"""The console of Apache Kafka: of 2.0.1 what its protocol does not have says so, of 4.4.0 each page has its groups."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from tests.console.asking import ask, change, get
from tests.console.conftest import NewTab, console_of
from tests.integration.any_kafka import any_kafka

pytestmark = [pytest.mark.slow, pytest.mark.integration]


SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
RULE = {"principal": "ann", "operation": "Read", "resource_type": "Topic", "name": "or", "permission": "allow"}


def set_on_broker(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["name"]: row["value"] for row in rows if row["source"] == "DYNAMIC_BROKER_CONFIG"}


@pytest.mark.nightly  # by day test_any_kafka.py has the pages of 4.4.0
def test_a_console_of_apache_kafka(tmp_path: Path) -> None:
    try:
        jars = kafka_jars()
    except KafkaUnavailable as unavailable:
        pytest.skip(str(unavailable))
    with (
        ApacheKafka(jars, tmp_path, heap="256m", settings=SETTINGS) as kafka,
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
        lines = get(console, "/api/topics/orders/messages/lines?n=1")["lines"]
        plan = change(console, "POST", "/api/topics/orders/delete-records", to="-5", partition=0)["rows"]
        change(console, "POST", "/api/topics/orders/delete-records", before={"0": plan[0]["earliest"]})
        begins = get(console, "/api/topics/orders")["rows"][0]["start"]
        (broker,) = get(console, "/api/brokers")["rows"]
        at_broker = f"/api/brokers/{broker['id']}/settings"
        change(console, "POST", at_broker, set={"log.cleaner.threads": "2"})
        deadline = time.monotonic() + 20
        while set_on_broker(get(console, at_broker)["rows"]) != {"log.cleaner.threads": "2"}:  # through ZooKeeper
            assert time.monotonic() < deadline
        change(console, "POST", "/api/acls", **RULE, pattern="prefixed")
        rules = get(console, "/api/acls")["rows"]
        change(console, "DELETE", "/api/acls", **rules[0])
        rules_left = get(console, "/api/acls")
        too_new = {path: ask(console, "GET", path) for path in ("/api/transactions", "/api/users", "/api/quotas")}
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
    assert json.loads(lines[0]) | {"timestamp": 0} == {
        "topic": "orders", "partition": 1, "offset": 0, "timestamp": 0, "key": "k", "value": "20", "headers": []
    }  # fmt: skip
    assert ([(row["earliest_before"], row["earliest"]) for row in plan], begins) == ([(0, 15)], 15)
    assert [row["text"] for row in rules] == ["User:ann may Read topic or..."]
    assert (rules_left["authorizer"], rules_left["rows"]) == (True, [])
    assert {path: (answer.status, answer.error[-19:]) for path, answer in too_new.items()} == {
        "/api/transactions": (501, " Kafka 3.0 or later"),
        "/api/users": (501, " Kafka 2.7 or later"),
        "/api/quotas": (501, " Kafka 2.6 or later"),
    }
    assert (clients["connections"], [each["group"] for each in clients["members"]]) == (None, ["billing"])


# Of Apache Kafka 4.4.0: what each page shows.
PAGES = {
    "/": "orders",
    "/topics": "orders",
    "/topics/orders/partitions": "2 partitions, 1 replica",
    "/topics/orders/messages": "8 of 8 messages",
    "/topics/orders/groups": "left-newer",
    "/topics/orders/settings": "retention.ms",
    "/groups": "consumer protocol",
    "/groups/classic": "reader",
    "/groups/newer": "consumer protocol, uniform, epoch",
    "/groups/sharing": "share group, simple, epoch",
    "/groups/streaming": "streams group, epoch",
    "/clients": "member",
    "/transactions": "paying",
    "/brokers": "127.0.0.1",
    "/brokers/0": "log.cleaner.threads",
    "/acls": "No access rules",
    "/users": "No users yet",
    "/quotas": "No quotas",
}


@pytest.mark.nightly
def test_every_page_of_apache_kafka_4(new_tab: NewTab, tmp_path: Path) -> None:
    try:
        with any_kafka("4.4.0", tmp_path) as kafka, console_of(kafka.bootstrap, "--allow-changes") as console:
            tab = new_tab(of=console)
            for path, says in PAGES.items():
                tab.go(path).locator("main").get_by_text(says).first.wait_for()
            tab.go("/groups/streaming").get_by_text("0_0, 0_1, orders 0, 1").wait_for()
    except KafkaUnavailable as unavailable:
        pytest.skip(str(unavailable))
