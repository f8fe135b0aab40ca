"""Makes a history from the transcripts of a cluster: the sends and fetches of all clients.

A Produce is a send of each of its records, and a Fetch a poll of a process that is its connection. Where a Fetch names
another offset than the one before it led to, the consumer sought. Producers with an id are processes of their own; a
batch that such a producer sends again is the same send. So is a batch that another client sends again, by its
timestamps, after one that was not acknowledged.

Times are nanoseconds. Those of several brokers are of one machine, and differ by less than SKEW_NS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from heapq import merge
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.client.reading import batches_in
from minibroker.history.model import (
    AFTER_ALL,
    History,
    HistoryError,
    Outcome,
    Partition,
    Process,
    Send,
    Transaction,
    Value,
)
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.batches import BatchView, iter_all_records, scan_batches
from minibroker.protocol.errors import ErrorCode, KafkaError, KafkaProtocolError
from minibroker.protocol.message_values import CONSUMER_REPLICA_ID, READ_COMMITTED
from minibroker.protocol.messages.fetch import replica_id_of
from minibroker.protocol.record import NO_SEQUENCE, Record, increment_sequence
from minibroker.protocol.text import counted, shown
from minibroker.transcript.exchanges import Exchange, read_transcript
from minibroker.transcript.fields import cut_view, missing_bytes
from minibroker.transcript.file import MAGIC, TranscriptError

SKEW_NS = 1_000_000_000
NS_OF_MS = 1_000_000
INITIAL_EPOCH = 0  # of a fetch that begins a session; without one, or for the last time, it is -1
DECOMPRESSED_MAX_BYTES = 1 << 28
LONGEST_TEXT = 60  # of a value that stands for itself
CUT_TEXT = 40
DIGEST_BYTES = 6
INTERNAL = "__"

# The append may have been done, or may yet be replicated.
IN_DOUBT = {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
# The coordinator did nothing, and the producer asks again.
ASKED_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
Place = tuple[str, int]
ProducerKey = tuple[int, int]  # id and epoch


def is_transcript(path: Path) -> bool:
    """Whether a file begins as a transcript does. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def read_transcripts(paths: Sequence[Path], advance: Callable[[int], None] = lambda amount: None) -> History:
    """The history that these transcripts recorded together. Raises OSError and HistoryError."""
    begin: list[int] = []
    history = History(
        lambda at: f"{(at - begin[0]) / 1e9:.3f} s" if begin else "", skew=SKEW_NS if len(paths) > 1 else 0
    )
    reader = ExchangeHistory(history)
    names = ["" if len(paths) == 1 else f"{path.name} " for path in paths]
    streams = [exchanges_of(path, name, advance) for path, name in zip(paths, names, strict=True)]
    for ended, name, exchange in merge(*streams, key=lambda each: each[0]):
        if not begin:
            begin.append(exchange.time_ns)
        reader.read(name, exchange, ended)
    reader.note()
    return history.finish()


def exchanges_of(path: Path, name: str, advance: Callable[[int], None]) -> Iterator[tuple[int, str, Exchange]]:
    """Every exchange with the time of its end. Raises OSError and HistoryError."""
    try:
        for exchange in read_transcript(path):
            advance(exchange.request_bytes + (exchange.response_bytes or 0))
            yield exchange.time_ns + round((exchange.latency_ms or 0) * NS_OF_MS), name, exchange
    except TranscriptError as error:
        raise HistoryError(f"{path}: {error}; record a new transcript") from error


class Sent(NamedTuple):
    """A send with the time of its last attempt."""

    send: Send
    tried: int


