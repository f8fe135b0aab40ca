"""A follower that speaks real FETCH to a started broker: acks=all, the in-sync replicas, a copy equal to the byte.

Rows 52 to 59 of kafka 2.0.1's fetch path, over real sockets; tests/broker/ has each of them with the time jumped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch, read_header
from tests.integration.brokers import Minibroker
from tests.integration.conftest import StartMinibroker
from tests.integration.wire import RawConnection

FOLLOWER = 1
LAG_MS = 1000
SETTINGS: dict[str, str | int] = {
    "replica.lag.time.max.ms": LAG_MS,
    "replica.high.watermark.checkpoint.interval.ms": 50,
    "log.retention.ms": -1,
}
WAIT_MS = 100
PATIENCE_SECONDS = 60.0
TIMESTAMP_MS = 1_500_000_000_000


def request(key: ApiKey, **body: Any) -> Any:
    return API_TABLE[key].request(**body)


class Broker:
    """What a client asks of the broker."""

    def __init__(self, process: Minibroker, connection: RawConnection) -> None:
        self.process = process
        self._connection = connection

    def assign(self, topic: str, *replicas: list[int], **configs: str) -> None:
        rows = [(name.replace("_", "."), value) for name, value in configs.items()]
        topics = [(topic, -1, -1, list(enumerate(replicas)), rows)]
        body = request(ApiKey.CREATE_TOPICS, topics=topics, timeout_ms=5000)
        answer = self._connection.call(ApiKey.CREATE_TOPICS, 2, body)
        assert answer.topics[0].error_code == ErrorCode.NONE

    def produce(self, topic: str, *values: bytes, timeout_ms: int = 10_000) -> tuple[int, int]:
        """With acks=all; the error and the base offset."""
        batch = build_batch([Record(number, TIMESTAMP_MS, None, value, ()) for number, value in enumerate(values)])
        body = request(ApiKey.PRODUCE, acks=-1, timeout_ms=timeout_ms, topics=[(topic, [(0, batch)])])
        row = self._connection.call(ApiKey.PRODUCE, 5, body).topics[0].partitions[0]
        return row.error_code, row.base_offset

    def in_sync(self, topic: str) -> list[int]:
        rows = [API_TABLE[ApiKey.METADATA].request.row("topics")(name=topic)]
        body = request(ApiKey.METADATA, topics=rows, allow_auto_topic_creation=False)
        return list(self._connection.call(ApiKey.METADATA, 5, body).topics[0].partitions[0].isr_nodes)

    def high_watermark(self, topic: str) -> int:
        rows = request(ApiKey.LIST_OFFSETS, replica_id=-1, topics=[(topic, [list_latest()])])
        offset: int = self._connection.call(ApiKey.LIST_OFFSETS, 2, rows).topics[0].partitions[0].offset
        return offset


def list_latest() -> Any:
    return API_TABLE[ApiKey.LIST_OFFSETS].request.row("topics.partitions")(partition=0, timestamp=-1)


class Follower(threading.Thread):
    """Copies partition 0 of a topic, in a fetch session as a real one's, until it is stopped."""

    def __init__(self, broker: Minibroker, topic: str) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._topic = topic
        self._has_to_stop = threading.Event()
        self.copy = bytearray()
        self.end_offset = 0
        self.high_watermark = -1
        self.failure: BaseException | None = None

    def __enter__(self) -> Follower:
        self.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._has_to_stop.set()
        self.join()
        assert self.failure is None, self.failure

    def run(self) -> None:
        try:
            with RawConnection(self._broker.host, self._broker.port) as connection:
                self._follow(connection)
        except BaseException as failure:
            self.failure = failure

    def _follow(self, connection: RawConnection) -> None:
        session_id, epoch, asked = 0, 0, -1
        while not self._has_to_stop.is_set():
            topics = [] if asked == self.end_offset else [(self._topic, [self._row()])]
            asked = self.end_offset
            answer = connection.call(
                ApiKey.FETCH,
                8,
                request(
                    ApiKey.FETCH,
                    replica_id=FOLLOWER,
                    max_wait_ms=WAIT_MS,
                    min_bytes=1,
                    session_id=session_id,
                    session_epoch=epoch,
                    topics=topics,
                ),
            )
            assert answer.error_code == ErrorCode.NONE
            session_id, epoch = answer.session_id, epoch + 1
            for topic in answer.topics:
                for row in topic.partitions:
                    self._append(row)

    def _row(self) -> Any:
        make_row = API_TABLE[ApiKey.FETCH].request.row("topics.partitions")
        return make_row(partition=0, fetch_offset=self.end_offset, log_start_offset=0, max_bytes=1 << 20)

    def _append(self, row: Any) -> None:
        assert row.error_code == ErrorCode.NONE
        self.high_watermark = row.high_watermark
        data = bytes(row.records)
        while data:
            header = read_header(data)
            size = 12 + header.batch_length
            self.copy += data[:size]
            self.end_offset = header.base_offset + header.last_offset_delta + 1
            data = data[size:]


