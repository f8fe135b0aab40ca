"""The console's answers, without a browser: lists, messages, groups, changes, and refusals with the next step."""

from __future__ import annotations

import base64
import itertools
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from minibroker import Broker
from minibroker.any_cluster.record_lines import Template, records_of
from minibroker.console.answers import advice_of_a_page
from tests.console.asking import ask, change, get
from tests.console.conftest import RunningConsole, console_of
from tests.edge_records import EDGES, damage, named, stored

pytestmark = [pytest.mark.integration]

NUMBERS = itertools.count()
BOMB = '<img src=x onerror="alert(1)">'


@pytest.fixture
def topic(shown_broker: Broker) -> str:
    """A new topic with three partitions."""
    name = f"answers-{next(NUMBERS)}"
    shown_broker.create_topic(name, partitions=3)
    return name


def messages(console: RunningConsole, topic: str, **query: object) -> Any:
    text = "&".join(f"{name}={quote(str(value))}" for name, value in query.items())
    return get(console, f"/api/topics/{topic}/messages?{text}")


def values(page: Any) -> list[str]:
    return [row["value"]["text"] for row in page["rows"]]


def write(broker: Broker, topic: str, count: int, *, partition: int | None = 0) -> None:
    """Values 0, 1, ..., each with its number as time in ms."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for number in range(count):
        where = -1 if partition is None else partition  # -1: by the key
        producer.produce(topic, str(number), f"k{number % 7}", where, timestamp=1_000_000 + number)
    assert producer.flush(10) == 0


def as_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def commit(broker: Broker, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, at, offset) for at, offset in offsets.items()], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (
            "topic t exists; choose another name, or see it with `minibroker topics describe t`; "
            "`minibroker topics create --if-not-exists` accepts it",
            "topic t exists; choose another name, or see it on the page Topics",
        ),
        (
            "no broker at here:1; start one with `minibroker serve`, or name another with --bootstrap-server HOST:PORT",
            "no broker at here:1",
        ),
        (
            "g: NON_EMPTY_GROUP; stop its consumers first (`minibroker groups describe g` shows them), then try again",
            "g: NON_EMPTY_GROUP; stop its consumers first, then try again",
        ),
        ("x; use `.` and `-`, or -5", "x; use `.` and `-`, or -5"),
        ("x; leave --control out", "x"),
    ],
)
def test_a_page_has_its_own_advice_in_place_of_commands(error: str, shown: str) -> None:
    assert advice_of_a_page(error) == shown


@pytest.mark.parametrize(("act_as", "release"), [(None, "2.0"), ("1.1", "1.1")])
def test_a_broker_acts_as_its_settings_name_and_counts_topics_of_clients(act_as: str | None, release: str) -> None:
    with Broker(act_as=act_as) as broker:
        broker.create_topic("orders", partitions=3)
        commit(broker, "billing", "orders", {0: 0})
        with console_of(broker.bootstrap_servers) as console:
            cluster = get(console, "/api/cluster")

    assert cluster["version"] == release
    assert (cluster["topics"], cluster["partitions"]) == (1, 3)
    assert (cluster["internal_topics"], cluster["internal_partitions"]) == (1, 50)


def test_a_setting_of_a_topic_has_its_meaning(console: RunningConsole, topic: str) -> None:
    rows = {row["name"]: row["about"] for row in get(console, f"/api/topics/{topic}/settings")["rows"]}

    assert rows["retention.ms"] == "Age at which a segment is deleted; -1 for never."
    assert all(rows.values())


def test_a_page_of_several_partitions_is_in_the_order_of_time_and_repeats_nothing(
    console: RunningConsole, shown_broker: Broker, topic: str
) -> None:
    write(shown_broker, topic, 40, partition=None)
    everything = [str(number) for number in range(40)]

    for at, expected in (("newest", everything[::-1]), ("beginning", everything)):
        found, cursor = [], ""
        while True:
            page = messages(console, topic, n=9, at=at, cursor=cursor)
            found += values(page)
            cursor = page["cursor"]
            if not cursor:
                break
        assert (found, page["state"]) == (expected, "end")


@pytest.mark.parametrize(("at", "step"), [("beginning", 1), ("newest", -1)])
def test_messages_found_come_as_lines_that_produce_takes(
    console: RunningConsole, shown_broker: Broker, topic: str, at: str, step: int
) -> None:
    producer = Producer({"bootstrap.servers": shown_broker.bootstrap_servers, "linger.ms": 0})
    sent: list[Any] = [
        (b"k", b'{"n": 1}', [("a", b"1"), ("a", b"\xfe")]),
        (None, b"\x00\xff" * 50_000, []),
        (b"", "naïve\r\n\u2028".encode(), [("", b"")]),
    ]
    for number, (key, value, headers) in enumerate(sent):
        producer.produce(topic, value, key, 1, timestamp=1_000 + number, headers=headers)
        producer.flush(10)
    page = messages(console, topic, at=at, n=2)
    write(shown_broker, topic, 3, partition=1)

    path = f"/api/topics/{topic}/messages/lines?at={at}&n=2&cursor="
    first = get(console, path + page["begin"])
    rest = get(console, path + first["cursor"])

    lines = (first["lines"] + rest["lines"])[::step][:3]
    found = list(records_of([line.encode() for line in lines], Template(is_json=True)))
    assert [(each.key, each.value, each.headers) for each in found] == sent
    assert [(each.partition, each.timestamp_ms) for each in found] == [(1, 1_000), (1, 1_001), (1, 1_002)]
    assert (len(first["lines"]), first["cursor"]) == (2, page["cursor"])


def test_all_that_is_known_of_a_message(console: RunningConsole, shown_broker: Broker, topic: str) -> None:
    settings = {"bootstrap.servers": shown_broker.bootstrap_servers, "compression.type": "lz4", "linger.ms": 100}
    producer = Producer(settings | {"enable.idempotence": True})
    value = bytes(range(256)) * 400
    producer.produce(topic, "first", partition=1)
    producer.produce(topic, value, key=b"\xff", partition=1, headers=[("h", b"1"), ("h", b"\xfe"), ("n", None)])
    producer.flush(10)

    found = get(console, f"/api/topics/{topic}/messages/1/1")
    download = ask(console, "GET", f"/api/topics/{topic}/messages/1/1/value")

    assert [header["name"] for header in found["headers"]] == ["h", "h", "n"]
    assert base64.b64decode(found["headers"][1]["base64"]) == b"\xfe"
    assert found["headers"][2]["size"] is None
    assert (found["value"]["size"], len(base64.b64decode(found["value"]["base64"]))) == (len(value), 65_536)
    assert (found["batch"]["codec"], found["batch"]["base_offset"], found["batch"]["last_offset"]) == ("LZ4", 0, 1)
    assert (found["sequence"], found["batch"]["producer_id"] >= 0) == (1, True)
    assert download.body == value
    assert download.headers["content-type"] == "application/octet-stream"
    assert download.headers["content-disposition"].startswith("attachment")


def test_every_record_is_sent_as_it_is_and_again(console: RunningConsole, shown_broker: Broker) -> None:
    shown_broker.create_topic("edges", partitions=1, configs={"retention.ms": "-1"})
    path = "/api/topics/edges/records"
    for number, edge in enumerate(EDGES.values()):
        when = {"timestamp": edge.timestamp_ms, "partition": 0}
        parts = {"key": edge.key, "value": edge.value}
        texts = {
            name if data is None else f"{name}_base64": None if data is None else as_base64(data)
            for name, data in parts.items()
        }
        headers = [[name, None if data is None else {"base64": as_base64(data)}] for name, data in edge.headers]
        change(console, "POST", path, **texts, headers=headers, **when)
        change(console, "POST", path, like={"partition": 0, "offset": 3 * number}, **when)
        places = list(range(len(headers)))
        change(console, "POST", path, like={"partition": 0, "offset": 3 * number}, headers=places, **when)

    records = stored(shown_broker.bootstrap_servers, "edges")

    assert [named(records[first::3]) for first in range(3)] == [EDGES] * 3


def test_a_batch_that_cannot_be_read_hides_none_behind_it(
    console: RunningConsole, shown_broker: Broker, topic: str
) -> None:
    for values_of_batch in (["a", "b"], ["c", "d"], ["e", "f"]):
        shown_broker.produce(topic, values_of_batch, partition=0)
    damage(shown_broker.data_dir / f"{topic}-0" / f"{0:020}.log", 2, "its CRC is wrong")
    said = "offsets 2 to 3 of partition 0 cannot be read: the CRC of the batch is wrong"

    newest, first = messages(console, topic), messages(console, topic, at="beginning")
    alone = ask(console, "GET", f"/api/topics/{topic}/messages/0/3")

    assert (values(newest), newest["unreadable"], newest["state"]) == (list("feba"), [said], "end")
    assert (values(first), first["unreadable"], first["state"]) == (list("abef"), [said], "end")
    assert (alone.status, "the CRC of the batch is wrong" in alone.error) == (404, True)


def test_the_newest_come_as_a_stream(console: RunningConsole, shown_broker: Broker, topic: str) -> None:
    import http.client

    host, _, port = console.address.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    connection.request("GET", f"/api/stream/topics/{topic}?in=value&text=4")
    response = connection.getresponse()
    events = (json.loads(line[6:]) for line in response if line.startswith(b"data: "))
    first = next(events)
    write(shown_broker, topic, 200)

    shown, left_out, read = [], 0, 0
    while read < 200:
        event = next(events)
        shown += [row["value"]["text"] for row in event["rows"]]
        left_out, read = left_out + event["left_out"], read + event["read"]
    connection.close()

    expected = sum("4" in str(number) for number in range(200))
    assert (first["rows"], first["cursor"]) == ([], "0:0,1:0,2:0")
    assert len(shown) + left_out == expected
    assert all("4" in value for value in shown)


def test_a_body_has_a_limit(console: RunningConsole) -> None:
    assert ask(console, "POST", "/api/topics", b" " * (9 << 20), token=True).status == 413
    assert ask(console, "POST", "/api/topics", b"[" * 100_000, token=True).status == 400


def test_every_response_has_the_policy_and_none_lets_another_origin_in(console: RunningConsole) -> None:
    for path in ("/", "/topics/x", "/static/main.js", "/api/cluster", "/api/nothing", "/healthz"):
        headers = ask(console, "GET", path).headers

        assert "default-src 'none'" in headers["content-security-policy"]
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert not [name for name in headers if name.startswith("access-control")]


def test_sixteen_streams_are_served_and_the_next_is_refused(console: RunningConsole, topic: str) -> None:
    import http.client

    host, _, port = console.address.rpartition(":")
    open_ones = []
    for _ in range(16):
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        connection.request("GET", f"/api/stream/topics/{topic}")
        open_ones.append((connection, connection.getresponse()))

    refused = ask(console, "GET", f"/api/stream/topics/{topic}")
    for connection, response in open_ones:
        response.close()
        connection.close()

    assert [response.status for _, response in open_ones] == [200] * 16
    assert (refused.status, "close one" in refused.error) == (503, True)
    deadline = time.monotonic() + 10
    while ask(console, "GET", f"/api/stream/topics/no-such-{topic}").status != 404:  # there is room again
        assert time.monotonic() < deadline
