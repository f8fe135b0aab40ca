"""Records at a glance: `Broker.produce`, `records`, `topics`, `lag`, `wait_for`, beside real clients."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.partitioner.default import murmur2 as kafka_murmur2

from minibroker import Broker, BrokerError, Record, WaitError
from minibroker.client.batching import BATCH_MAX_BYTES, batches_of, murmur2, partition_for
from minibroker.client.reading import decoded
from minibroker.client.transactions import Transactions
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.record import Record as StoredRecord
from minibroker.protocol.record_batch import build_batch
from minibroker.records import append_records, as_record
from minibroker.topic_offsets import lag_of
from minibroker.topic_reader import TopicReader, read_records
from minibroker.waiting import wait_for
from tests.minibroker.answering import Answers, metadata, row
from tests.minibroker.answering import topic as topic_of

NOON = datetime(2026, 1, 2, 12, 0, 0, 5000, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0, "num.partitions": 3}) as started:
        yield started


@pytest.fixture
def topic(broker: Broker, minibroker_unique: Any) -> str:
    name: str = minibroker_unique()
    return name


def values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def commit(broker: Broker, group: str, **offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(name, 0, offset) for name, offset in offsets.items()], asynchronous=False)
    consumer.close()


# -- without a broker


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 7, 8, 100])
def test_keys_go_where_kafkas_java_client_sends_them(length: int) -> None:
    key = bytes(range(156, 156 + length)) if length < 100 else b"a key of a hundred bytes".ljust(100)

    assert murmur2(key) == kafka_murmur2(key) & 0xFFFFFFFF
    assert partition_for(key, 0, 7) == (kafka_murmur2(key) & 0x7FFFFFFF) % 7


def test_records_without_a_key_go_to_each_partition_in_turn() -> None:
    assert [partition_for(None, index, 3) for index in range(5)] == [0, 1, 2, 0, 1]


def test_a_record_is_given_as_a_value_a_pair_or_whole() -> None:
    whole = Record(b"v", headers=(("n", None),))

    assert [as_record(each) for each in ("é", None, ("k", b"v"), whole)] == [
        Record("é".encode()), Record(None), Record(b"v", b"k"), whole,
    ]  # fmt: skip
    with pytest.raises(TypeError, match="not 3"):
        as_record(3)  # type: ignore[arg-type]


def test_a_batch_is_as_large_as_a_broker_accepts() -> None:
    records = [Record(bytes(size)) for size in (10, BATCH_MAX_BYTES - 200, 10, BATCH_MAX_BYTES * 2, 10)]

    assert list(batches_of(records, list(range(5)))) == [[0, 1], [2], [3], [4]]


def test_a_read_of_committed_records_leaves_out_the_aborted_ones_of_their_producer_only() -> None:
    def batch(offset: int, producer: int) -> bytearray:
        stored = [StoredRecord(offset, 0, None, b"%d" % offset)]
        return build_batch(
            stored, base_offset=offset, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True
        )

    def marker(offset: int, producer: int, kind: ControlType) -> bytearray:
        return build_end_txn_marker(
            kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0, base_offset=offset
        )

    log = [
        batch(0, 1), batch(1, 2), marker(2, 1, ControlType.ABORT), batch(3, 1), marker(4, 2, ControlType.COMMIT),
        marker(5, 1, ControlType.COMMIT), batch(6, 1), marker(7, 1, ControlType.ABORT),
    ]  # fmt: skip
    aborted = [SimpleNamespace(producer_id=1, first_offset=offset) for offset in (0, 6)]

    def offsets(aborted_transactions: list[SimpleNamespace] | None) -> list[int]:
        row = SimpleNamespace(aborted_transactions=aborted_transactions)
        batches = decoded(row, b"".join(log), aborted_transactions is not None)
        return [record.offset for each in batches for record in each.records]

    assert offsets(aborted) == [1, 3]
    assert offsets(None) == [0, 1, 3, 6]


def answers(committed: dict[int, int]) -> Any:
    """One topic of two partitions, from 5 to 25 each; a group has committed these offsets."""

    def offsets(body: Any) -> Any:
        time = body["topics"][0].partitions[0].timestamp
        return row(
            topics=[row(topic="t", partitions=[row(partition=n, offset=25 if time == -1 else 5) for n in (0, 1)])]
        )

    committed_rows = [row(partition=number, committed_offset=offset) for number, offset in committed.items()]
    return Answers(
        metadata=metadata(topic_of("t", 0, 0)),
        find_coordinator=row(coordinators=[row(key="g", node_id=0)]),
        list_offsets=offsets,
        offset_fetch=row(groups=[], topics=[row(name="t", partitions=committed_rows)]),
        list_groups=row(groups=[row(group_id="other")]),
    )


def test_a_partition_without_a_commit_counts_from_its_start() -> None:
    assert lag_of(answers({0: 25}), "g", None) == 20
    assert lag_of(answers({0: 24, 1: 20}), "g", None) == 6
    assert lag_of(answers({}), "g", "t") == 40
    assert lag_of(answers({0: -1}), "g", "t") == 40


def test_the_lag_of_a_missing_group_or_topic_names_those_that_there_are() -> None:
    with pytest.raises(BrokerError, match=r"group g has committed nothing; the broker's groups: other$"):
        lag_of(answers({}), "g", None)
    with pytest.raises(BrokerError, match=r"no topic u; it has t$"):
        lag_of(answers({0: 1}), "g", "u")


def test_a_missing_topic_is_an_error_at_once_or_after_the_wait() -> None:
    def read(topic: str, n: int | None, partition: int | None = None) -> None:
        read_records(answers({}), topic, n=n, timeout=0.0, partition=partition, read_committed=False)

    with pytest.raises(BrokerError, match=r"no topic u; it has t \(40 records\)$"):
        read("u", None)
    with pytest.raises(WaitError, match=r"after 0 s the broker has no topic u; it has t"):
        read("u", 1)
    with pytest.raises(BrokerError, match="topic t has no partition 4, only 0, 1"):
        read("t", None, 4)


def test_a_wait_ends_with_the_first_true_result_and_takes_failures_for_not_yet() -> None:
    results: list[object] = [0, AssertionError("not yet"), BrokerError("nothing committed"), "done"]

    def condition() -> object:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    assert wait_for(condition, timeout=60, check=lambda: None, scene=str) == "done"


def test_a_wait_in_vain_shows_the_last_result() -> None:
    def all_billed() -> list[int]:
        return []

    def fails() -> None:
        raise AssertionError("lag 3")

    def broken() -> None:
        raise ValueError("not the wait's")

    def gone() -> None:
        raise BrokerError("killed")

    with pytest.raises(WaitError, match=r"^after 0 s all_billed still returned \[\]\ntopics: a$"):
        wait_for(all_billed, timeout=0, check=lambda: None, scene=lambda: "topics: a")
    with pytest.raises(WaitError, match="the condition still raised AssertionError: lag 3") as raised:
        wait_for(lambda: fails(), timeout=0, check=lambda: None, scene=str)
    assert str(raised.value.__cause__) == "lag 3"
    with pytest.raises(ValueError, match="not the wait's"):
        wait_for(broken, timeout=60, check=lambda: None, scene=str)
    with pytest.raises(BrokerError, match="killed"):
        wait_for(all_billed, timeout=60, check=gone, scene=str)


# -- with one


def with_a_broker(test: Any) -> Any:
    return pytest.mark.integration(pytest.mark.slow(test))


@with_a_broker
def test_produced_records_are_read_with_all_their_fields(broker: Broker, topic: str) -> None:
    whole = Record(b"v", b"k", (("a", b"1"), ("b", None)), NOON, partition=2)

    produced = broker.produce(topic, ["one", ("a key", "two"), None, whole])

    assert [record.offset for record in produced if record.partition == 2][-1:] == [produced[3].offset]
    assert (produced[3].topic, produced[3].partition, produced[3].timestamp) == (topic, 2, NOON)
    assert broker.records(topic) == sorted(produced, key=lambda each: (each.partition, each.offset))
    assert broker.records(topic, partition=2)[-1] == produced[3]
    assert broker.topics()[topic] == 3
    assert values(broker.produce(topic, broker.records(topic, partition=2), partition=0))[-1] == b"v"


@with_a_broker
def test_large_records_go_in_batches_that_a_broker_takes(broker: Broker, topic: str) -> None:
    produced = broker.produce(topic, [bytes(300_000)] * 9, partition=1)

    assert [record.offset for record in produced] == list(range(9))
    assert len(broker.records(topic, n=9)) == 9


@with_a_broker
def test_a_topic_larger_than_an_answer_is_read_whole(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[list[int]] = []
    fetch = TopicReader._fetch

    def counted(reader: TopicReader, partitions: list[int], seconds: float) -> list[int]:
        answers.append(fetch(reader, partitions, seconds))
        return answers[-1]

    monkeypatch.setattr(TopicReader, "_fetch", counted)
    monkeypatch.setattr("minibroker.topic_reader.ANSWER_MAX_BYTES", 1000)
    for _ in range(12):
        broker.produce(topic, [bytes(400)] * 3)

    assert [record.offset for record in broker.records(topic)] == [*range(12)] * 3
    assert len(answers) > 12 * 3 * 400 // 1000


@with_a_broker
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_a_client_are_read_and_it_reads_ours(broker: Broker, topic: str, codec: str) -> None:
    broker.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 20})
    for number in range(20):
        producer.produce(topic, b"value %d" % number, b"key", headers=[("n", b"%d" % number)], timestamp=number + 1)
    assert producer.flush(30) == 0
    broker.produce(topic, [("ours", "last")])

    records = broker.records(topic, n=21)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 19)])
    read = consumer.consume(2, 30)
    consumer.close()

    assert records[7].headers == (("n", b"7"),)
    assert (records[7].timestamp, records[7].key) == (datetime(1970, 1, 1, 0, 0, 0, 8000, tzinfo=UTC), b"key")
    assert [(each.key(), each.value()) for each in read] == [(each.key, each.value) for each in records[19:]]


@with_a_broker
def test_a_read_waits_for_as_many_as_it_was_asked_for(broker: Broker, topic: str) -> None:
    late = threading.Timer(0.2, lambda: broker.produce(topic, [("k", "one"), ("k", "two")]))
    late.start()
    try:
        records = broker.records(topic, n=2, timeout=30)
    finally:
        late.join()

    assert values(records) == [b"one", b"two"]
    broker.produce(topic, [("k", "one too many")])
    assert values(broker.records(topic, n=2)) == [b"one", b"two", b"one too many"]


@with_a_broker
def test_a_read_in_vain_shows_the_records_that_came(broker: Broker, topic: str) -> None:
    broker.produce(topic, [Record(b"only one", b"k", partition=1)])

    with pytest.raises(WaitError) as raised:
        broker.records(topic, n=3, timeout=0.05)

    assert str(raised.value) == (
        f"topic {topic} has 1 record after 0.05 s, not 3\n  partition 1, offset 0: key b'k', value b'only one'"
    )
    with pytest.raises(TypeError, match=r"must be a list, such as \['one'\]"):
        broker.produce(topic, "one")


@with_a_broker
def test_open_and_aborted_transactions_are_read_only_if_wanted(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for value, end in ((b"aborted", "abort"), (b"committed", "commit"), (b"open", None)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        if end is not None:
            getattr(producer, f"{end}_transaction")()

    assert values(broker.records(topic, n=3)) == [b"aborted", b"committed", b"open"]
    assert values(broker.records(topic, n=1, read_committed=True)) == [b"committed"]
    producer.abort_transaction()


@with_a_broker
def test_a_groups_lag_follows_its_commits(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, partitions=1)
    broker.produce(topic, ["one", "two", "three"])

    assert broker.lag(topic, topic) == 3
    commit(broker, topic, **{topic: 1})
    assert broker.lag(topic) == 2
    commit(broker, topic, **{topic: 3})
    assert broker.wait_for(lambda: broker.lag(topic) == 0) is True
    with pytest.raises(WaitError, match=rf"(?s)the condition still returned 0\ntopics: .*{topic} \(3 rec.*\(lag 0\)"):
        broker.wait_for(lambda: broker.lag(topic), timeout=0.05)


@with_a_broker
@pytest.mark.parametrize("release", ["0.10", "0.11", "2.0"])
def test_it_all_works_on_a_broker_that_acts_as_an_old_release(release: str) -> None:
    with Broker(act_as=release, settings={"num.partitions": 2}) as broker:
        broker.create_topic("made")
        broker.produce("made", [("k", "one"), ("k", "two")])
        headed = Record(b"three", headers=(("n", b"1"),), partition=0)

        assert values(broker.records("made", n=2, read_committed=True)) == [b"one", b"two"]
        assert broker.topics() == {"made": 2}
        assert broker.lag("g", "made") == 2
        if release == "0.10":
            with pytest.raises(BrokerError, match=r"headers since Kafka 0\.11"):
                broker.produce("made", [headed])
        else:
            broker.produce("made", [headed])
            assert [record.headers for record in broker.records("made", n=3) if record.headers] == [headed.headers]


@with_a_broker
@pytest.mark.parametrize("release", ["2.0", "3.9", "4.4"])  # which add partitions by a request, as brokers, by Produce
def test_a_producer_of_transactions_commits_and_aborts_one_after_the_other(release: str) -> None:
    with Broker(act_as=release) as broker, broker._administered() as client:
        broker.create_topic("t", partitions=2)
        producer = Transactions(client, "id")
        for name, is_commit in (("a", True), ("b", False), ("c", True)):
            append_records(client, "t", [f"{name}0", f"{name}1"], transactions=producer)
            append_records(client, "t", [f"{name}2"], partition=0, transactions=producer)
            producer.end(client, is_commit=is_commit)
        producer.end(client, is_commit=True)  # there is none

        assert len(broker.records("t")) == 9
        assert values(broker.records("t", read_committed=True)) == [b"a0", b"a2", b"c0", b"c2", b"a1", b"c1"]
        next_one = Transactions(client, "id")
        assert (next_one.producer_id, next_one.epoch) > (producer.producer_id, producer.epoch)


@with_a_broker
def test_a_partition_that_is_not_there_is_refused_at_once(broker: Broker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)

    with pytest.raises(BrokerError, match=f"topic {topic} has no partition 2"):
        broker.produce(topic, ["a"], partition=2)


@with_a_broker
def test_a_wait_ends_when_the_broker_dies() -> None:
    with Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)

        with pytest.raises(BrokerError, match="was killed by SIGKILL"):
            broker.wait_for(lambda: False, timeout=60)
