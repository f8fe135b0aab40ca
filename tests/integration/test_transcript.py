"""A transcript of a real client: recorded by a broker's process, printed by the command, read from Python."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from minibroker import Broker
from tests.integration.librdkafka import consumer_of
from tests.integration.wire import connection_to, read
from tests.minibroker.commands import Finished, minibroker

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
RECORDS = 20
PATIENCE_SECONDS = 60.0


@pytest.fixture
def transcript(tmp_path: Path) -> Path:
    return tmp_path / "transcript"


@pytest.fixture
def broker(transcript: Path) -> Iterator[Broker]:
    with Broker(transcript=transcript, settings=SETTINGS) as started:
        started.create_topic("flights")
        yield started


def printed(path: Path, *arguments: object) -> str:
    done: Finished = minibroker("transcript", path, *arguments)
    assert done.status == 0, done.err
    return done.out


def write_and_read_in_a_group(bootstrap: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "writer", "compression.type": "gzip", "linger.ms": 10_000}
    )
    for number in range(RECORDS):
        producer.produce("flights", b"flight %d" % number, b"UA", headers=[("source", b"tower")])
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = consumer_of(bootstrap, "reports", client_id="reader", auto_offset_reset="earliest")
    consumer.subscribe(["flights"])
    count = 0
    while count < RECORDS:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None and message.error() is None
        count += 1
    consumer.commit(asynchronous=False)
    consumer.close()


def test_a_session_is_printed_and_read_from_python(broker: Broker, transcript: Path) -> None:
    write_and_read_in_a_group(broker.bootstrap_servers)

    produced = printed(transcript, "--api", "produce", "--topic", "flights")
    assert '  "writer"  correlation ' in produced
    assert "codec gzip" in produced and "CRC ok" in produced
    assert 'key "UA"  value "flight 0"  headers source="tower"' in produced
    assert "error_code: 0 NONE  base_offset: 0" in produced

    joined = printed(transcript, "--api", "joingroup", "--client-id", "reader")
    assert 'group_id: "reports"' in joined and "|........flights" in joined
    assert "error_code: 79 MEMBER_ID_REQUIRED" in joined

    fetched = printed(transcript, "--api", "fetch", "--client-id", "reader")
    assert "fetch_offset: 0" in fetched and f"high_watermark: {RECORDS}" in fetched
    assert 'value "flight 0"' in fetched and f"... {RECORDS - 3} more" in fetched

    committed = printed(transcript, "--api", "offset-commit")
    assert f"committed_offset: {RECORDS}" in committed
    assert "cannot be decoded" not in printed(transcript, "--brief")

    exchanges = [each for each in broker.transcript.exchanges() if each.client_id == "reader"]
    asked = Counter(each.api for each in exchanges)
    assert asked["OffsetCommit"] >= 1 and asked["Fetch"] >= 1 and asked["LeaveGroup"] == 1
    assert asked["Produce"] == 0
    for each in exchanges:
        if each.outcome == "answered" and each.api != "ApiVersions":
            assert each.request is not None and each.response is not None
    commits = [
        each.request.topics[0].partitions[0].committed_offset for each in exchanges if each.api == "OffsetCommit"
    ]
    assert commits[-1] == RECORDS


def test_following_shows_new_exchanges_until_ctrl_c(broker: Broker, transcript: Path) -> None:
    command = [sys.executable, "-m", "minibroker", "transcript", str(transcript), "-f", "--api", "fetch", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        with connection_to(broker.bootstrap_servers) as connection:
            read(connection, "flights")
            assert json.loads(following.stdout.readline())["api"] == "Fetch"
            read(connection, "flights")
            assert json.loads(following.stdout.readline())["correlation_id"] == 2
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_SECONDS) == 130
