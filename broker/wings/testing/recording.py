"""Records the requests and responses of connections; a broker without `--transcript` does not use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probe
from minibroker.broker.wing import Wing

if TYPE_CHECKING:
    from minibroker.transcript.recorder import Recorder


class Recording(Probe):
    """Passes each connection, request and response to `recorder`; of a token of SASL only its size."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def opened(self, client: Client) -> None:
        self._recorder.opened(client.number, client.address)

    def began(self, exchange: Exchange) -> None:
        """Record the request now, since an append changes the frame."""
        number, frame = exchange.client.number, exchange.frame
        if exchange.is_login:
            self._recorder.request_before_login(number, frame, is_token=exchange.is_token)
        else:
            self._recorder.request(number, frame)

    def handed(self, exchange: Exchange, chunks: list[Any] | None) -> None:
        self._recorder.answered(exchange.client.number, chunks)

    def refused(self, exchange: Exchange, error: Exception) -> None:
        last_bytes = error.last_bytes if isinstance(error, CloseConnectionError) else b""
        self._recorder.refused(exchange.client.number, str(error), last_bytes)

    def closed(self, client: Client, reason: str) -> None:
        self._recorder.closed(client.number, reason)


class TranscriptWing(Wing):
    """Has the requests and responses of all connections recorded."""

    def __init__(self, parts: BrokerParts) -> None:
        assert parts.options.recorder is not None
        parts.probes.add(Recording(parts.options.recorder))

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.recorder is not None
