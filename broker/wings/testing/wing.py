"""Testing: faults in the place of answers, and a transcript of the conversations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from minibroker.broker.apis.client import Client
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.way.stage import Stage
from minibroker.broker.wing import Wing


class FaultWing(Wing):
    """Tests make faults by the control socket."""

    def __init__(
        self, parts: BrokerParts, clients: Callable[[], Iterable[Client]] | None = None, kept_max: int | None = None
    ) -> None:
        from minibroker.broker.wings.testing.faults.injector import FaultInjector

        self.injector = FaultInjector(
            parts.apis,
            parts.config.profile,
            parts.fetch_sessions,
            clients or (lambda: (each.client for each in parts.connections)),
            parts.background,
            kept_max=parts.options.faults_max if kept_max is None else kept_max,
        )

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.control is not None

    def frame_stages(self) -> Sequence[Stage]:
        return [self.injector.frames]

    def stages(self) -> Sequence[Stage]:
        return [self.injector]

    def calls(self) -> Mapping[str, Callable[..., object]]:
        return self.injector.calls

    def stop(self) -> None:
        """Let no fault hold back the end."""
        self.injector.lift_all()
