"""Records what passes between the connections and the dispatch; without a transcript none of this exists."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.connection import Dispatch, Encoded
from minibroker.broker.parked import Parked
from minibroker.protocol.errors import KafkaProtocolError

if TYPE_CHECKING:
    from minibroker.transcript.recorder import Recorder

Answer = Encoded | Parked[Encoded] | Coroutine[Any, Any, Encoded]


class Recording:
    """Tells `recorder` of each connection, request and response, and passes everything on to `dispatch` as it is."""

    def __init__(self, recorder: Recorder, dispatch: Dispatch) -> None:
        self._recorder = recorder
        self._dispatch = dispatch
        self._connections: dict[Client, int] = {}

    def opened(self, client: Client) -> None:
        self._connections[client] = self._recorder.opened(client.address)

    def closed(self, client: Client, reason: str) -> None:
        self._recorder.closed(self._connections.pop(client), reason)

    def dispatch(self, frame: bytearray, client: Client) -> Answer:
        """As the dispatch below. The request is recorded first: an append changes the frame."""
        number = self._connections[client]
        self._recorder.request(number, frame)
        with self._noting_refusal(number):
            answer = self._dispatch(frame, client)
        if type(answer) is Parked:
            return Parked(answer.operation, partial(self._finish, number, answer.finish))
        if type(answer) is CoroutineType:
            return self._finish_later(number, answer)
        return self._recorder.answered(number, answer)  # type: ignore[arg-type]

    def _finish(self, number: int, finish: Callable[[], Encoded]) -> Encoded:
        with self._noting_refusal(number):
            answer = finish()
        return self._recorder.answered(number, answer)

    async def _finish_later(self, number: int, waiting: Coroutine[Any, Any, Encoded]) -> Encoded:
        with self._noting_refusal(number):
            answer = await waiting
        return self._recorder.answered(number, answer)

    @contextmanager
    def _noting_refusal(self, number: int) -> Iterator[None]:
        try:
            yield
        except (KafkaProtocolError, CloseConnectionError) as refusal:
            last_bytes = refusal.last_bytes if isinstance(refusal, CloseConnectionError) else b""
            self._recorder.refused(number, str(refusal), last_bytes)
            raise
