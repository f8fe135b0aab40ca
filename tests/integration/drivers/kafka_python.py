"""Driver of kafka-python: the same source runs 3.0 and 2.3, each in its own environment."""

from __future__ import annotations

import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.integration.drivers.line_protocol import (
    Deadline,
    JsonRecord,
    consumed,
    headers_to_bytes,
    serve,
    to_bytes,
)

FETCH_SETTINGS = ("fetch_min_bytes", "fetch_max_bytes", "fetch_max_wait_ms", "max_partition_fetch_bytes")
REQUEST_TIMEOUT_MS = 40_000


def typed(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings; JSON has no tuple for `api_version`."""
    if "api_version" not in settings:
        return settings
    return settings | {"api_version": tuple(map(int, settings["api_version"].split(".")))}


class KafkaPythonDriver:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[tuple[Any, ...], Any] = {}
        self._consumers: dict[tuple[Any, ...], Any] = {}
        self._admin_client: Any = None
        self._followed: Any = None

    # producing

    def produce(
        self,
        topic: str,
        partition: int | None,
        records: list[JsonRecord],
        codec: str,
        settings: dict[str, Any],
    ) -> list[Any]:
        producer = self._producer(codec, settings)
        futures = [
            producer.send(
                topic,
                partition=partition,
                key=to_bytes(record["key"]),
                value=to_bytes(record["value"]),
                headers=headers_to_bytes(record),
                timestamp_ms=record["timestamp_ms"],
            )
            for record in records
        ]
        producer.flush()
        acked = [future.get(timeout=30) for future in futures]
        return [[metadata.partition, metadata.offset, metadata.timestamp] for metadata in acked]

    def _producer(self, codec: str, settings: dict[str, Any]) -> Any:
        key = (codec, *sorted(settings.items()))
        if key not in self._producers:
            chosen = {
                "compression_type": None if codec == "none" else codec,
                "linger_ms": 5,
                "max_block_ms": 20_000,
                "request_timeout_ms": 20_000,
            } | typed(settings)
            self._producers[key] = KafkaProducer(bootstrap_servers=self._bootstrap, **chosen)
        return self._producers[key]

    # consuming

    def consume(
        self,
        topic: str,
        partitions: list[int],
        start: int | str,
        count: int,
        seconds: float,
        settings: dict[str, Any],
    ) -> list[JsonRecord]:
        consumer = self._assigned(topic, partitions, start, settings)
        records = self._poll(consumer, count, seconds)
        consumer.unsubscribe()
        return records

    def consume_in_group(
        self, topic: str, group: str, count: int, seconds: float, settings: dict[str, Any]
    ) -> list[JsonRecord]:
        """Read on from where the group is, or from the beginning, and commit what was read."""
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            **typed(settings),
        )
        try:
            records = self._poll(consumer, count, seconds)
            consumer.commit()
            return records
        finally:
            consumer.close()

    def follow(self, topic: str, partition: int, settings: dict[str, Any]) -> int:
        self._followed = self._assigned(topic, [partition], "end", settings)
        return int(self._followed.position(TopicPartition(topic, partition)))

    def next(self, count: int, seconds: float) -> list[JsonRecord]:
        return self._poll(self._followed, count, seconds)

    def offsets_for_times(self, topic: str, partition: int, timestamps_ms: list[int]) -> list[Any]:
        found = []
        for timestamp_ms in timestamps_ms:
            tp = TopicPartition(topic, partition)
            answer = self._consumer({}).offsets_for_times({tp: timestamp_ms})[tp]
            found.append(None if answer is None else [answer.offset, answer.timestamp])
        return found

    def watermarks(self, topic: str, partition: int) -> list[int]:
        tp = TopicPartition(topic, partition)
        consumer = self._consumer({})
        return [consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]]

    def _assigned(self, topic: str, partitions: list[int], start: int | str, settings: dict[str, Any]) -> Any:
        consumer = self._consumer(settings)
        assigned = [TopicPartition(topic, partition) for partition in partitions]
        consumer.unsubscribe()
        consumer.assign(assigned)
        if start == "beginning":
            consumer.seek_to_beginning(*assigned)
        elif start == "end":
            consumer.seek_to_end(*assigned)
        else:
            for tp in assigned:
                consumer.seek(tp, start)
        return consumer

    def _consumer(self, settings: dict[str, Any]) -> Any:
        key = tuple(sorted(settings.items()))
        if key not in self._consumers:
            self._consumers[key] = KafkaConsumer(
                bootstrap_servers=self._bootstrap,
                group_id=None,
                auto_offset_reset="none",
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                **typed(settings),
            )
        return self._consumers[key]

    def _poll(self, consumer: Any, count: int, seconds: float) -> list[JsonRecord]:
        deadline = Deadline(seconds)
        found: list[JsonRecord] = []
        while len(found) < count:
            left = deadline.seconds_left(f"{count} records, have {len(found)}")
            for batch in consumer.poll(timeout_ms=int(left * 1000), max_records=count - len(found)).values():
                found += [
                    consumed(
                        partition=record.partition,
                        offset=record.offset,
                        timestamp_ms=record.timestamp,
                        key=record.key,
                        value=record.value,
                        headers=record.headers,
                    )
                    for record in batch
                ]
        return found

    # administration (kafka-python 3.0)

    def create_topics(self, topics: dict[str, dict[str, Any]], validate_only: bool) -> dict[str, int]:
        answer = self._admin().create_topics(topics, validate_only=validate_only, raise_errors=False)
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}

    def delete_topics(self, topics: list[str]) -> dict[str, int]:
        answer = self._admin().delete_topics(topics, raise_errors=False)
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}

    def list_topics(self) -> list[str]:
        return sorted(self._admin().list_topics())

    def describe_topic(self, topic: str) -> dict[str, Any]:
        (description,) = self._admin().describe_topics([topic])
        partitions = [
            {"partition": row["partition_index"], "leader": row["leader_id"]} | {"replicas": row["replica_nodes"]}
            for row in description["partitions"]
        ]
        return {
            "code": description["error_code"],
            "partitions": sorted(partitions, key=lambda row: int(row["partition"])),
        }

    def describe_configs(self, kind: str, name: str, keys: list[str] | None) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, keys)
        described = self._admin().describe_configs([resource], include_synonyms=True, config_filter="all")
        return {
            key: {
                "value": row["value"],
                "source": row["config_source"],
                "read_only": row["read_only"],
                "sensitive": row["is_sensitive"],
                "synonyms": [[synonym["name"], synonym["value"]] for synonym in row["synonyms"]],
            }
            for key, row in described[kind][name].items()
        }

    def create_partitions(self, topic: str, count: int, validate_only: bool) -> int:
        answer = self._admin().create_partitions({topic: count}, validate_only=validate_only, raise_errors=False)
        return int(answer.results[0].error_code)

    def alter_configs(self, kind: str, name: str, configs: dict[str, str]) -> None:
        """Everything that shall be set."""
        self._alter(kind, name, configs, incremental=False)

    def change_configs(self, kind: str, name: str, changes: dict[str, str | None]) -> None:
        """Single settings; null unsets one."""
        operations = {key: ("DELETE", None) if value is None else ("SET", value) for key, value in changes.items()}
        self._alter(kind, name, operations, incremental=True)

    def _alter(self, kind: str, name: str, configs: dict[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, configs)
        self._admin().alter_configs([resource], raise_on_unknown=False, incremental=incremental)

    def log_sizes(self) -> dict[str, int]:
        return {
            f"{topic['name']}-{row['partition_index']}": row["partition_size"]
            for broker in self._admin().describe_log_dirs()
            for directory in broker["log_dirs"]
            for topic in directory["topics"]
            for row in topic["partitions"]
        }

    def cluster(self) -> dict[str, Any]:
        described = self._admin().describe_cluster()
        nodes = [[node["broker_id"], node["host"], node["port"]] for node in described["brokers"]]
        return {"nodes": nodes, "controller": described["controller_id"]}

    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = KafkaAdminClient(bootstrap_servers=self._bootstrap)
        return self._admin_client


def main() -> None:
    driver = KafkaPythonDriver(sys.argv[1])
    serve({name: getattr(driver, name) for name in dir(driver) if not name.startswith("_")})


if __name__ == "__main__":
    main()