class ExchangeHistory:
    """Takes exchanges in the order of their ends."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._unreadable = 0
        self._sent: dict[tuple[Any, ...], Sent] = {}
        self._transactions: dict[ProducerKey, Transaction] = {}
        self._decided: dict[ProducerKey, tuple[int, Transaction]] = {}  # the last one, by the time of its EndTxn
        self._sessions: dict[int, dict[Place, int]] = {}
        self._positions: dict[tuple[Process, Place], int] = {}

    def read(self, name: str, exchange: Exchange, ended: int) -> None:
        take = {
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.END_TXN: self._end_transaction,
        }.get(exchange.head.api_key)  # type: ignore[call-overload]
        if take is None:
            return
        try:
            if exchange.request is not None:
                take(name, exchange, ended)
        except (KafkaError, KafkaProtocolError):
            self._unreadable += 1

    def note(self) -> None:
        """Add to the history what could not be judged."""
        if self._unreadable:
            self._history.notes.append(f"{counted(self._unreadable, 'message')} that cannot be read left out")
        cut = [str(each) for each in self._history.partitions.values() if each.is_cut]
        if cut:
            why = "not all of their records are in the transcript (--transcript-record-bytes)"
            self._history.notes.append(f"lost, unseen and unsent records of {', '.join(cut)} are not judged: {why}")

    # -- producers --------------------------------------------------------------------------------------------

    def _produce(self, name: str, exchange: Exchange, ended: int) -> None:
        request = exchange.request
        lacking = missing_bytes(API_TABLE[ApiKey.PRODUCE].request, request, exchange.request_frame.gaps)
        answers = {
            (topic.topic, row.partition): row
            for topic in (exchange.response.topics if exchange.response is not None else ())
            for row in topic.partitions
        }
        for topic in request.topics:
            for row in topic.partitions:
                place = (topic.topic, row.partition)
                index = 0
                for view, records in self._sent_batches(place, row.records, lacking.get(id(row.records), 0)):
                    for number, record in enumerate(records):
                        send = self._send(name, exchange, place, view, record, number)
                        self._answer(send, ended, answers.get(place), index)
                        index += 1

    def _sent_batches(
        self, place: Place, data: Any, lacking: int
    ) -> Iterator[tuple[BatchView, Iterable[Record | None]]]:
        """The batches of a request; None for each record that was not recorded. Raises KafkaError."""
        whole, end = len(data or b"") - lacking, 0
        for view in scan_batches(data or b"", 0, whole):
            end = view.end_position
            yield view, iter_all_records(data, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES, is_sent=True)
        if lacking:
            self._history.partition(*place).cut()
            cut = cut_view(data, end, whole)
            if cut is not None and cut.magic >= 2:
                yield cut, [None] * cut.records_count

    def _send(
        self, name: str, exchange: Exchange, place: Place, view: BatchView, record: Record | None, number: int
    ) -> Send:
        """The send of a record of a batch: a new one, or one that is tried again."""
        at = exchange.time_ns
        value = None if record is None else identity(view, record)
        key: tuple[Any, ...]
        if view.has_producer_id:
            process = self._history.process(producer_name(exchange, view.producer_id))
            key = (*place, view.producer_id, view.producer_epoch, increment_sequence(view.base_sequence, number))
        else:
            process = self._history.process(process_name(name, exchange))
            key = (*place, exchange.client_id, value, None if record is None else record.timestamp_ms)
        known = self._sent.get(key)
        # The end of an attempt may be noticed after the end of the next one.
        if known is not None and (
            view.has_producer_id or (value is not None and (known.send.outcome is not Outcome.OK or known.tried > at))
        ):
            self._sent[key] = Sent(known.send, max(known.tried, at))
            return known.send
        transaction = self._transaction(exchange, view) if view.is_transactional else None
        send = self._history.send(process, *place, value, at, transaction)
        self._sent[key] = Sent(send, at)
        return send

    def _answer(self, send: Send, ended: int, row: Any, index: int) -> None:
        """Note what became of an attempt: one success is enough, and one doubt is stronger than a failure."""
        outcome, offset = Outcome.UNKNOWN, None
        if row is not None and row.error_code == ErrorCode.NONE:
            outcome, offset = Outcome.OK, None if row.base_offset < 0 else row.base_offset + index
        elif row is not None and row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            outcome = Outcome.OK
        elif row is not None and row.error_code not in IN_DOUBT:
            outcome = Outcome.FAILED
        is_first = send.ended == AFTER_ALL
        if is_first or (outcome is Outcome.OK is not send.outcome) or send.outcome is Outcome.FAILED:
            self._history.end_send(send, ended, outcome, None, offset)

    # -- transactions -----------------------------------------------------------------------------------------

    def _transaction(self, exchange: Exchange, view: BatchView) -> Transaction:
        """The transaction that a producer had in hand when it sent a batch."""
        key = (view.producer_id, view.producer_epoch)
        decided = self._decided.get(key)
        if decided is not None and exchange.time_ns < decided[0]:
            return decided[1]
        return self._begin(exchange, key)

    def _begin(self, exchange: Exchange, key: ProducerKey) -> Transaction:
        if key not in self._transactions:
            process = self._history.process(producer_name(exchange, key[0]))
            self._transactions[key] = Transaction(process, exchange.time_ns)
        return self._transactions[key]

    def _add_partitions(self, name: str, exchange: Exchange, ended: int) -> None:
        if not exchange.request.transactions:  # those of another broker come with their records
            self._begin(exchange, (exchange.request.producer_id, exchange.request.producer_epoch))

    def _end_transaction(self, name: str, exchange: Exchange, ended: int) -> None:
        request = exchange.request
        key = (request.producer_id, request.producer_epoch)
        transaction = self._transactions.get(key)
        if transaction is None:
            return
        error = None if exchange.response is None else exchange.response.error_code
        if request.is_commit:
            transaction.ask_commit(exchange.time_ns)
            if error is not None:
                transaction.end_commit(ended, Outcome.FAILED if error else Outcome.OK)
        elif error == ErrorCode.NONE:
            transaction.abort(ended)
        if error is not None and error not in ASKED_AGAIN:
            self._decided[key] = (exchange.time_ns, self._transactions.pop(key))

    # -- consumers --------------------------------------------------------------------------------------------

    def _fetch(self, name: str, exchange: Exchange, ended: int) -> None:
        request, response = exchange.request, exchange.response
        if replica_id_of(request) != CONSUMER_REPLICA_ID or response is None or response.error_code:
            return
        asked = self._asked(request, response)
        frame = exchange.response_frame
        lacking = missing_bytes(API_TABLE[ApiKey.FETCH].response, response, () if frame is None else frame.gaps)
        process = self._history.process(process_name(name, exchange))
        records: list[tuple[Partition, int, Value]] = []
        for topic in response.topics:
            for row in topic.partitions:
                place = (topic.topic, row.partition)
                if row.error_code or place not in asked or topic.topic.startswith(INTERNAL):
                    continue
                partition = self._history.partition(*place)
                if row.log_start_offset > 0:
                    partition.delete_below(row.log_start_offset)
                if self._positions.get((process, place)) != asked[place]:
                    self._history.move(process, {partition: asked[place]}, keeps_others=True)
                following = asked[place]
                missing = lacking.get(id(row.records), 0)
                if missing:
                    partition.cut()
                for view, is_shown in batches_in(row, row.records[: len(row.records) - missing], committed_only=True):
                    if not is_shown:
                        continue
                    found = iter_all_records(row.records, view, max_decompressed_bytes=DECOMPRESSED_MAX_BYTES)
                    # A record of an old format may have been converted: its value does not name its send.
                    is_same = view.magic >= 2
                    records += [
                        (partition, each.offset, identity(view, each) if is_same else None)
                        for each in found
                        if each.offset >= asked[place]
                    ]
                    following = max(following, view.next_offset)
                self._positions[process, place] = following
        committed_only = request.isolation_level == READ_COMMITTED
        self._history.poll(process, exchange.time_ns, ended, records, committed_only=committed_only)

    def _asked(self, request: Any, response: Any) -> dict[Place, int]:
        """The offsets that a Fetch asks for, with the remembered ones of its session."""
        asked = {(topic.topic, row.partition): row.fetch_offset for topic in request.topics for row in topic.partitions}
        if request.session_epoch <= INITIAL_EPOCH:
            self._sessions.pop(request.session_id, None)
            if response.session_id:
                self._sessions[response.session_id] = asked
            return asked
        session = self._sessions.setdefault(request.session_id, {})
        for topic in request.forgotten_topics:
            for number in topic.partitions:
                session.pop((topic.topic, number), None)
        session |= asked
        return session


def process_name(name: str, exchange: Exchange) -> str:
    return f"{name}{exchange.client_id} #{exchange.connection}"


def producer_name(exchange: Exchange, producer_id: int) -> str:
    return f"{exchange.client_id} producer {producer_id}"


def identity(view: BatchView, record: Record) -> str:
    """Name a record by its value; by key and headers too, and by its producer's number, where it has them."""
    text = shown(record.value)
    name = "null" if text is None else text
    if len(name) > LONGEST_TEXT or record.key is not None or record.headers:
        content = repr((record.key, record.value, record.headers)).encode()
        name = f"{name[:CUT_TEXT]} ~{blake2b(content, digest_size=DIGEST_BYTES).hexdigest()}"
    if record.sequence != NO_SEQUENCE:
        name += f" #{view.producer_id}.{view.producer_epoch}.{record.sequence}"
    return name
