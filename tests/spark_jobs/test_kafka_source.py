"""Spark's own Kafka source and sink against the broker: where it starts, what it reads, what was lost.

test_stream_test.py has more of a stream: its topics change, records are deleted, the broker dies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from minibroker import Cluster
from minibroker.process import Broker
from tests.storage.recorded_logs import unpack_recorded_logs

if TYPE_CHECKING:
    from tests.spark_jobs.conftest import Kafka

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BY_CONSUMER = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
LOSS = re.compile("some data may have been (missed|lost)", re.IGNORECASE)


class Source(NamedTuple):
    """Spark's Kafka source, by batch and by stream."""

    spark: SparkSession
    bootstrap: str
    folder: Path

    def batch(self, **options: str) -> DataFrame:
        return self.spark.read.format("kafka").options(**self._all(options)).load()

    def stream(self, **options: str) -> DataFrame:
        return self.spark.readStream.format("kafka").options(**self._all(options)).load()

    def _all(self, options: dict[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap, **options}

    def sink(self, topic: str) -> dict[str, str]:
        return self._all({"topic": topic})

    def into_files(self, records: DataFrame) -> DataStreamWriter:
        writer = records.selectExpr("CAST(value AS STRING) AS value").writeStream.format("parquet")
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))

    def read_to_end(self, records: DataFrame) -> StreamingQuery:
        """Append what there is now to the test's Parquet files, going on from the test's checkpoint."""
        started = self.into_files(records).trigger(availableNow=True).start(str(self.folder / "read"))
        assert started.awaitTermination(60)
        return started

    def was_read(self) -> list[str]:
        return sorted(row.value for row in self.spark.read.parquet(str(self.folder / "read")).collect())


@pytest.fixture
def source(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> Source:
    return Source(spark, kafka.bootstrap, tmp_path)


def values(records: DataFrame) -> list[str]:
    return sorted(row.value for row in records.selectExpr("CAST(value AS STRING) AS value").collect())


def offsets(records: DataFrame) -> list[int]:
    return sorted(row.offset for row in records.select("offset").collect())


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"{number:04}" for number in range(first, first + count)]


@pytest.fixture(scope="module")
def hundred(kafka: Kafka) -> str:
    """A topic with a hundred records, a second apart from 1,000,000 ms on."""
    topic = kafka.create_topic()
    kafka.produce(topic, numbered(100))
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 17}}', "endingOffsets": '{"TOPIC": {"0": 42}}'}, numbered(25, 17)),
        ({"startingOffsets": '{"TOPIC": {"0": -2}}', "endingOffsets": '{"TOPIC": {"0": -1}}'}, numbered(100)),
        ({"startingTimestamp": "1030500", "endingTimestamp": "1060000"}, numbered(29, 31)),
        ({"startingTimestamp": "9000000", "startingOffsetsByTimestampStrategy": "latest"}, []),
        ({"startingTimestamp": "1090000", "endingTimestamp": "9000000"}, numbered(10, 90)),
    ],
    ids=[
        "offsets inside a record batch",
        "earliest and latest as numbers",
        "times",
        "from a time after the last record",
        "to a time after the last record",
    ],
)
def test_a_batch_starts_and_ends_at_its_offsets(
    source: Source, hundred: str, options: dict[str, str], expected: list[str]
) -> None:
    asked = {name: value.replace("TOPIC", hundred) for name, value in options.items()}

    assert values(source.batch(subscribe=hundred, **asked)) == expected


def test_a_stream_starts_at_a_time(source: Source, hundred: str) -> None:
    source.read_to_end(source.stream(subscribe=hundred, startingTimestamp="1090000"))

    assert numbered(10, 90) == source.was_read()


def test_a_pattern_reads_the_topics_it_matches(source: Source, kafka: Kafka) -> None:
    first = kafka.create_topic()
    for topic in (first, f"{first}-also", f"not-{first}"):
        if topic != first:
            kafka.create_topic(name=topic)
        kafka.produce(topic, [topic])

    assert sorted([first, f"{first}-also"]) == values(source.batch(subscribePattern=f"^{first}.*"))


@pytest.mark.ability("records", "Spark")
def test_a_batch_reads_every_record_of_every_partition_or_of_those_assigned(source: Source, kafka: Kafka) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbered(50), partition=0)
    kafka.produce(topic, numbered(50, 50), partition=1)

    rows = source.batch(subscribe=topic).orderBy("partition", "offset").collect()
    assigned = source.batch(assign=json.dumps({topic: [1]}))

    assert numbered(100) == [row.value.decode() for row in rows]
    assert [*range(50), *range(50)] == [row.offset for row in rows]
    assert {topic} == {row.topic for row in rows}
    assert [1_000_000 + 1000 * row.offset for row in rows] == [round(row.timestamp.timestamp() * 1000) for row in rows]
    assert numbered(50, 50) == values(assigned)


