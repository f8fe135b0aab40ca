"""What a broker is started with besides its configuration: options that Kafka has not. Imported before listening."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from minibroker.broker.control.control_server import ControlServer
    from minibroker.transcript.recorder import Recorder


class ServeOptions(NamedTuple):
    """`control` lets tests turn the clock and set faults; `recorder` writes a transcript. Whoever made them closes
    them. `busy_poll_ms`: stay awake so long after a request."""

    control: ControlServer | None = None
    recorder: Recorder | None = None
    busy_poll_ms: int = 0
