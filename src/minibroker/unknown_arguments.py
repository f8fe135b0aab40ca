"""Refuses an argument that a Broker does not have, with what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import ParamSpec

P = ParamSpec("P")

A_CLUSTER = "a Broker is one broker; write Cluster(brokers={value})"
# Names that other tools have.
INSTEAD = {
    **dict.fromkeys(("brokers", "nodes", "num_brokers", "broker_count"), A_CLUSTER),
    **dict.fromkeys(("replicas", "replication_factor"), "one broker has one replica; write Cluster(brokers={value})"),
    **dict.fromkeys(("port", "kafka_port"), 'write listen="127.0.0.1:{value}"'),
    "host": 'write listen="{value}:9092", or port 0 for a free one',
    "partitions": 'write settings={{"num.partitions": {value}}}, or partitions={value} of create_topic',
    **dict.fromkeys(("env", "environ"), "write environment={value}"),
    **dict.fromkeys(("config", "configs", "properties"), "write settings={value}"),
    "version": "write act_as={value!r} for the release of Apache Kafka that clients see",
}


def refusing_unknown(init: Callable[P, None]) -> Callable[P, None]:
    """Have an `__init__` of keyword arguments raise TypeError with the next step for one that it does not have."""
    known = list(init.__kwdefaults__ or ())

    @functools.wraps(init)
    def checked(*args: P.args, **arguments: P.kwargs) -> None:
        for name, value in arguments.items():
            if name not in known:
                raise TypeError(f"Broker has no argument {name}: {instead(name, value, known)}")
        init(*args, **arguments)

    return checked


def instead(name: str, value: object, known: Collection[str]) -> str:
    if name in INSTEAD:
        return INSTEAD[name].format(value=value)
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f'it has {", ".join(known)}; settings of Kafka are settings={{"num.partitions": 3}}'
