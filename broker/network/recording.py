"""Records the requests and responses of connections; a broker without `--transcript` does not use it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.connection import Dispatch, Encoded
from minibroker.broker.pending import Pending
from minibroker.protocol.errors import KafkaProtocolError

if TYPE_CHECKING:
    from minibroker.transcript.recorder import Recorder


class Recording:
    """Passes each connection, request and response to `recorder`, and each request unchanged to `dispatch`."""

    def __init__(self, recorder: Recorder, dispatch: Dispatch) -> None:
        self._recorder = recorder
        self._dispatch = dispatch

    def opened(self, client: Client) -> None:
        self._recorder.opened(client.number, client.address)

    def closed(self, client: Client, reason: str) -> None:
        self._recorder.closed(client.number, reason)

    def around(self, dispatch: Dispatch, expects_token: Callable[[], bool]) -> Dispatch:
        """Record also what `dispatch` answers instead; of a request that is a token, only its size."""
        return TokenRecording(self._recorder, dispatch, expects_token).dispatch

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Record the request first, since an append changes the frame; then dispatch it. Raises as `dispatch`."""
        number = client.number
        self._record_request(number, frame)
        with self._noting_refusal(number):
            answer = self._dispatch(frame, client)
        if isinstance(answer, Pending):
            return answer.then(partial(self._recorder.answered, number), partial(self._refused, number))
        return self._recorder.answered(number, answer)

    def _record_request(self, number: int, frame: bytearray) -> None:
        self._recorder.request(number, frame)

    def _refused(self, number: int, error: Exception) -> Encoded:
        with self._noting_refusal(number):
            raise error

    @contextmanager
    def _noting_refusal(self, number: int) -> Iterator[None]:
        try:
            yield
        except (KafkaProtocolError, CloseConnectionError) as refusal:
            last_bytes = refusal.last_bytes if isinstance(refusal, CloseConnectionError) else b""
            self._recorder.refused(number, str(refusal), last_bytes)
            raise


class TokenRecording(Recording):
    """Records the requests of a client that authenticates."""

    def __init__(self, recorder: Recorder, dispatch: Dispatch, expects_token: Callable[[], bool]) -> None:
        super().__init__(recorder, dispatch)
        self._expects_token = expects_token

    def _record_request(self, number: int, frame: bytearray) -> None:
        self._recorder.request_before_login(number, frame, is_token=self._expects_token())
