"""The options of a broker's start that Kafka does not have, besides its configuration. Imported before listening."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from minibroker.broker.cluster.first_topics import FirstTopic
    from minibroker.transcript.recorder import Recorder

DEFAULT_FAULTS_MAX = 10_000


class Control(Protocol):
    """The socket by which tests lead a broker."""

    path: Path

    def register(self, name: str, call: Callable[..., object]) -> None: ...

    async def run(self) -> None: ...


class Console(Protocol):
    """The page beside the broker."""

    def start(self, bootstrap: str) -> None: ...

    def stop(self) -> None: ...


class Endpoint(Protocol):
    """The address of the metrics. `calls` are those of a process that serves them."""

    @property
    def address(self) -> tuple[str, int]: ...

    async def run(self, calls: Any) -> None: ...


class ServeOptions(NamedTuple):
    """The caller closes `control`, `recorder`, `console`, `metrics` and `schema_registry`."""

    control: Control | None = None  # advances the clock, makes faults
    recorder: Recorder | None = None  # of a transcript
    busy_poll_ms: int = 0  # poll for that time after a request, instead of sleeping
    faults_max: int = DEFAULT_FAULTS_MAX  # to remember
    console: Console | None = None  # ends first
    metrics: Endpoint | None = None  # serves Prometheus
    schema_registry: socket | None = None  # that listens
    schema_registry_address: str | None = None  # where it is to listen, as the option has it
    counts: bool = False  # for the metrics, from the start
    cluster_dir: Path | None = None  # that the brokers of a cluster share
    zookeeper: str | None = None  # of a cluster with Apache Kafka, as zookeeper.connect has it
    topics: Sequence[FirstTopic] = ()  # to create before the broker is ready
