"""Driver of confluent-kafka's ShareConsumer: members of share groups, by names that the test gives them."""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer

from tests.integration.drivers.line_protocol import error_code_of, serve_driver

KINDS = {"accept": AcknowledgeType.ACCEPT, "release": AcknowledgeType.RELEASE, "reject": AcknowledgeType.REJECT}
CLOSE_MS = 10_000
LOOK_AGAIN_MS = 100


class ConfluentSharer:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._members: dict[str, Any] = {}
        self._told: dict[str, list[Any]] = {}

    def open(self, member: str, group: str, topics: list[str], mode: str, most: int, acquires: str) -> None:
        consumer = self._members[member] = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "share.acknowledgement.mode": mode,
                "max.poll.records": most,
                "topic.metadata.refresh.interval.ms": LOOK_AGAIN_MS,
                "socket.timeout.ms": CLOSE_MS,
                "log_level": 0,
            }
        )
        told = self._told[member] = []

        def note(offsets: Any, error: KafkaException | None) -> None:
            code = None if error is None else error_code_of(error)
            told.extend([f"{each.topic}-{each.partition}", sorted(found), code] for each, found in offsets.items())

        consumer.set_acknowledgement_commit_callback(note)
        if topics:
            consumer.subscribe(topics)

    def subscribe(self, member: str, topics: list[str]) -> None:
        self._members[member].subscribe(topics)

    def subscription(self, member: str) -> list[str]:
        return sorted(self._members[member].subscription())

    def poll(self, member: str, ms: int) -> list[Any]:
        found = []
        for message in self._members[member].poll(timeout=ms / 1000):
            if message.error() is not None:
                raise KafkaException(message.error())
            at = message.topic(), message.partition(), message.offset()
            value = message.value()
            found.append([*at, None if value is None else value.decode(), message.delivery_count()])
        return found

    def acknowledge(self, member: str, topic: str, partition: int, offset: int, kind: str) -> None:
        self._members[member].acknowledge_offset(topic, partition, offset, KINDS[kind])

    def commit(self, member: str) -> dict[str, int | None]:
        outcomes = self._members[member].commit_sync(timeout=60.0)
        return {
            f"{each.topic}-{each.partition}": None if error is None else error_code_of(error)
            for each, error in outcomes.items()
        }

    def commit_async(self, member: str) -> None:
        self._members[member].commit_async()

    def told(self, member: str) -> list[Any]:
        """Return what the callback of commits has heard: partition, offsets, error."""
        return self._told[member]

    def close(self, member: str) -> None:
        self._members.pop(member).close()


if __name__ == "__main__":
    serve_driver(ConfluentSharer(sys.argv[1]))
