"""Apache Kafka 2.0.1 obeys the controller's channels, and writes the markers of the coordinator's.

It obeys whoever has the newest epoch: the test is controller 9, of the epoch 1000.
"""

from __future__ import annotations

import uuid
from functools import partial
from pathlib import Path
from typing import Any

import trio
from confluent_kafka import Producer

from benchmarks.apache_kafka import ApacheKafka
from minibroker.broker.cluster.controller import Image, Plan, create_topics, delete_topics, new_partition
from minibroker.broker.cluster.state import TopicState
from minibroker.broker.replica.decisions import Broker, Decision, Obeyed
from minibroker.broker.transaction.marker_channels import Marker, MarkerChannels
from minibroker.broker.wings.several.broker_channels import BrokerChannels
from minibroker.broker.wings.several.peer import Peer
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.integration.wire import RawConnection

KAFKA, CONTROLLER, EPOCH = 0, 9, 1000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PATIENCE_SECONDS = 30.0


class Controlling:
    """The channel to Kafka, and what it has answered."""

    def __init__(self, kafka: ApacheKafka) -> None:
        self._brokers = {KAFKA: Broker({"PLAINTEXT": (kafka.host, kafka.port)})}
        self._answered, self._answers = trio.open_memory_channel[Obeyed](100)
        self._channels = BrokerChannels(
            own_id=CONTROLLER,
            connect=partial(Peer, client_id=str(CONTROLLER)),
            listener="PLAINTEXT",
            on_answer=self._on_answer,
        )
        self.run = self._channels.run

    def _on_answer(self, broker_id: int, decision: Decision, obeyed: Obeyed) -> None:
        self._answered.send_nowait(obeyed)

    def image(self, topics: dict[str, TopicState], epoch: int = EPOCH) -> Image:
        return Image(CONTROLLER, epoch, self._brokers, topics)

    async def perform(self, plan: Plan) -> list[Obeyed]:
        decisions = plan.decisions[KAFKA]
        self._channels.set_brokers(self._brokers)
        self._channels.send(KAFKA, decisions)
        with trio.fail_after(PATIENCE_SECONDS):
            return [await self._answers.receive() for _ in decisions]


def leaders(kafka: ApacheKafka) -> dict[int, int]:
    """The leader of each partition of the topic, as Kafka shows it."""
    row = API_TABLE[ApiKey.METADATA].request.row("topics")
    with RawConnection(kafka.host, kafka.port) as connection:
        (topic,) = connection.call(ApiKey.METADATA, 5, topics=[row(name="t")], allow_auto_topic_creation=False).topics
    return {row.partition: row.leader_id for row in topic.partitions}


def produce(kafka: ApacheKafka) -> int:
    """Write a record; return its offset."""
    delivered: list[Any] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce("t", b"value", partition=0, on_delivery=lambda *delivery: delivered.append(delivery))
    assert producer.flush(PATIENCE_SECONDS) == 0
    ((error, message),) = delivered
    assert error is None
    return int(message.offset())


async def control(kafka: ApacheKafka) -> None:
    in_thread = trio.to_thread.run_sync
    obeyed = Obeyed(ErrorCode.NONE, {})
    async with trio.open_nursery() as nursery:
        controlling = Controlling(kafka)
        nursery.start_soon(controlling.run)
        empty = controlling.image({})
        topic = TopicState("t", {number: new_partition(empty, [KAFKA]) for number in range(2)}, {}, uuid.UUID(int=1))
        image = controlling.image({"t": topic})

        assert await controlling.perform(create_topics(empty, {"t": topic})) == [obeyed, obeyed]
        assert await in_thread(leaders, kafka) == {0: KAFKA, 1: KAFKA}
        assert await in_thread(produce, kafka) == 0

        repeated, _ = await controlling.perform(create_topics(empty, {"t": topic}))
        assert {each: error.code for each, error in repeated.failures.items()} == dict.fromkeys(
            (T0, T1), ErrorCode.STALE_CONTROLLER_EPOCH
        )
        stale = await controlling.perform(delete_topics(image._replace(controller_epoch=EPOCH - 1), ["t"]))
        assert [each.error for each in stale] == [ErrorCode.STALE_CONTROLLER_EPOCH] * 2

        markers = MarkerChannels(
            lambda _, client_id: Peer(kafka.host, kafka.port, client_id=client_id), client_id="marker"
        )
        markers.start(nursery)
        marker = Marker(7, 0, 0, True, {T0, T1, TopicPartition("unknown", 0)})
        assert await markers.send(KAFKA, marker).wait() == {
            T0: ErrorCode.NONE,
            T1: ErrorCode.NONE,
            TopicPartition("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await in_thread(produce, kafka) == 2  # behind the marker

        assert await controlling.perform(delete_topics(image, ["t"])) == [obeyed, obeyed]
        assert await in_thread(leaders, kafka) == {}
        nursery.cancel_scope.cancel()


def test_apache_kafka_obeys(jars: Path, tmp_path: Path) -> None:
    with ApacheKafka(jars, tmp_path / "kafka", heap="256m") as kafka:
        trio.run(control, kafka)