def until(holds: Callable[[], bool], what: str) -> float:
    """Wait for it; the seconds it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < PATIENCE_SECONDS, f"never: {what}"
        time.sleep(0.01)
    return time.monotonic() - began


def started(start_minibroker: StartMinibroker, stack: ExitStack, name: str = "one") -> Broker:
    process = start_minibroker("--set", "broker.id=0", settings=SETTINGS, name=name).wait_until_ready()
    return Broker(process, stack.enter_context(RawConnection(process.host, process.port)))


def test_rows_52_to_58_a_follower_joins_and_acks_all_waits_for_its_copy(start_minibroker: StartMinibroker) -> None:
    with ExitStack() as stack:
        broker = started(start_minibroker, stack)
        broker.assign("t", [0, FOLLOWER], min_insync_replicas="2")
        refused = broker.produce("t", b"alone")
        follower = stack.enter_context(Follower(broker.process, "t"))
        until(lambda: broker.in_sync("t") == [0, FOLLOWER], "the follower is in sync")

        answers = [broker.produce("t", b"%d" % number, b"x" * 1000) for number in range(50)]

        assert refused[0] == ErrorCode.NOT_ENOUGH_REPLICAS
        assert answers == [(ErrorCode.NONE, 2 * number) for number in range(50)]
        assert follower.end_offset == 100
        until(lambda: follower.high_watermark == 100, "the follower is told of the last high watermark")
        segment = broker.process.data_dir / "t-0" / "00000000000000000000.log"
        assert segment.read_bytes() == follower.copy


def test_rows_56_and_58_a_follower_that_stops_is_waited_for_until_it_leaves(start_minibroker: StartMinibroker) -> None:
    with ExitStack() as stack:
        broker = started(start_minibroker, stack)
        broker.assign("t", [FOLLOWER, 0])
        follower = stack.enter_context(Follower(broker.process, "t"))
        until(lambda: broker.in_sync("t") == [0, FOLLOWER], "the follower is in sync")
        follower.stop()

        began = time.monotonic()
        assert broker.produce("t", b"waits", timeout_ms=100) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert broker.high_watermark("t") == 0
        assert broker.produce("t", b"is committed when it leaves") == (ErrorCode.NONE, 1)
        took_ms = (time.monotonic() - began) * 1000

        assert took_ms >= LAG_MS - 2 * WAIT_MS  # and less than the second request's timeout
        assert broker.in_sync("t") == [0]
        assert broker.high_watermark("t") == 2
        with Follower(broker.process, "t"):
            until(lambda: broker.in_sync("t") == [0, FOLLOWER], "it came back")


def test_rows_56_and_59_kill_9_leaves_who_was_in_sync_and_how_far_it_was_committed(
    start_minibroker: StartMinibroker,
) -> None:
    with ExitStack() as stack:
        broker = started(start_minibroker, stack)
        broker.assign("t", [0, FOLLOWER])
        with Follower(broker.process, "t"):
            until(lambda: broker.in_sync("t") == [0, FOLLOWER], "the follower is in sync")
            assert broker.produce("t", b"copied") == (ErrorCode.NONE, 0)
        assert broker.produce("t", b"not copied", timeout_ms=100)[0] == ErrorCode.REQUEST_TIMED_OUT
        checkpoint = broker.process.data_dir / "replication-offset-checkpoint"
        until(lambda: checkpoint.exists() and "t 0 1" in checkpoint.read_text(), "the high watermark is written down")
        broker.process.kill()

        again = started(start_minibroker, stack)

        assert again.in_sync("t") == [0, FOLLOWER]
        assert again.high_watermark("t") == 1
        until(lambda: again.in_sync("t") == [0], "who does not come back leaves")
        assert again.high_watermark("t") == 2
