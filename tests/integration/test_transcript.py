"""A transcript of real clients: recorded by a broker's process, printed by the command, read from Python."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from minibroker import Broker
from minibroker.protocol.api import ApiKey, encode_request
from minibroker.protocol.compression import Codec
from minibroker.protocol.messages.fetch import FetchRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.transcript.exchanges import read_transcript
from tests.integration.kafka_python import KafkaConsumer, KafkaProducer
from tests.integration.wire import RawConnection
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


def raw(broker: Broker) -> RawConnection:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    return RawConnection(host, int(port))


def fetch_at_end(offset: int, wait_ms: int) -> object:
    partition = FetchRequest.row("topics.partitions")(partition=0, fetch_offset=offset, max_bytes=1 << 20)
    return FetchRequest(replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, topics=[("flights", [partition])])


def of_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id="writer", compression_type="gzip", linger_ms=50)
    for number in range(RECORDS):
        producer.send("flights", b"flight %d" % number, key=b"UA", headers=[("source", b"tower")])
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(
        "flights",
        bootstrap_servers=bootstrap,
        client_id="reader",
        group_id="reports",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=PATIENCE_SECONDS * 1000,
    )
    for _ in range(RECORDS):
        next(consumer)
    consumer.commit()
    consumer.close()


def of_confluent_kafka(bootstrap: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": "writer", "compression.type": "gzip", "linger.ms": 50}
    )
    for number in range(RECORDS):
        producer.produce("flights", b"flight %d" % number, b"UA", headers=[("source", b"tower")])
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "reader",
            "group.id": "reports",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["flights"])
    read = 0
    while read < RECORDS:
        message = consumer.poll(PATIENCE_SECONDS)
        assert message is not None and message.error() is None
        read += 1
    consumer.commit(asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("session", [of_kafka_python, of_confluent_kafka])
def test_a_session_is_printed_as_a_person_looks_for_it(
    broker: Broker, transcript: Path, session: Callable[[str], None]
) -> None:
    session(broker.bootstrap_servers)

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


@pytest.mark.parametrize("session", [of_kafka_python, of_confluent_kafka])
def test_a_test_can_assert_what_a_client_has_done(broker: Broker, session: Callable[[str], None]) -> None:
    session(broker.bootstrap_servers)

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


def test_a_long_poll_is_told_with_the_time_it_took(broker: Broker) -> None:
    with raw(broker) as connection:
        connection.call(ApiKey.FETCH, 4, fetch_at_end(0, 300))

    (fetch,) = [each for each in broker.transcript.exchanges() if each.api == "Fetch"]

    assert fetch.latency_ms is not None and fetch.latency_ms >= 290
    assert fetch.response.topics[0].partitions[0].high_watermark == 0


def test_a_request_that_nobody_answers_is_told_why(broker: Broker, transcript: Path) -> None:
    with raw(broker) as connection:
        assert connection.exchange(encode_request(ApiKey.FETCH, 4, 1, "old", fetch_at_end(0, 0))) is not None
        frame = bytearray(encode_request(ApiKey.FETCH, 4, 2, "old", fetch_at_end(0, 0)))
        frame[6:8] = b"\0\x63"  # the version
        assert connection.exchange(bytes(frame)) is None
    wait_until(lambda: "closed: Fetch has no version 99" in printed(transcript, "--brief"))

    assert "Fetch v99" in printed(transcript, "--errors", "--client-id", "old")
    assert "refused, the connection was closed: Fetch has no version 99" in printed(transcript, "--client-id", "old")


def test_a_client_that_leaves_while_it_polls_was_never_answered(broker: Broker, transcript: Path) -> None:
    with raw(broker) as connection:
        connection.send(encode_request(ApiKey.FETCH, 4, 1, "impatient", fetch_at_end(0, 60_000)))
        wait_until(lambda: "impatient" in printed(transcript, "--brief"))
        assert "not answered yet" in printed(transcript, "--client-id", "impatient")
    broker.stop()

    (fetch,) = [each for each in read_transcript(transcript) if each.client_id == "impatient"]
    assert fetch.outcome in ("closed", "answered")  # it is answered when the broker stops, if that is not too late


def test_a_refused_commit_is_found_by_its_error(broker: Broker, transcript: Path) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "client.id": "stranger"})
    consumer.list_topics(timeout=PATIENCE_SECONDS)
    consumer.close()
    with raw(broker) as connection:
        partition = FetchRequest.row("topics.partitions")(partition=7, fetch_offset=0, max_bytes=1)
        connection.call(ApiKey.FETCH, 4, FetchRequest(replica_id=-1, topics=[("flights", [partition])]))

    found = printed(transcript, "--errors", "--api", "fetch")

    assert "error_code: 3 UNKNOWN_TOPIC_OR_PARTITION" in found and found.count("  request\n") == 1


def test_of_many_records_only_so_many_bytes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "transcript"
    records = [Record(index, 1, None, os.urandom(1000)) for index in range(500)]
    batch = bytes(build_batch(records, codec=Codec.NONE))
    with Broker(transcript=path) as broker:
        broker.create_topic("flights")
        with raw(broker) as connection:
            answer = connection.call(ApiKey.PRODUCE, 7, ProduceRequest(acks=1, topics=[("flights", [(0, batch)])]))
            assert answer.topics[0].partitions[0].error_code == 0
            answer = connection.call(ApiKey.FETCH, 4, fetch_at_end(0, 0))
            assert bytes(answer.topics[0].partitions[0].records)[61:] == batch[61:]

        assert path.stat().st_size < 64 * 1024 * 2 + 10_000
        for api in ("produce", "fetch"):
            text = printed(path, "--api", api)
            assert "batch 0-499  500 records" in text and "not recorded to its end" in text
            assert "error_code: 0 NONE" in text


def test_a_broker_that_is_killed_leaves_all_of_it_and_the_next_one_writes_on(broker: Broker, transcript: Path) -> None:
    with raw(broker) as connection:
        connection.call(ApiKey.FETCH, 4, fetch_at_end(0, 0))
        broker.kill()
    before = [each.api for each in read_transcript(transcript)]
    assert before[-1] == "Fetch"

    broker.start()
    broker.create_topic("more")

    exchanges = list(read_transcript(transcript))
    assert [each.api for each in exchanges][: len(before)] == before
    assert exchanges[-1].connection > exchanges[len(before) - 1].connection


def test_following_shows_what_comes_until_ctrl_c(broker: Broker, transcript: Path) -> None:
    command = [sys.executable, "-m", "minibroker", "transcript", str(transcript), "-f", "--api", "fetch", "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        with raw(broker) as connection:
            connection.call(ApiKey.FETCH, 4, fetch_at_end(0, 0))
            assert json.loads(following.stdout.readline())["api"] == "Fetch"
            connection.call(ApiKey.FETCH, 4, fetch_at_end(0, 0))
            assert json.loads(following.stdout.readline())["correlationId"] == 2
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_SECONDS) == 130


def test_what_a_fault_has_torn_is_shown_as_far_as_it_went(tmp_path: Path) -> None:
    path = tmp_path / "transcript"
    with Broker(transcript=path, control=True) as broker:
        broker.create_topic("flights")
        with broker.faults.torn_frame(api="fetch"), raw(broker) as connection:
            assert connection.exchange(encode_request(ApiKey.FETCH, 4, 1, "me", fetch_at_end(0, 0))) is None
    text = printed(path, "--errors")

    assert "Fetch v4" in text and "    a torn response: " in text
    assert "#2 closed: a fault" in printed(path, "--brief")


def test_a_full_disk_ends_the_transcript_and_nothing_else(small_disk: Path, tmp_path: Path) -> None:
    path = small_disk / "transcript"
    with Broker(transcript=path, data_dir=tmp_path / "data") as broker:
        broker.create_topic("flights")
        with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(4096))
        with raw(broker) as connection:
            for _ in range(200):
                connection.call(ApiKey.FETCH, 4, fetch_at_end(0, 0))

        log = broker.log_file.read_text()
        assert log.count("the transcript ") == 1
        assert f"the transcript {path} ends here: " in log
        assert "CreateTopics" in {each.api for each in broker.transcript.exchanges()}


@pytest.mark.parametrize("name", ["no/such/folder", "."])
def test_a_transcript_that_cannot_be_written_is_one_line(tmp_path: Path, name: str) -> None:
    refused = minibroker(
        *("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data", "--transcript", tmp_path / name)
    )

    assert refused.status == 1
    assert refused.err.splitlines()[-1].startswith("minibroker: cannot write --transcript ")


def test_no_file_of_another_kind_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "diary"
    path.write_text("dear diary")

    refused = minibroker("serve", "--listen", "127.0.0.1:0", "--data-dir", tmp_path / "data", "--transcript", path)

    assert refused.status == 1 and "not a transcript" in refused.err
    assert path.read_text() == "dear diary"


def test_whoever_only_knocks_is_told_too(broker: Broker, transcript: Path) -> None:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    with socket.create_connection((host, int(port))) as knocking:
        address = "{}:{}".format(*knocking.getsockname())

    wait_until(lambda: f"opened by {address}\n" in printed(transcript, "--brief"))


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)
