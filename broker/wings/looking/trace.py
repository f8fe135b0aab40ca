"""A trace of one request on its way: when each stage ended, what ended its wait, how it ended.

    arrived -> handled [-> woken] -> answered -> sent

A request that needs no wait is handled and answered at once. Times are nanoseconds of the machine's monotonic clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from minibroker.broker.apis.client import Client
from minibroker.broker.network.response import READ_INSTEAD_BYTES
from minibroker.broker.wings.looking.exchange_facts import NEVER, Facts
from minibroker.protocol.api import HEADER, ApiKey
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minibroker.broker.way.exchange import Exchange
    from minibroker.broker.way.way import Encoded
    from minibroker.protocol.api import Request
    from minibroker.protocol.primitives import TopicPartition
    from minibroker.purgatory.delayed_operation import DelayedOperation

LENGTH_BYTES = 4
NO_HEADER = (-1, -1, -1)
TOKEN = (int(ApiKey.SASL_AUTHENTICATE), -1, -1)  # a token without a header stands for a SaslAuthenticate
NO_CAUSE = -1

# How an exchange ended.
AT_ONCE = "at once"
WOKEN = "woken"  # an event ended its wait
EXPIRED = "expired"  # its time was over
SILENT = "silent"  # it has no response, as a Produce with acks=0
CLOSED = "closed"  # the connection was closed instead
GONE = "gone"  # its client left first
# Before its end.
WAITS = "waits"
SENDING = "sending"


class Before(NamedTuple):
    """A partition just before a Produce."""

    high_watermark: int
    log_end_offset: int
    segment: int  # the base offset of the active one
    size_bytes: int  # of the active segment


class Sent(NamedTuple):
    """A response that has left: how, in how many calls if that is known, and the slices of log files in it."""

    how: str  # copied, sendfile, mixed, converted or encrypted
    calls: int | None
    in_the_call: bool
    slices: int
    slice_bytes: int


class Trace:
    """Filled in by the tracer. `exchange` and `encoded` are there only until its facts are taken.

    The values at the start are the class's: a thousand may be made a second, and most of them stay as they are.
    """

    client_id: str | None = None
    bytes_out = NEVER
    handled_ns = woken_ns = reads_ns = answered_ns = sent_ns = NEVER
    outcome = AT_ONCE
    error = ""
    woken_by = NO_CAUSE
    ended_by = ""  # request, time, flush, delay, fault or other
    woke: list[int] | None = None  # the numbers of the exchanges whose wait ended in its call
    operation: DelayedOperation | None = None  # what waited for it
    first_bytes = NEVER  # what a Fetch had found when it was parked
    wheel_ms = NEVER  # the time of the timer when it was parked
    sent: Sent | None = None
    is_sent_in_the_call = False
    is_sampled = True  # else it is kept only if it is special
    weight = 1  # how many requests it stands for: the ones before it that were not traced, and itself
    before: dict[TopicPartition, Before] | None = None  # of a Produce
    encoded: Encoded = None
    facts: Facts | None = None
    matched: Sequence[object] = ()  # the filters that chose it
    number = NEVER  # in the order of the ends of those that are kept

    def __init__(self, seq: int, exchange: Exchange, arrived_ns: int) -> None:
        frame = exchange.frame
        self.seq = seq
        self.exchange: Exchange | None = exchange
        self.client: Client = exchange.client
        header = NO_HEADER
        if exchange.is_token:
            header = TOKEN
        elif len(frame) >= HEADER.size:
            header = HEADER.unpack_from(frame)[:3]
        self.api_key, self.api_version, self.correlation_id = header
        self.bytes_in = LENGTH_BYTES + len(frame)
        self.arrived_ns = arrived_ns

    @property
    def request(self) -> Request | None:
        return None if self.exchange is None else self.exchange.request

    @property
    def body(self) -> Any:
        return None if self.exchange is None else self.exchange.body

    @property
    def is_parked(self) -> bool:
        """Return whether it has waited, or waits."""
        return self.woken_ns != NEVER or self.outcome == WAITS

    @property
    def end_ns(self) -> int:
        """Return the end of its last stage so far."""
        return max(self.arrived_ns, self.handled_ns, self.woken_ns, self.answered_ns, self.sent_ns)

    def since_arrival_us(self, time_ns: int) -> int:
        """A time of one of its stages in microseconds since its arrival; -1 for none."""
        return NEVER if time_ns == NEVER else (time_ns - self.arrived_ns) // 1000

    def note_woken(self, seq: int, most: int) -> None:
        """Note an exchange whose wait ended in its call, if there are fewer than `most`."""
        if self.woke is None:
            self.woke = []
        if len(self.woke) < most:
            self.woke.append(seq)

    def note_sent(self, *, is_encrypted: bool) -> None:
        """Note how the response has left, before it is forgotten."""
        if self.encoded is None or self.sent_ns == NEVER:
            return
        slices = [chunk for chunk in self.encoded if isinstance(chunk, FileSlice | ConvertedSlice)]
        long_slices = sum(chunk.size_bytes > READ_INSTEAD_BYTES for chunk in slices)  # worth a sendfile
        if is_encrypted:
            how = "encrypted"
        elif any(isinstance(chunk, ConvertedSlice) for chunk in slices):
            how = "converted"
        elif long_slices == 0:
            how = "copied"
        else:
            how = "sendfile" if long_slices == len(slices) else "mixed"
        calls = None if is_encrypted or not self.is_sent_in_the_call else 2 if long_slices else 1
        slice_bytes = sum(chunk.size_bytes for chunk in slices)
        self.sent = Sent(how, calls, self.is_sent_in_the_call, len(slices), slice_bytes)
