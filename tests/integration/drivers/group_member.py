"""Driver of one member of a group: polls without end, and between polls does what it is asked.

    python -m tests.integration.drivers.group_member LIBRARY BOOTSTRAP GROUP TOPIC SETTINGS-AS-JSON

The operations are those of `Member`; LIBRARY is kafka-python, confluent-kafka or aiokafka. A topic that begins
with `^` is a pattern. Settings have kafka-python's names; assignors are called range, roundrobin, cooperative-sticky.
What was read is [partition, offset, value as text].
"""

from __future__ import annotations

import json
import select
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from tests.integration.drivers.librdkafka import translate
from tests.integration.drivers.line_protocol import JsonRecord, describe_error, serve
from tests.integration.drivers.stepped import Stepped, new_loop

POLL_SECONDS = 0.05
REBALANCE_SECONDS = 1.0
QUICK = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 200, "enable_auto_commit": False}
ASSIGNORS = {
    "range": "RangePartitionAssignor",
    "roundrobin": "RoundRobinPartitionAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}
Row = list[Any]
Settings = dict[str, Any]


class Member:
    """A member as tests ask it, over the few calls in which the libraries differ."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer
        self._read: list[Row] = []
        self._failure: JsonRecord | None = None
        self._is_closed = False
        self.operations = {
            "assignment": lambda: sorted(each.partition for each in consumer.assignment()),
            "lost": lambda: consumer.lost,  # every partition that was taken from it since it began, in order
            "failure": lambda: self._failure,  # what ended its polling, if anything did
            "records": lambda: self._read,
            "commit": consumer.commit,
            "committed": consumer.committed,
            "close": self._close,
        }

    def poll_until_asked(self) -> None:
        while not select.select([sys.stdin], [], [], 0)[0]:
            if self._is_closed or self._failure:
                select.select([sys.stdin], [], [])
                return
            try:
                self._read += self._consumer.poll()
            except Exception as error:
                self._failure = describe_error(error)

    def _close(self) -> None:
        """Leave the group."""
        self._consumer.close()
        self._is_closed = True


class KafkaPythonConsumer:
    """Polls for longer while it has no partitions.

    kafka-python 3.0 forgets the assignment for good that arrives while a poll runs out of time (join_group_async).
    """

    def __init__(self, bootstrap: str, group: str, topic: str, settings: Settings) -> None:
        self._library = self._imported()
        self._topic = topic
        self.lost: list[int] = []
        given = {"auto_offset_reset": "earliest"} | QUICK | with_assignor(settings, self._library.__name__)
        self._consumer = self._made(bootstrap_servers=bootstrap, group_id=group, **given)
        subscription = {"pattern": topic} if topic.startswith("^") else {"topics": [topic]}
        self._consumer.subscribe(**subscription, listener=self._listener())
        self.assignment = self._consumer.assignment

    def _listener(self) -> Any:
        lost = self.lost

        class Listener(self._library.ConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                lost.extend(sorted(each.partition for each in revoked))

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                pass

        return Listener()

    def poll(self) -> list[Row]:
        return [[row.partition, row.offset, row.value.decode()] for rows in self._batches().values() for row in rows]

    def commit(self) -> None:
        self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        offset: int | None = self._consumer.committed(self._library.TopicPartition(self._topic, partition))
        return offset

    def close(self) -> None:
        self._consumer.close(autocommit=bool(self._consumer.config["enable_auto_commit"]))

    def _imported(self) -> Any:
        import kafka

        return kafka

    def _made(self, **settings: Any) -> Any:
        return self._library.KafkaConsumer(**settings)

    def _batches(self) -> dict[Any, list[Any]]:
        seconds = POLL_SECONDS if self._consumer.assignment() else REBALANCE_SECONDS
        found: dict[Any, list[Any]] = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return found


class AiokafkaConsumer(KafkaPythonConsumer):
    """Its names are kafka-python's. Steps its loop only while it is asked for something: heartbeats go with polls."""

    def close(self) -> None:
        self._consumer.stop()

    def _imported(self) -> Any:
        import aiokafka

        return aiokafka

    def _made(self, **settings: Any) -> Any:
        return Stepped(new_loop(), self._library.AIOKafkaConsumer, **settings)

    def _batches(self) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = self._consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
        return found


class ConfluentConsumer:
    def __init__(self, bootstrap: str, group: str, topic: str, settings: Settings) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        self._topic = topic
        self._partition = TopicPartition
        self._error = KafkaException
        self.lost: list[int] = []
        given: Settings = {"auto_offset_reset": "earliest"} | QUICK | settings
        if given.get("group_protocol") == "consumer":  # the broker sets both
            del given["session_timeout_ms"], given["heartbeat_interval_ms"]
        if given["auto_offset_reset"] == "none":
            given["auto_offset_reset"] = "error"
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group} | translate(given))
        self._consumer.subscribe([topic], on_revoke=self._on_revoke)
        self.assignment, self.close = self._consumer.assignment, self._consumer.close

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

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def committed(self, partition: int) -> int | None:
        (found,) = self._consumer.committed([self._partition(self._topic, partition)], 10)
        return None if found.offset < 0 else int(found.offset)


CONSUMERS = {"kafka-python": KafkaPythonConsumer, "confluent-kafka": ConfluentConsumer, "aiokafka": AiokafkaConsumer}


def with_assignor(settings: Settings, library: str) -> Settings:
    """The settings, with the library's class of the assignor in place of its name."""
    name = settings.get("partition_assignment_strategy")
    if name is None:
        return settings
    module = import_module(f"{library}.coordinator.assignors.{name.replace('-', '_')}")
    return settings | {"partition_assignment_strategy": (getattr(module, ASSIGNORS[name]),)}


def main() -> None:
    library, bootstrap, group, topic, settings = sys.argv[1:]
    member = Member(CONSUMERS[library](bootstrap, group, topic, json.loads(settings)))
    serve(member.operations, before_each=member.poll_until_asked)


if __name__ == "__main__":
    main()
