"""Driver of one member of a group: polls without end, and between polls does what it is asked.

    python -m tests.integration.drivers.group_member LIBRARY BOOTSTRAP GROUP TOPIC SETTINGS-AS-JSON

The operations are the methods of `Member`; LIBRARY is kafka-python, confluent-kafka or aiokafka. A topic that begins
with `^` is a pattern. Settings have kafka-python's names; assignors are called range, roundrobin, cooperative-sticky.
What was read is [partition, offset, value as text].
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
from collections.abc import Iterable
from typing import Any

from tests.integration.drivers.line_protocol import JsonRecord, describe_error, serve

POLL_SECONDS = 0.05
REBALANCE_SECONDS = 1.0
QUICK = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 200, "enable_auto_commit": False}
Row = list[Any]
Settings = dict[str, Any]


class Member:
    """What a test asks of a member, over the few calls in which the libraries differ."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._read: list[Row] = []
        self._failure: JsonRecord | None = None
        self._is_closed = False

    def poll_until_asked(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            if self._is_closed or self._failure:
                select.select([sys.stdin], [], [])
                return
            try:
                self._read += self._consumer.poll()
            except Exception as error:
                self._failure = describe_error(error)

    def assignment(self) -> list[int]:
        return sorted(self._consumer.assignment())

    def lost(self) -> list[int]:
        """Every partition that was taken from it since it began, in order."""
        lost: list[int] = self._consumer.lost
        return lost

    def failure(self) -> JsonRecord | None:
        """What ended its polling, if anything did."""
        return self._failure

    def records(self) -> list[Row]:
        return self._read

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        offset: int | None = self._consumer.committed(partition)
        return offset

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()
        self._is_closed = True


class KafkaPythonConsumer:
    """Polls for longer while it has no partitions.

    kafka-python 3.0 forgets the assignment for good that arrives while a poll runs out of time (join_group_async).
    """

    def __init__(self, bootstrap: str, group: str, topic: str, settings: Settings) -> None:
        import kafka
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        assignors = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "cooperative-sticky": CooperativeStickyAssignor,
        }
        self._topic = topic
        self._partition = kafka.TopicPartition
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            **{"auto_offset_reset": "earliest"} | QUICK | with_assignor(settings, assignors),
        )
        lost: list[int] = []
        self.lost = lost

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                lost.extend(sorted(each.partition for each in revoked))

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                pass

        self._consumer.subscribe(**subscription(topic), listener=Listener())

    def poll(self) -> list[Row]:
        seconds = POLL_SECONDS if self._consumer.assignment() else REBALANCE_SECONDS
        batches = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [[row.partition, row.offset, row.value.decode()] for rows in batches.values() for row in rows]

    def assignment(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        offset: int | None = self._consumer.committed(self._partition(self._topic, partition))
        return offset

    def close(self) -> None:
        self._consumer.close(autocommit=bool(self._consumer.config["enable_auto_commit"]))


class ConfluentConsumer:
    def __init__(self, bootstrap: str, group: str, topic: str, settings: Settings) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        self._topic = topic
        self._partition = TopicPartition
        self._error = KafkaException
        self.lost: list[int] = []
        given: Settings = {"auto_offset_reset": "earliest"} | QUICK | settings
        if given["auto_offset_reset"] == "none":
            given["auto_offset_reset"] = "error"
        translated = {name.replace("_", "."): value for name, value in given.items()}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group} | translated)
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)

    def _on_revoke(self, _: Any, revoked: list[Any]) -> None:
        self.lost += sorted(each.partition for each in revoked)

    def poll(self) -> list[Row]:
        messages = self._consumer.consume(500, POLL_SECONDS)
        errors = [error for message in messages if (error := message.error()) is not None]
        for error in errors:
            if error.code() == error._AUTO_OFFSET_RESET:
                raise self._error(error)
        return [
            [message.partition(), message.offset(), (message.value() or b"").decode()]
            for message in messages
            if message.error() is None
        ]

    def assignment(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def committed(self, partition: int) -> int | None:
        (found,) = self._consumer.committed([self._partition(self._topic, partition)], 10)
        return None if found.offset < 0 else int(found.offset)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaConsumer:
    """Steps its loop only while it is asked for something: heartbeats go out during polls."""

    def __init__(self, bootstrap: str, group: str, topic: str, settings: Settings) -> None:
        import aiokafka
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

        assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
        self._topic = topic
        self._partition = aiokafka.TopicPartition
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        lost: list[int] = []
        self.lost = lost

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                lost.extend(sorted(each.partition for each in revoked))

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                pass

        async def start() -> Any:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap,
                group_id=group,
                **{"auto_offset_reset": "earliest"} | QUICK | with_assignor(settings, assignors),
            )
            consumer.subscribe(**subscription(topic), listener=Listener())
            await consumer.start()
            return consumer

        self._consumer = self._loop.run_until_complete(start())

    def poll(self) -> list[Row]:
        batches = self._loop.run_until_complete(self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000)))
        return [[row.partition, row.offset, row.value.decode()] for rows in batches.values() for row in rows]

    def assignment(self) -> list[int]:
        return [each.partition for each in self._consumer.assignment()]

    def commit(self) -> None:
        self._loop.run_until_complete(self._consumer.commit())

    def committed(self, partition: int) -> int | None:
        asked = self._partition(self._topic, partition)
        offset: int | None = self._loop.run_until_complete(self._consumer.committed(asked))
        return offset

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())


CONSUMERS = {
    "kafka-python": KafkaPythonConsumer,
    "confluent-kafka": ConfluentConsumer,
    "aiokafka": AiokafkaConsumer,
}


def subscription(topic: str) -> dict[str, Any]:
    """How kafka-python and aiokafka are told what to read."""
    return {"pattern": topic} if topic.startswith("^") else {"topics": [topic]}


def with_assignor(settings: Settings, assignors: dict[str, Any]) -> Settings:
    """The settings, with the class of the assignor in place of its name."""
    name = settings.get("partition_assignment_strategy")
    return settings if name is None else settings | {"partition_assignment_strategy": (assignors[name],)}


def main() -> None:
    library, bootstrap, group, topic, settings = sys.argv[1:]
    member = Member(CONSUMERS[library](bootstrap, group, topic, json.loads(settings)))
    operations = {name: getattr(member, name) for name in dir(member) if name[0] != "_" and name != "poll_until_asked"}
    serve(operations, before_each=member.poll_until_asked)


if __name__ == "__main__":
    main()
