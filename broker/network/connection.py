"""One client: reads frames, has each answered, writes the responses in the order of the requests.

One task a connection and one request at a time, which is what Kafka gets by muting the channel. The answers of
all requests that one read brought are joined into one send. A handler returns its response, or a coroutine when
it has to wait; what was answered before is sent before the wait begins.

A parked client that disconnects is noticed when its answer is due, as in Kafka, where its channel is muted.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any

import trio

from minibroker.broker.client import Client, CloseConnectionError
from minibroker.broker.network.response import Chunk, PeerGoneError, send_chunks
from minibroker.protocol.codegen import records_size
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.framing import NEED_DATA, FrameDecoder
from minibroker.purgatory.timing_wheel import TimerTask

logger = logging.getLogger(__name__)

# Answers waiting to be joined into one send are never more than this many bytes.
JOINED_SEND_BYTES = 64 * 1024

Encoded = list[Chunk] | None
Dispatch = Callable[[bytearray, "Client"], Encoded | Coroutine[Any, Any, Encoded]]


class Connection(TimerTask):
    """Owns one accepted socket. As a timer task it closes itself after `max_idle_ms` without a request."""

    __slots__ = (
        "_decoder",
        "_dispatch",
        "_max_idle_ms",
        "_now_ms",
        "_out",
        "_out_bytes",
        "_receive_buffer",
        "_sock",
        "_timer",
        "cancel_scope",
        "client",
        "is_idle",
        "is_stopping",
        "last_active_ms",
    )

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        *,
        dispatch: Dispatch,
        receive_buffer: memoryview,
        max_request_bytes: int,
        max_idle_ms: int,
        now_ms: Callable[[], int],
        timer: Any,
    ) -> None:
        super().__init__()
        self._sock = sock
        self.client = client
        self._dispatch = dispatch
        self._decoder = FrameDecoder(max_request_bytes)
        self._receive_buffer = receive_buffer
        self._out: list[Chunk] = []
        self._out_bytes = 0
        self._max_idle_ms = max_idle_ms
        self._now_ms = now_ms
        self._timer = timer
        self.last_active_ms = now_ms()
        self.cancel_scope = trio.CancelScope()
        self.is_idle = True
        self.is_stopping = False

    async def run(self) -> None:
        """Serve until the client leaves, stays idle too long, sends nonsense, or the broker stops."""
        if self._max_idle_ms > 0:
            self._timer.add(self, self.last_active_ms + self._max_idle_ms)
        try:
            with self.cancel_scope:
                await self._serve()
        except PeerGoneError as gone:
            logger.debug("%s left while it was being answered: %s", self.client.address, gone)
        except CloseConnectionError as closing:
            logger.info("closing the connection of %s: %s", self.client.address, closing)
        except KafkaProtocolError as error:
            logger.warning(
                "closing the connection of %s (client id %r): %s",
                self.client.address,
                self.client.client_id,
                error,
            )
        except OSError as error:
            logger.warning("closing the connection of %s: %s", self.client.address, error)
        finally:
            self._timer.cancel(self)
            self._sock.close()

    def on_timeout(self) -> None:
        idle_ms = self._now_ms() - self.last_active_ms
        if idle_ms < self._max_idle_ms:
            self._timer.add(self, self.last_active_ms + self._max_idle_ms)
            return
        logger.info("closing the connection of %s: idle for %d ms", self.client.address, idle_ms)
        self.cancel_scope.cancel()

    def stop(self) -> None:
        """End after the request in hand, at once if there is none."""
        self.is_stopping = True
        if self.is_idle:
            self.cancel_scope.cancel()

    async def _serve(self) -> None:
        decoder, sock = self._decoder, self._sock
        while not self.is_stopping:
            await trio.lowlevel.wait_readable(sock)
            if not self._receive():
                return
            frame = decoder.next_frame()
            if frame is NEED_DATA:
                continue
            self.is_idle = False
            while frame is not NEED_DATA:
                await self._answer(frame)
                frame = decoder.next_frame()
            if self._out:
                await self._flush()
            self.is_idle = True
            self.last_active_ms = self._now_ms()

    def _receive(self) -> bool:
        """Read once what has arrived. False when the client closed its side."""
        pending = self._decoder.pending_view()
        try:
            if pending is not None:
                received = self._sock.recv_into(pending)
                self._decoder.advance(received)
            else:
                received = self._sock.recv_into(self._receive_buffer)
                self._decoder.feed(self._receive_buffer[:received])
        except BlockingIOError:
            return True
        except ConnectionError as error:
            raise PeerGoneError(str(error)) from error
        return received > 0

    async def _answer(self, frame: bytearray) -> None:
        outcome = self._dispatch(frame, self.client)
        encoded: Encoded
        if type(outcome) is CoroutineType:  # isinstance would look for an abstract class, at every request
            encoded = await self._after_flush(outcome)
        else:
            encoded = outcome  # type: ignore[assignment]
        if encoded is None:
            return
        self._out += encoded
        for chunk in encoded:
            self._out_bytes += len(chunk) if type(chunk) is bytes else records_size(chunk)
        if self._out_bytes > JOINED_SEND_BYTES:
            await self._flush()

    async def _after_flush(self, waiting: Coroutine[Any, Any, Encoded]) -> Encoded:
        """The request in hand waits: what was answered before it must not."""
        if self._out:
            try:
                await self._flush()
            except BaseException:
                waiting.close()
                raise
        return await waiting

    async def _flush(self) -> None:
        chunks, self._out, self._out_bytes = self._out, [], 0
        await send_chunks(self._sock, chunks)
