"""The options of a broker's start that Kafka does not have, besides its configuration. Imported before listening."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from minibroker.transcript.recorder import Recorder

DEFAULT_FAULTS_MAX = 10_000
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a broker in order, as Kafka's; SIGHUP stays ignored under `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return STOP_SIGNALS if is_ignored else (*STOP_SIGNALS, signal.SIGHUP)


class StartError(Exception):
    """The broker cannot start, or not go on; the message has a line for each reason, with the next step."""


class ServeOptions(NamedTuple):
    """`control` lets tests advance the clock and make faults; `recorder` writes a transcript. The caller closes both.
    `console` is the page beside the broker, and ends first. `metrics` serves Prometheus; `counts` counts for the
    metrics from the start. `busy_poll_ms`: poll for that time after a request, instead of sleeping. `faults_max`:
    faults to remember. `cluster_dir`: the directory that the brokers of a cluster share; None for a cluster of one.
    `zookeeper`: the ZooKeeper of a cluster with Apache Kafka, as zookeeper.connect has it. `topics`: those to create
    before the broker is ready."""

    control: Any = None
    recorder: Recorder | None = None
    busy_poll_ms: int = 0
    faults_max: int = DEFAULT_FAULTS_MAX
    console: Any = None
    metrics: Any = None
    counts: bool = False
    cluster_dir: Path | None = None
    zookeeper: str | None = None
    topics: Sequence[Any] = ()
