"""A follower that speaks real FETCH to a started broker: acks=all, the in-sync replicas, a copy equal to the byte.

Rows 52 to 59 of kafka 2.0.1's fetch path, over real sockets and a real kill -9; tests/broker/ has each of them with the
time jumped, tests/conformance/scripts/followers.py what Apache Kafka answered.
"""

from __future__ import annotations

import threading
from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch, read_header
from tests.integration.brokers import Minibroker
from tests.integration.conftest import StartMinibroker
from tests.integration.members import wait_until
from tests.integration.wire import RawConnection, connection_to, list_offsets_body, the_partition

FOLLOWER = 1
SETTINGS: dict[str, str | int] = {
    "broker.id": 0,
    "replica.lag.time.max.ms": 60_000,
    "replica.high.watermark.checkpoint.interval.ms": 50,
    "log.retention.ms": -1,
}
SHORT_LAG: dict[str, str | int] = {"replica.lag.time.max.ms": 5000}  # and yet longer than a look takes
WAIT_MS = 100


class Leader:
    """What a client asks of the broker about topic t."""

    def __init__(self, process: Minibroker) -> None:
        self.process = process

    def call(self, key: ApiKey, version: int, **body: Any) -> Any:
        with connection_to(self.process.bootstrap) as connection:
            return connection.call(key, version, API_TABLE[key].request(**body))

    def create(self) -> None:
        topic = ("t", -1, -1, [(0, [0, FOLLOWER])], [("min.insync.replicas", "2")])
        assert self.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=5000).topics[0].error_code == 0

    def produce(self, *values: bytes, timeout_ms: int = 10_000) -> tuple[int, int]:
        """With acks=all; the error and the base offset."""
        batch = build_batch([Record(number, 1, None, value, ()) for number, value in enumerate(values)])
        topics = [("t", [(0, batch)])]
        row = the_partition(self.call(ApiKey.PRODUCE, 5, acks=-1, timeout_ms=timeout_ms, topics=topics))
        return row.error_code, row.base_offset

    def in_sync(self) -> list[int]:
        topics = [API_TABLE[ApiKey.METADATA].request.row("topics")(name="t")]
        answer = self.call(ApiKey.METADATA, 5, topics=topics, allow_auto_topic_creation=False)
        return list(the_partition(answer).isr_nodes)

    def high_watermark(self) -> int:
        with connection_to(self.process.bootstrap) as connection:
            return int(the_partition(connection.call(ApiKey.LIST_OFFSETS, 2, list_offsets_body("t"))).offset)


class Follower(threading.Thread):
    """Copies the partition, in a fetch session as a real one's, until it is stopped."""

    def __init__(self, broker: Minibroker) -> None:
        super().__init__(daemon=True)
        self._leader = broker.bootstrap
        self._has_to_stop = threading.Event()
        self.copy = bytearray()
        self.end_offset = 0
        self.high_watermark = -1
        self.failure: BaseException | None = None

    def stop(self) -> None:
        self._has_to_stop.set()
        self.join()
        assert self.failure is None, self.failure

    def run(self) -> None:
        try:
            with connection_to(self._leader) as connection:
                self._follow(connection)
        except BaseException as failure:
            self.failure = failure

    def _follow(self, connection: RawConnection) -> None:
        message = API_TABLE[ApiKey.FETCH].request
        session_id, epoch, asked = 0, 0, -1
        while not self._has_to_stop.is_set():
            row = message.row("topics.partitions")(partition=0, fetch_offset=self.end_offset, max_bytes=1 << 20)
            topics = [] if asked == self.end_offset else [("t", [row._replace(log_start_offset=0)])]
            asked = self.end_offset
            session = {"session_id": session_id, "session_epoch": epoch}
            body = message(replica_id=FOLLOWER, max_wait_ms=WAIT_MS, min_bytes=1, **session, topics=topics)
            answer = connection.call(ApiKey.FETCH, 8, body)
            assert answer.error_code == ErrorCode.NONE
            session_id, epoch = answer.session_id, epoch + 1
            for topic in answer.topics:
                for row in topic.partitions:
                    self._append(row)

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


def test_rows_52_to_59_a_follower_joins_is_waited_for_and_leaves_after_a_kill_9(
    start_minibroker: StartMinibroker,
) -> None:
    broker = Leader(start_minibroker(settings=SETTINGS).wait_until_ready())
    broker.create()
    refused, _ = broker.produce(b"alone")
    follower = Follower(broker.process)
    follower.start()
    wait_until(lambda: broker.in_sync() == [0, FOLLOWER], "the follower in sync")

    answers = [broker.produce(b"%d" % number, b"x" * 1000) for number in range(50)]

    assert refused == ErrorCode.NOT_ENOUGH_REPLICAS
    assert answers == [(ErrorCode.NONE, 2 * number) for number in range(50)]
    assert follower.end_offset == 100
    wait_until(lambda: follower.high_watermark == 100, "the last high watermark")
    segment = broker.process.data_dir / "t-0" / "00000000000000000000.log"
    assert segment.read_bytes() == follower.copy

    follower.stop()
    assert broker.produce(b"not copied", timeout_ms=100) == (ErrorCode.REQUEST_TIMED_OUT, 100)
    assert broker.high_watermark() == 100
    checkpoint = broker.process.data_dir / "replication-offset-checkpoint"
    wait_until(lambda: checkpoint.exists() and "t 0 100" in checkpoint.read_text(), "the high watermark on the disk")
    broker.process.kill()
    again = Leader(start_minibroker(settings=SETTINGS | SHORT_LAG).wait_until_ready())

    assert again.in_sync() == [0, FOLLOWER]
    assert again.high_watermark() == 100
    wait_until(lambda: again.in_sync() == [0], "who does not come back leaves")
    assert again.high_watermark() == 101
