"""Consumers of confluent-kafka inside a test's own process, where its driver (drivers/) would be in the way."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, Message

AS_THEY_ARE = {"log_level", "on_commit"}


def consumer_of(bootstrap: str, group: str = "nobody", **settings: Any) -> Consumer:
    """Commits nothing by itself unless it is asked to; `_` in the names of settings stands for `.`."""
    given = {name if name in AS_THEY_ARE else name.replace("_", "."): value for name, value in settings.items()}
    ours = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    return Consumer(ours | given)


def value_of(message: Message) -> bytes | None:
    """The value of a record; None of the event that a partition has been read to its end. Raises AssertionError."""
    error = message.error()
    if error is None:
        return message.value() or b""
    assert error.code() == KafkaError._PARTITION_EOF, error
    return None
