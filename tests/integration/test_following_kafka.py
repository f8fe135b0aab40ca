"""This broker follows Apache Kafka 2.0.1: in sync, and with the same files to the byte.

The test is the controller of the follower, broker 2; Kafka knows it only as a replica, which it fetches as.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import trio
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Position
from confluent_kafka.admin import AdminClient

from benchmarks.apache_kafka import ApacheKafka
from minibroker.broker.replica.decisions import Broker, LeaderAndIsr, PartitionState, TopicMetadata, UpdateMetadata
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log
from tests.broker.conftest import InMemoryBroker
from tests.broker.following_brokers import until
from tests.integration.transactional_producers import ConfluentProducer
from tests.integration.wire import RawConnection

KAFKA, FOLLOWER = 0, 2
SEGMENT_BYTES = 40_000
WITHIN_A_BATCH = 2017
SETTINGS = {"log.segment.bytes": SEGMENT_BYTES, "log.retention.ms": -1, "min.insync.replicas": 2}
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
KINDS: list[dict[str, object]] = [{}, {"compression.type": "lz4", "linger.ms": 5}, {"enable.idempotence": True}]
PATIENCE_SECONDS = 60.0


def create_replicated_topic(kafka: ApacheKafka) -> None:
    assignment = [(each.partition, [KAFKA, FOLLOWER]) for each in PARTITIONS]
    topic = API_TABLE[ApiKey.CREATE_TOPICS].request.row("topics")(
        name="t", num_partitions=-1, replication_factor=-1, assignments=assignment
    )
    with RawConnection(kafka.host, kafka.port) as connection:
        (answer,) = connection.call(ApiKey.CREATE_TOPICS, 1, topics=[topic], timeout_ms=10_000).topics
    assert answer.error_code == 0, answer


def produce(kafka: ApacheKafka, kind: Mapping[str, object]) -> None:
    """Write with acks=all, which Kafka refuses until the follower is in sync."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "batch.num.messages": 100, **kind})
    errors: list[object] = []
    for number in range(2000):
        value = b"%d" % number * 10
        producer.produce("t", value, partition=number % 2, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_SECONDS) == 0
    assert set(errors) == {None}


def produce_transactions(kafka: ApacheKafka) -> None:
    producer = ConfluentProducer(kafka.bootstrap, "writer")
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        producer.write("t", b"in a transaction")
        producer.flush()
        end()


def delete_records(kafka: ApacheKafka) -> None:
    """Let Kafka's log begin within a batch."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (deleted,) = admin.delete_records([Position("t", 0, WITHIN_A_BATCH)]).values()
    assert deleted.result(PATIENCE_SECONDS).low_watermark == WITHIN_A_BATCH


def lead(follower: InMemoryBroker, kafka: ApacheKafka, epoch: int) -> None:
    """Have the broker follow Kafka, as Kafka's controller would."""
    state = PartitionState(KAFKA, epoch, (KAFKA,), (KAFKA, FOLLOWER))
    topic = TopicMetadata("t", uuid.UUID(int=0), {each.partition: state for each in PARTITIONS})
    brokers = {KAFKA: Broker({"PLAINTEXT": (kafka.host, kafka.port)})}
    follower.parts.own.obey(UpdateMetadata(KAFKA, 1, brokers, {"t": topic}))
    obeyed = follower.parts.own.obey(LeaderAndIsr(KAFKA, 1, dict.fromkeys(PARTITIONS, state)))
    assert not obeyed.failures, obeyed


def log_of(follower: InMemoryBroker, topic_partition: TopicPartition) -> Log:
    role = follower.parts.replica_manager.partitions.any(topic_partition)
    assert role is not None
    return role.log


def segments(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def are_equal(kafka: ApacheKafka, logs: Sequence[Log]) -> bool:
    return all(
        segments(kafka.data_dir / log.directory.name) == segments(log.directory)
        and log.high_watermark == log.log_end_offset
        for log in logs
    )


def ends_alike(kafka: ApacheKafka, log: Log) -> bool:
    """Whether a log has, to the byte, the end of Kafka's."""
    of_kafka, own = (b"".join(segments(each).values()) for each in (kafka.data_dir / log.directory.name, log.directory))
    return own != b"" and of_kafka.endswith(own) and log.log_end_offset == log.high_watermark


@contextmanager
def followed(directory: Path, kafka: ApacheKafka, nursery: trio.Nursery) -> Iterator[list[Log]]:
    follower = InMemoryBroker(directory, nursery, broker_id=FOLLOWER, log_segment_bytes=SEGMENT_BYTES)
    lead(follower, kafka, 0)
    yield [log_of(follower, each) for each in PARTITIONS]
    nursery.cancel_scope.cancel()
    follower.close()


def test_a_broker_follows_apache_kafka(jars: Path, tmp_path: Path) -> None:
    async def follow(kafka: ApacheKafka) -> None:
        async with trio.open_nursery() as nursery:
            with followed(tmp_path / "first", kafka, nursery) as logs:
                for kind in KINDS:
                    await trio.to_thread.run_sync(partial(produce, kafka, kind))
                await trio.to_thread.run_sync(produce_transactions, kafka)
                await until(partial(are_equal, kafka, logs))
                assert min(len(log.segments) for log in logs) > 2
                assert logs[0].producer_state.producers_and_remembered.keys() > logs[1].producer_state.producers.keys()

                await trio.to_thread.run_sync(delete_records, kafka)
                await until(lambda: logs[0].log_start_offset == WITHIN_A_BATCH)
        async with trio.open_nursery() as nursery:
            with followed(tmp_path / "second", kafka, nursery) as logs:
                await until(lambda: ends_alike(kafka, logs[0]))
                log = logs[0]
                assert log.segments.bases[0] < log.log_start_offset == WITHIN_A_BATCH

    with ApacheKafka(jars, tmp_path / "kafka", settings=SETTINGS, heap="512m") as kafka:
        create_replicated_topic(kafka)
        trio.run(follow, kafka)