@pytest.mark.ability("records", "Spark")
def test_null_keys_and_values_empty_ones_and_headers_of_one_name_are_read_as_they_were(
    source: Source, kafka: Kafka
) -> None:
    topic = kafka.create_topic()
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, str | bytes | None]] | None]] = [
        (None, None, None),
        (b"key", None, [("a", b"1"), ("a", b"2"), ("b", None)]),
        (None, b"value", None),
        (b"", b"", [("", b"")]),
    ]
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for key, value, headers in sent:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(30) == 0

    rows = source.batch(subscribe=topic, includeHeaders="true").orderBy("offset").collect()

    assert sent == [
        (row.key, row.value, row.headers and [(header.key, header.value) for header in row.headers]) for row in rows
    ]


def test_a_stream_goes_on_from_its_checkpoint(source: Source, kafka: Kafka) -> None:
    topic = kafka.create_topic()
    records = source.stream(subscribe=topic, startingOffsets="earliest")
    kafka.produce(topic, numbered(20))
    source.read_to_end(records)
    kafka.produce(topic, numbered(20, 20))

    source.read_to_end(records)

    assert numbered(40) == source.was_read()


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_a_topic_made_anew_fails_the_query_or_is_read_on_if_one_may(
    source: Source, kafka: Kafka, fail_on_data_loss: str
) -> None:
    topic = kafka.create_topic()
    records = source.stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss=fail_on_data_loss)
    kafka.produce(topic, numbered(10))
    source.read_to_end(records)
    kafka.make_anew(topic)
    kafka.produce(topic, numbered(3, 10))

    if fail_on_data_loss == "true":
        with pytest.raises(StreamingQueryException, match="offset was changed from 10 to 3"):
            source.read_to_end(records)
    else:
        source.read_to_end(records)
        kafka.produce(topic, numbered(3, 13))
        source.read_to_end(records)
        # As against Apache Kafka: what the new topic had when its offsets were seen to go back is passed over.
        assert numbered(10) + numbered(3, 13) == source.was_read()


@pytest.mark.parametrize("fail_on_data_loss", ["true", "false"])
def test_records_deleted_while_they_are_read_fail_the_query_or_are_passed_over_if_one_may(
    source: Source, kafka: Kafka, fail_on_data_loss: str
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, numbered(30))
    options = {"startingOffsets": "earliest", "failOnDataLoss": fail_on_data_loss}
    read: list[str] = []

    def read_after_retention(records: DataFrame, _: int) -> None:
        kafka.delete_records(topic, partition=0, before=25)
        read.extend(values(records))

    query = source.stream(subscribe=topic, **options).writeStream.foreachBatch(read_after_retention)
    started = query.trigger(availableNow=True).start()
    if fail_on_data_loss == "true":
        with pytest.raises(StreamingQueryException, match=LOSS):
            started.awaitTermination(60)
    else:
        assert started.awaitTermination(60)
        assert read == numbered(5, 25)


def test_a_committed_read_leaves_out_aborted_records(source: Source, tmp_path: Path) -> None:
    """In logs that Apache Kafka 2.0.1 wrote: offsets 2 to 4 are an aborted transaction's, 7 and 11 end one."""
    with Broker(data_dir=unpack_recorded_logs(tmp_path / "data"), settings={"log.retention.ms": -1}) as broker:
        there = source._replace(bootstrap=broker.bootstrap_servers)

        committed = offsets(there.batch(subscribe="fi-g1", **{"kafka.isolation.level": "read_committed"}))
        everything = offsets(there.batch(subscribe="fi-g1"))

    assert committed == [0, 1, 5, 6, 8, 9, 10]
    assert everything == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]


