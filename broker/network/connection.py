"""One client: reads frames, dispatches each, writes the responses in the order of the requests.

One task a connection and one request at a time, as Kafka has by muting the channel. The responses to all requests of
one read are joined into one send. Responses to the requests before one that waits are sent before the wait.

The task sleeps most of the time. A request that needs no wait, and whose response fits into the socket, is served in
the poller's calls (`read`, `answer`, `send`); one that waited is answered in the call that resolves its Pending
(`on_pending_known`). A slice of a file, a full socket, a throttled response or an end wakes the task; until it sleeps
again, those calls leave everything to it. A connection is in one state:

    state           its task  the request in hand                   read     answer   send   known         stop
    READING         sleeps    none                                  1        -        sends  -             ends
    ANSWERING       sleeps    was read in this pass of the poller   -        answers  -      -             ends
    WAITING         sleeps    waits                                 notes    -        sends  answers       notes
    MUTED           sleeps    is answered; the client is throttled  notes 2  -        sends  reads again   ends
    SENDING         runs      none                                  notes    -        -      -             notes
    SENDING_WAITS   runs      waits                                 notes    -        -      for the task  notes
    SENDING_MUTED   runs      is answered; the client is throttled  notes    -        -      for the task  notes
    ENDED           has left  none                                  -        -        -      -             -

1: it receives, and is ANSWERING. 2: it ends if its client has left, and no request. MUTED and SENDING_MUTED are also
those whose next request has no memory yet (`memory_pool.py`). A call that cannot complete wakes the task. The moves
that are possible are tables too (`WAITS` and the others): any other is a KeyError.

The broker notices a disconnect during a wait only when the response is due, as Kafka, which mutes the channel.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import outcome
import trio

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.memory_pool import MemoryPool, PooledFrames
from minibroker.broker.network.poller import Poller
from minibroker.broker.network.response import (
    READ_INSTEAD_BYTES,
    Chunk,
    PeerGoneError,
    ThrottledResponse,
    send_bytes,
    send_chunks,
    send_now,
    send_slowly,
)
from minibroker.broker.network.socket_bytes import SocketBytes, Transferred, transferred
from minibroker.broker.pending import Delay, Pending
from minibroker.broker.way.last_response import LINGER_MS, LastResponse
from minibroker.broker.way.probes import Probes
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.framing import NEED_DATA, FrameDecoder
from minibroker.purgatory.timing_wheel import TimerTask
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice

logger = logging.getLogger(__name__)

# Responses are joined into one send up to this many bytes.
JOINED_SEND_BYTES = 64 * 1024
# Reads from one client before the others get their turn.
READS_PER_TURN = 16

# The states of a connection. While the task sleeps:
READING: Final = 0
ANSWERING: Final = 1
WAITING: Final = 2
MUTED: Final = 3
# While it runs, and at the end:
SENDING: Final = 4
SENDING_WAITS: Final = 5
SENDING_MUTED: Final = 6
ENDED: Final = 7
# A request waits; its client is throttled; the wait or the mute is over; the task wakes, and sleeps again.
WAITS: Final = {READING: WAITING, SENDING: SENDING_WAITS}
MUTES: Final = {READING: MUTED, SENDING: SENDING_MUTED}
IS_OVER: Final = {WAITING: READING, MUTED: READING, SENDING_WAITS: SENDING, SENDING_MUTED: SENDING}
WAKES: Final = {READING: SENDING, WAITING: SENDING_WAITS, MUTED: SENDING_MUTED}
SLEEPS: Final = {after: before for before, after in WAKES.items()}

# The rest of a client's stream: nothing that the poller would not report; more may have arrived; the end has arrived
# too, and is not reported again; it is read, and whole frames may be left; no further request is served.
REPORTED: Final = 0
MORE: Final = 1
TO_THE_END: Final = 2
AT_THE_END: Final = 3
OVER: Final = 4

Encoded = list[Chunk] | None
Dispatch = Callable[[bytearray, Client], Encoded | Pending[Encoded]]


class Serving(NamedTuple):
    """The parts and limits that all connections of a server share."""

    dispatch: Dispatch
    poller: Poller
    receive_buffer: Any  # a memoryview, which mypyc 2.4 cannot name here
    max_request_bytes: int
    max_idle_ms: int
    timer: Any
    probes: Probes
    socket_bytes: SocketBytes
    memory: MemoryPool | None = None  # None: requests may take any amount


class Connection(TimerTask):
    """Owns one accepted socket. As a timer task it closes itself after `max_idle_ms` without a request."""

    __slots__ = (
        "_decoder",
        "_dispatch",
        "_last_words",
        "_max_idle_ms",
        "_must_send_slices",
        "_out",
        "_out_bytes",
        "_pending",
        "_poller",
        "_probes",
        "_receive_buffer",
        "_sock",
        "_socket_bytes",
        "_state",
        "_stream",
        "_task",
        "_throttled",
        "_timer",
        "cancel_scope",
        "client",
        "ended_by",
        "last_active_ms",
    )

    def __init__(self, sock: socket.socket, client: Client, serving: Serving) -> None:
        super().__init__()
        self._sock = sock
        self.client = client
        self._dispatch = serving.dispatch
        self._poller = serving.poller
        memory, max_bytes = serving.memory, serving.max_request_bytes
        self._decoder = FrameDecoder(max_bytes) if memory is None else PooledFrames(max_bytes, memory)
        client.send_by(self._decoder)
        self._probes = serving.probes
        self._socket_bytes = serving.socket_bytes
        self._receive_buffer: memoryview = serving.receive_buffer
        self._out: list[Chunk] = []
        self._out_bytes = 0
        self._max_idle_ms = serving.max_idle_ms
        self._timer = serving.timer
        self.last_active_ms = self._poller.now_ms()
        self.cancel_scope = trio.CancelScope()
        self._state: int = SENDING
        self._stream: int = REPORTED
        self._task: trio.lowlevel.Task | None = None  # from `run` on
        self._must_send_slices = False
        self._pending: Pending[Encoded] | None = None  # the response that the client waits for, or the end of its mute
        self._throttled: ThrottledResponse | None = None  # a response that the task sends slowly
        self._last_words = ""  # after a LastResponse: why it ends when its timer fires
        self.ended_by = ""  # the reason, unless the client left or the broker stopped

    @property
    def tls_version(self) -> str | None:
        """The version of TLS that it speaks, such as "TLSv1.3"; None without TLS, and before the handshake."""
        return None

    @property
    def transferred(self) -> Transferred:
        """The bytes that its socket has received and sent."""
        return transferred(self._sock)

    async def run(self) -> None:
        """Serve until the client leaves, stays idle too long or sends a malformed request, or the broker stops."""
        self._task = trio.lowlevel.current_task()
        if self._max_idle_ms > 0:
            self._timer.add(self, self.last_active_ms + self._max_idle_ms)
        self._poller.register(self._sock, self)
        for opened in self._probes.opened:
            opened(self.client)
        try:
            with self.cancel_scope:
                try:
                    await self._serve()
                except (KafkaProtocolError, CloseConnectionError) as ending:
                    # Answer the requests before the one that ends the connection.
                    if isinstance(ending, CloseConnectionError) and ending.last_bytes:
                        self._keep([ending.last_bytes])
                    if self._has_unsent():
                        await self._flush()
                    raise
        except PeerGoneError as gone:
            logger.debug("%s ended before its response was sent: %s", self.client, gone)
        except CloseConnectionError as closing:
            self.ended_by = str(closing)
            logger.info("closing %s: %s", self.client, closing)
        except KafkaProtocolError as error:
            self.ended_by = str(error)
            logger.warning(
                "closing %s (client id %r): %s",
                self.client,
                self.client.client_id,
                error,
            )
        except (OSError, EOFError) as error:  # a log file that cannot be read, or is shorter than it was
            self.ended_by = str(error)
            logger.warning("closing %s: %s", self.client, error)
        finally:
            self._state = ENDED
            if self._pending is not None:
                self._pending.abandon()
            self._decoder.end()
            self._timer.cancel(self)
            self._poller.unregister(self._sock)
            self._socket_bytes.note_closing(self.client.listener, self._sock)
            self._close()
            for closed in self._probes.closed:
                closed(self.client, self.ended_by)

    def on_timeout(self) -> None:
        if self._last_words:
            self.ended_by = self.ended_by or self._last_words
            self.cancel_scope.cancel()
            return
        idle_ms = self._poller.now_ms() - self.last_active_ms
        if idle_ms < self._max_idle_ms:
            self._timer.add(self, self.last_active_ms + self._max_idle_ms)
            return
        self.ended_by = f"idle for {idle_ms} ms"
        logger.info("closing %s: %s", self.client, self.ended_by)
        self.cancel_scope.cancel()

    # The events. They never raise.

    def stop(self) -> None:
        """End after the request in hand, at once if there is none."""
        self._stream = OVER
        if self._state < SENDING and self._state != WAITING:
            self.cancel_scope.cancel()

    def read(self, is_end: bool) -> bool:
        """Read what has arrived. Return whether `answer` and `send` are to be called.

        `is_end`: the end of the stream follows the bytes that have arrived, and no further call will report it.
        """
        if self._state != READING:
            self._stream = max(self._stream, TO_THE_END if is_end else MORE)
            if is_end and self._state == MUTED:
                self._attempt(self._stays_for_requests)
            return False
        if is_end:
            self._stream = TO_THE_END
        self.last_active_ms = self._poller.pass_ms
        try:
            self._receive()
        except Exception as error:
            self._wake(outcome.Error(error))
            return False
        self._state = ANSWERING
        return True

    def answer(self) -> None:
        """Answer what was read; wake the task if it must go on."""
        if self._state == ANSWERING:  # else it was ended meanwhile
            self._attempt(self._answer_requests)

    def send(self) -> None:
        """Send the responses so far; wake the task for the rest."""
        if self._state < SENDING:
            self._attempt(self._send_now)

    def on_pending_known(self) -> None:
        """Answer the request that waited, in the call that ended the wait; wake the task for the rest."""
        if self._state < SENDING:
            self._attempt(self._answer_pending)
        # Else the task is sending earlier responses, and takes this one after them.

    def _attempt(self, step: Callable[[], bool]) -> None:
        """Take a step that does not wait; wake the task if it returns False, or with its exception."""
        try:
            if step():
                return
        except Exception as error:
            self._wake(outcome.Error(error))
        else:
            self._wake(outcome.Value(None))

    def _wake(self, result: outcome.Outcome[None]) -> None:
        """Let the task go on, or end with the error."""
        self._state = WAKES[self._state]
        trio.lowlevel.reschedule(self._task, result)  # type: ignore[arg-type]

    # The task

    async def _serve(self) -> None:
        while self._stream != OVER:
            await self._sleep()
            await self._finish()
            while not (self._stream == OVER or self._serve_without_waiting()):
                await self._finish()

    async def _sleep(self) -> None:
        """Sleep until `_attempt` wakes the task. Raises the error that ended the connection."""

        def wake_cancelled(_: object) -> trio.lowlevel.Abort:
            self._state = ENDED
            return trio.lowlevel.Abort.SUCCEEDED

        self._state = SLEEPS[self._state]
        await trio.lowlevel.wait_task_rescheduled(wake_cancelled)

    async def _finish(self) -> None:
        """Send the rest of the responses, waiting for the socket."""
        if self._has_unsent():
            await self._flush()
        else:
            await trio.lowlevel.checkpoint()
        if self._throttled is not None:
            throttled, self._throttled = self._throttled, None
            await send_slowly(self._send_bytes, throttled)
        if self._pending is None or not self._pending.is_known:
            self._note_sent(False)
        self.last_active_ms = self._poller.now_ms()

    def _serve_without_waiting(self) -> bool:
        """Read, answer and send until nothing is left to read. Return False if the task must go on."""
        if self._state != SENDING:
            if not self._take_pending():
                return True
            if self._state == SENDING_MUTED and self._throttled is None:
                return self._send_now()
        return self._throttled is None and self._answer_requests() and self._send_now()

    # The steps, of an event or of the task

    def _answer_requests(self) -> bool:
        """Answer what was read, and read on, until nothing is left to read. Return False if the task must go on.

        Nothing is read while a whole request is left, so that a client that sends ahead fills its socket, not memory.
        """
        if self._state == ANSWERING:
            self._state = READING
        for _ in range(READS_PER_TURN):
            if not self._answer_frames():
                return False
            if self._pending is not None:
                return True
            if self._stream == REPORTED:
                return True
            if self._stream == AT_THE_END:
                self._stream = OVER
                return False
            self._receive()
        return False

    def _take_pending(self) -> bool:
        """Queue the response of the request that waited, if it is known. Raises the error that ended the wait."""
        pending = self._pending
        if pending is None or not pending.is_known:
            return False
        was_muted = self._state == MUTED or self._state == SENDING_MUTED
        self._pending = None
        self._state = IS_OVER[self._state]
        answer = pending.result()
        if type(answer) is ThrottledResponse:
            self._throttled = answer
        else:
            self._keep(answer)
            if type(answer) is LastResponse:
                self._end_after(answer.reason)
        if was_muted:
            self.client.mute(0)
        elif self.client.muted_until_ms:
            self._mute()
        return True

    def _end_after(self, reason: str) -> None:
        """End once the client has had the time to end by itself."""
        self._last_words = reason
        self._timer.cancel(self)
        self._timer.add(self, self._poller.now_ms() + LINGER_MS)

    def _mute(self) -> None:
        """Read no further request until the client's throttle time is over: a wait after the response, as for one."""
        self._read_after(Delay(self._timer, self.client.muted_until_ms, None).pending)

    def _read_after(self, pending: Pending[Any]) -> None:
        self._state = MUTES[self._state]
        self._pending = pending
        pending.when_known(self.on_pending_known)

    def _stays_for_requests(self) -> bool:
        """Whether a muted client that has closed its side has left requests; else it is gone."""
        if self._decoder.left_bytes:
            return True
        try:
            if self._sock.recv(1, socket.MSG_PEEK):
                return True
        except BlockingIOError:
            return True
        except ConnectionError as error:
            raise PeerGoneError(str(error)) from error
        self._stream = OVER
        return False

    def _answer_pending(self) -> bool:
        """Send the response of the request that waited. Leave later requests to the task, so that calls do not nest."""
        self._take_pending()
        self.last_active_ms = self._poller.now_ms()
        if self._state == MUTED:
            return self._throttled is None and self._stream != OVER and self._send_now()
        is_all = not (self._stream != REPORTED or self._throttled or self._decoder.left_bytes)
        return self._send_now() and is_all

    def _receive(self) -> None:
        """Read once, and note what may follow. Raises PeerGoneError."""
        decoder = self._decoder
        pending = decoder.pending_view()
        buffer = self._receive_buffer if pending is None else pending
        try:
            received = self._sock.recv_into(buffer)
        except BlockingIOError:
            self._stream = REPORTED
            return
        except ConnectionError as error:
            raise PeerGoneError(str(error)) from error
        if pending is not None:
            decoder.advance(received)
        else:
            decoder.feed(buffer[:received])
        self._note_received(received, received == len(buffer))

    def _note_received(self, size_bytes: int, is_full: bool) -> None:
        """Note what may follow a read of so many bytes, which has filled its buffer or not."""
        if size_bytes == 0:
            self._stream = AT_THE_END
        elif self._stream != TO_THE_END:
            self._stream = MORE if is_full else REPORTED

    def _answer_frames(self) -> bool:
        """Answer each whole frame. Return False if a Pending is known already, or if enough is queued to send."""
        decoder = self._decoder
        while (frame := decoder.next_frame()) is not NEED_DATA:
            answer = self._dispatch(frame, self.client)
            if isinstance(answer, Pending):
                self._state = WAITS[self._state]
                self._pending = answer
                if answer.is_known:
                    return False
                answer.when_known(self.on_pending_known)
                return True
            self._keep(answer)
            if self.client.muted_until_ms:
                self._mute()
                return True
            if self._out_bytes > JOINED_SEND_BYTES:
                return False
            if not decoder.left_bytes:  # as most often: a call less
                return True
        if decoder.memory is not None:
            self._read_after(decoder.memory)
        return True

    def _keep(self, encoded: Encoded) -> None:
        """Queue a response for the next send."""
        for chunk in encoded or ():
            if type(chunk) is FileSlice or type(chunk) is ConvertedSlice:
                if chunk.size_bytes > READ_INSTEAD_BYTES:
                    self._must_send_slices = True
                    self._out_bytes += chunk.size_bytes
                    self._out.append(chunk)
                    continue
                chunk = chunk.read()
            self._out_bytes += len(chunk)  # type: ignore[arg-type]
            self._out.append(chunk)

    def _send_now(self) -> bool:
        if not self._out:
            return True
        if self._must_send_slices:
            self._out = send_now(self._sock, self._out)
            if self._out:
                return False
            self._out_bytes, self._must_send_slices = 0, False
            self._note_sent(True)
            return True
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)  # type: ignore[arg-type]
        try:
            sent = self._sock.send(data)  # type: ignore[arg-type]
        except BlockingIOError:
            return False
        except OSError as error:
            raise PeerGoneError(str(error)) from error
        self._out.clear()
        self._out_bytes = 0
        if sent < len(data):  # type: ignore[arg-type]
            self._out.append(memoryview(data)[sent:])  # type: ignore[arg-type]
            return False
        self._note_sent(True)
        return True

    def _note_sent(self, is_in_the_call: bool) -> None:
        """The socket has taken the last byte of all responses so far."""
        for sent in self._probes.sent:
            sent(self.client, is_in_the_call)

    # TLS replaces these, and `_receive` and `_send_now`.

    def _has_unsent(self) -> bool:
        return bool(self._out)

    async def _flush(self) -> None:
        chunks, self._out, self._out_bytes, self._must_send_slices = self._out, [], 0, False
        await send_chunks(self._sock, chunks, self._poller.give_way)

    async def _send_bytes(self, data: memoryview) -> None:
        await send_bytes(self._sock, data)

    def _close(self) -> None:
        self._sock.close()
