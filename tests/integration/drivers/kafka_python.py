"""Driver of kafka-python: the same source runs 3.0 and 2.3, each in its own environment."""

from __future__ import annotations

import logging
import sys
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tests.integration.drivers.library import KafkaPythonLike, Records, Settings, with_access
from tests.integration.drivers.line_protocol import serve_driver

REQUEST_TIMEOUT_MS = 40_000
# 2.3 sleeps for all of a poll's time once it waits to connect again to a leader that died, whatever the metadata says.
LONGEST_POLL_MS = 1000


def typed(settings: Settings) -> Settings:
    """The settings; JSON has no tuple for `api_version`."""
    settings = with_access("kafka-python", settings)
    if "api_version" not in settings:
        return settings
    return settings | {"api_version": tuple(map(int, settings["api_version"].split(".")))}


class KafkaPythonDriver(KafkaPythonLike):
    _partition = TopicPartition

    def consume_in_group(self, topic: str, group: str, count: int, seconds: float, settings: Settings) -> Records:
        """Read on from where the group is, or from the beginning, and commit what was read."""
        consumer = self._new_consumer(settings, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False)
        try:
            consumer.subscribe([topic])
            records = self._poll(consumer, count, seconds)
            consumer.commit()
            return records
        finally:
            consumer.close()

    def _new_producer(self, codec: str, settings: Settings) -> Any:
        chosen = {
            "compression_type": None if codec == "none" else codec,
            "linger_ms": 5,
            "max_block_ms": 20_000,
            "request_timeout_ms": 20_000,
        } | typed(settings)
        return KafkaProducer(bootstrap_servers=self._bootstrap, **chosen)

    def _new_consumer(self, settings: Settings, **group: Any) -> Any:
        chosen = {"group_id": None, "auto_offset_reset": "none"} | group | typed(settings)
        return KafkaConsumer(bootstrap_servers=self._bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS, **chosen)

    def _acked(self, producer: Any, futures: list[Any]) -> list[Any]:
        producer.flush()
        return [future.get(timeout=30) for future in futures]

    def _batches(self, consumer: Any, **limits: int) -> dict[Any, list[Any]]:
        limits["timeout_ms"] = min(limits["timeout_ms"], LONGEST_POLL_MS)
        found: dict[Any, list[Any]] = consumer.poll(**limits)
        return found

    def create_topics(self, topics: dict[str, dict[str, Any]], validate_only: bool) -> dict[str, int]:
        answer = self._admin().create_topics(topics, validate_only=validate_only, raise_errors=False)
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}

    def delete_topics(self, topics: list[str]) -> dict[str, int]:
        # An open producer asks for all of its topics again, up to 0.2 s after a write to a new one: that creates them.
        for key, kept in list(self._kept.items()):
            if isinstance(kept, KafkaProducer):
                kept.close()
                del self._kept[key]
        answer = self._admin().delete_topics(topics, raise_errors=False)
        return {topic["name"]: topic["error_code"] for topic in answer["topics"]}

    def list_topics(self) -> list[str]:
        return sorted(self._admin().list_topics())

    def describe_topic(self, topic: str) -> dict[str, Any]:
        (described,) = self._admin().describe_topics([topic])
        rows = sorted(described["partitions"], key=lambda row: int(row["partition_index"]))
        partitions = [
            {"partition": row["partition_index"], "leader": row["leader_id"], "replicas": row["replica_nodes"]}
            for row in rows
        ]
        return {"partitions": partitions}

    def describe_configs(self, kind: str, name: str, keys: list[str] | None) -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, keys)
        described = self._admin().describe_configs([resource], config_filter="all")
        return {
            key: {
                "value": row["value"],
                "source": row["config_source"],
                "read_only": row["read_only"],
                "sensitive": row["is_sensitive"],
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
        return self._keep("admin", lambda: KafkaAdminClient(bootstrap_servers=self._bootstrap))


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    serve_driver(KafkaPythonDriver(sys.argv[1]))