@pytest.mark.sample(of=lambda isolation: isolation == "read_committed")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_stream_of_transactions_ends_its_batches_at_any_offset(source: Source, kafka: Kafka, isolation: str) -> None:
    topic = kafka.create_topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)

    def transact(*offsets: int, end: Callable[[], object] | None) -> None:
        producer.begin_transaction()
        for offset in offsets:
            producer.produce(topic, f"{offset:04}")
        assert producer.flush(30) == 0
        if end is not None:
            end()

    # Each value is the offset; a marker comes behind each transaction.
    transact(*range(5), end=producer.commit_transaction)
    transact(*range(6, 11), end=producer.abort_transaction)
    transact(12, 13, end=producer.commit_transaction)
    transact(15, 16, end=None)
    batches: list[list[int]] = []

    def note(records: DataFrame, _: int) -> None:
        batches.append(offsets(records))
        assert [f"{offset:04}" for offset in batches[-1]] == values(records)

    def read() -> None:
        options = {"kafka.isolation.level": isolation, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
        query = source.stream(subscribe=topic, **options).writeStream.foreachBatch(note)
        query = query.option("checkpointLocation", str(source.folder / "checkpoint")).trigger(availableNow=True)
        assert query.start().awaitTermination(60)

    read()
    producer.commit_transaction()
    read()

    if isolation == "read_committed":
        assert batches == [[0, 1, 2], [3, 4], [], [], [12, 13], [15, 16]]
    else:
        assert batches == [[0, 1, 2], [3, 4], [6, 7, 8], [9, 10], [12, 13], [15, 16], []]


@pytest.mark.ability("groups", "Spark")
def test_a_source_that_asks_by_a_consumer_joins_a_group_of_its_prefix(
    source: Source, kafka: Kafka, spark: SparkSession
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, numbered(5))
    kafka.produce(topic, numbered(5, 5), partition=1)
    spark.conf.set(BY_CONSUMER, "true")
    try:
        source.read_to_end(source.stream(subscribe=topic, startingOffsets="earliest", groupIdPrefix=f"of-{topic}"))
    finally:
        spark.conf.unset(BY_CONSUMER)

    assert source.was_read() == numbered(10)
    groups = [each.group_id for each in kafka.admin.list_consumer_groups().result(30).valid]
    assert [each for each in groups if each.startswith(f"of-{topic}-")]


def test_a_topic_that_is_not_there_is_named_by_source_and_sink(source: Source, spark: SparkSession) -> None:
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        there = source._replace(bootstrap=broker.bootstrap_servers)
        with pytest.raises(Exception, match="Topic not-there not present in metadata"):
            waiting = {"kafka.max.block.ms": "300"}
            spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("kafka").options(
                **there.sink("not-there"), **waiting
            ).save()
        with pytest.raises(Exception, match="UnknownTopicOrPartition"):
            there.batch(subscribe="not-there", **{"fetchOffset.numRetries": "1"}).count()


@pytest.mark.ability("records", "Spark")
def test_spark_writes_keys_values_headers_and_partitions_and_reads_them(
    source: Source, kafka: Kafka, spark: SparkSession
) -> None:
    topic = kafka.create_topic(partitions=2)
    rows = spark.sql(
        "SELECT CAST(id AS STRING) AS key, concat('value ', id) AS value, CAST(id % 2 AS INT) AS partition,"
        " array(struct('colour' AS key, binary('red') AS value)) AS headers FROM range(10)"
    )

    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": kafka.bootstrap}).option("topic", topic).save()

    seen = consume(kafka, topic, partitions=2, count=10)
    assert [(str(n), f"value {n}", n % 2, [("colour", b"red")]) for n in range(10)] == seen
    read = source.batch(subscribe=topic, includeHeaders="true").collect()
    assert [[("colour", bytearray(b"red"))]] * 10 == [
        [(header.key, header.value) for header in row.headers] for row in read
    ]


@pytest.mark.ability("fail-over", "Spark")
@pytest.mark.nightly
def test_streams_into_files_and_into_a_topic_are_right_though_two_leaders_die(source: Source, tmp_path: Path) -> None:
    with Cluster(brokers=3) as cluster:
        for topic in ("in", "out"):
            cluster.create_topic(topic, partitions=2)
        there = source._replace(bootstrap=cluster.bootstrap_servers)
        records = there.stream(subscribe="in", startingOffsets="earliest", maxOffsetsPerTrigger="50")
        into_topic = records.writeStream.format("kafka").option("topic", "out")
        into_topic.option("kafka.bootstrap.servers", there.bootstrap).option(
            "checkpointLocation", str(tmp_path / "out")
        )
        queries = [there.into_files(records).start(str(tmp_path / "read")), into_topic.start()]
        for partition in range(2):
            begin, end = 300 * partition, 300 * (partition + 1)
            cluster.produce("in", numbered(300, begin))
            cluster.wait_for(partial(have_read, queries, begin + 1), timeout=60)
            leader = cluster.leader_of("in", partition)
            cluster.kill(leader)
            cluster.wait_for(partial(have_read, queries, end), timeout=60)
            cluster.start(leader)
            cluster.until_isr("in", partition, cluster.broker_ids)
        for query in queries:
            query.processAllAvailable()  # the last batch is committed
            query.stop()
        assert numbered(600) == there.was_read()
        assert numbered(600) == sorted({*values(there.batch(subscribe="out"))})  # this sink may write a record twice


def have_read(queries: list[StreamingQuery], count: int) -> bool:
    """Whether each has read so many records of its topic, as the offsets at the end of its last batch add up."""
    progress = [query.lastProgress for query in queries]
    return all(each and sum(json.loads(each["sources"][0]["endOffset"])["in"].values()) >= count for each in progress)


def consume(kafka: Kafka, topic: str, *, partitions: int, count: int) -> list[tuple[object, ...]]:
    """Read with a client that is not Spark's: key, value, partition and headers, by key."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "not used", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages = consumer.consume(count, timeout=20)
    consumer.close()
    return sorted(
        ((message.key() or b"").decode(), (message.value() or b"").decode(), message.partition(), message.headers())
        for message in messages
    )
