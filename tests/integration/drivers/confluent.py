"""Driver of confluent-kafka (librdkafka)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic  # type: ignore[attr-defined]

from tests.integration.drivers.library import Acks, LibraryDriver, Records, Settings, Start
from tests.integration.drivers.librdkafka import translate
from tests.integration.drivers.line_protocol import (
    Deadline,
    JsonRecord,
    consumed,
    error_code_of,
    headers_to_bytes,
    serve_driver,
    to_bytes,
)

ANY_PARTITION = -1
NOW = 0
STATISTICS_INTERVAL_MS = 50
REFUSALS_S = 0.1  # what `raise_refusals` raises comes out at the end of a flush, not before
CONFIG_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
}


def raise_refusals(error: Any) -> None:
    """Raise a refused login out of the call that reports it; the client tries again, and other errors pass."""
    if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
        raise KafkaException(error)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers()  # typed as more than it ever is: a list of names and bytes, or None
    return headers or []


class ConfluentDriver(LibraryDriver):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._statistics: dict[str, Any] = {}

    def produce(self, topic: str, partition: int | None, records: Records, codec: str, settings: Settings) -> Acks:
        producer = self._producer(codec, settings)
        acked: list[Any] = [None] * len(records)
        errors: list[Any] = []
        for position, record in enumerate(records):

            def on_delivery(error: Any, message: Message, position: int = position) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    acked[position] = [message.partition(), message.offset(), message.timestamp()[1]]

            producer.produce(
                topic,
                value=to_bytes(record["value"]),
                key=to_bytes(record["key"]),
                headers=list(headers_to_bytes(record)),
                partition=ANY_PARTITION if partition is None else partition,
                timestamp=record["timestamp_ms"] or NOW,
                on_delivery=on_delivery,
            )
        deadline = Deadline(30)
        while producer.flush(REFUSALS_S):
            deadline.seconds_left("acknowledgements")
        if errors:
            raise KafkaException(errors[0])
        return acked

    def _new_producer(self, codec: str, settings: Settings) -> Producer:
        ours = {"bootstrap.servers": self._bootstrap, "compression.type": codec, "message.timeout.ms": 25_000}
        return Producer(ours | {"error_cb": raise_refusals} | translate(settings))

    def consume_in_group(self, topic: str, group: str, count: int, seconds: float, settings: Settings) -> Records:
        """Read on from where the group is, or from the beginning, and commit what was read."""
        consumer = self._new_consumer(settings, {"group.id": group, "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe([topic])
            records = self._poll(consumer, count, seconds)
            consumer.commit(asynchronous=False)
            return records
        finally:
            consumer.close()

    def follow(self, topic: str, partition: int, settings: Settings) -> int:
        """Wait until librdkafka's statistics show that it fetches from the end.

        They show the state as it is and offsets up to a second old: `next_offset` is 0 at first.
        """
        _, end = self.watermarks(topic, partition)
        if self._followed is not None:
            self._followed.close()  # its statistics, which nothing takes, would pile up
        self._statistics = {}
        config = {"statistics.interval.ms": STATISTICS_INTERVAL_MS, "stats_cb": self._on_statistics}
        consumer = self._followed = self._new_consumer(settings, config)
        self._assign(consumer, topic, [partition], "end")
        deadline = Deadline(20)
        while True:
            deadline.seconds_left("the end offset")
            if consumer.poll(0.02) is not None:
                raise AssertionError("a record before anything was produced")
            state = self._statistics.get("topics", {}).get(topic, {}).get("partitions", {}).get(str(partition), {})
            if state.get("fetch_state") == "active" and state["next_offset"] == end:
                return int(state["next_offset"])

    def offsets_for_times(self, topic: str, partition: int, timestamps_ms: list[int]) -> list[Any]:
        found: list[Any] = []
        for timestamp_ms in timestamps_ms:
            (answer,) = self._consumer({}).offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], 20)
            found.append(None if answer.offset == OFFSET_END else [answer.offset, None])
        return found

    def watermarks(self, topic: str, partition: int) -> list[int]:
        low, high = self._consumer({}).get_watermark_offsets(TopicPartition(topic, partition), 20)
        return [low, high]

    def _assign(self, consumer: Consumer, topic: str, partitions: list[int], start: Start) -> None:
        offset = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}.get(str(start), start)
        consumer.assign([TopicPartition(topic, partition, int(offset)) for partition in partitions])

    def _unassign(self, consumer: Consumer) -> None:
        consumer.unassign()

    def _new_consumer(self, settings: Settings, config: Settings | None = None) -> Consumer:
        ours = {
            "bootstrap.servers": self._bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "error_cb": raise_refusals,
        }
        return Consumer(ours | translate(settings) | (config or {}))

    def _on_statistics(self, text: str) -> None:
        self._statistics = json.loads(text)

    def _polled(self, consumer: Consumer, most: int, seconds: float) -> Iterator[JsonRecord]:
        for message in consumer.consume(most, min(seconds, 0.05)):
            if message.error() is not None:
                raise KafkaException(message.error())
            yield consumed(
                partition=message.partition() or 0,
                offset=message.offset() or 0,
                timestamp_ms=message.timestamp()[1],
                key=message.key(),
                value=message.value(),
                headers=headers_of(message),
            )

    def create_topics(self, topics: dict[str, dict[str, Any]], validate_only: bool) -> dict[str, int]:
        wanted = [
            NewTopic(
                name,
                num_partitions=options["num_partitions"],
                replication_factor=options["replication_factor"],
                config=options.get("configs", {}),
            )
            for name, options in topics.items()
        ]
        return self._codes(self._admin().create_topics(wanted, validate_only=validate_only))

    def delete_topics(self, topics: list[str]) -> dict[str, int]:
        return self._codes(self._admin().delete_topics(topics))

    def list_topics(self) -> list[str]:
        return sorted(self._admin().list_topics(timeout=20).topics)

    def describe_topic(self, topic: str) -> dict[str, Any]:
        partitions = self._admin().list_topics(topic, timeout=20).topics[topic].partitions
        rows = [
            {"partition": row.id, "leader": row.leader, "replicas": row.replicas}
            for _, row in sorted(partitions.items())
        ]
        return {"partitions": rows}

    def describe_configs(self, kind: str, name: str, keys: list[str] | None) -> dict[str, Any]:
        resource = ConfigResource(kind, name)
        described = self._admin().describe_configs([resource])[resource].result(20)
        return {
            key: {
                "value": row.value,
                "source": CONFIG_SOURCES[row.source],
                "read_only": bool(row.is_read_only),
                "sensitive": bool(row.is_sensitive),
            }
            for key, row in described.items()
            if keys is None or key in keys
        }

    def create_partitions(self, topic: str, count: int, validate_only: bool) -> int:
        wanted = [NewPartitions(topic, count)]
        return self._codes(self._admin().create_partitions(wanted, validate_only=validate_only))[topic]

    def alter_configs(self, kind: str, name: str, configs: dict[str, str]) -> None:
        """Everything that shall be set."""
        resource = ConfigResource(kind, name, set_config=configs)
        self._admin().alter_configs([resource])[resource].result(20)

    def change_configs(self, kind: str, name: str, changes: dict[str, str | None]) -> None:
        """Single settings; null unsets one."""
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry  # type: ignore[attr-defined]  # since 2.3

        operations = {True: AlterConfigOpType.DELETE, False: AlterConfigOpType.SET}
        entries = [
            ConfigEntry(key, value, incremental_operation=operations[value is None]) for key, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        self._admin().incremental_alter_configs([resource])[resource].result(20)

    def cluster(self) -> dict[str, Any]:
        metadata = self._admin().list_topics(timeout=20)
        nodes = [[broker.id, broker.host, broker.port] for broker in metadata.brokers.values()]
        return {"nodes": nodes, "controller": metadata.controller_id}

    def _codes(self, futures: dict[str, Any]) -> dict[str, int]:
        codes = {}
        for name, future in futures.items():
            error = future.exception(30)
            codes[name] = 0 if error is None else error_code_of(error) or -1
        return codes

    def _admin(self) -> AdminClient:
        admin: AdminClient = self._keep("admin", lambda: AdminClient({"bootstrap.servers": self._bootstrap}))
        return admin


if __name__ == "__main__":
    serve_driver(ConfluentDriver(sys.argv[1]))
