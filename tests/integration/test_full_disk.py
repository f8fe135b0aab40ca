"""A full disk: writes are refused, reads go on, and when there is room again so do writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.brokers import BrokerProcess, Minibroker
from tests.integration.conftest import StartMinibroker
from tests.integration.hostile_batches import valid
from tests.integration.topics import create_topic, read_everything
from tests.integration.wire import RawConnection, write

BALLAST_BYTES = 3 * 2**20
KAFKA_STORAGE_ERROR = 56
SMALL_FILES = {"log.index.size.max.bytes": 4096, "log.segment.bytes": 1_000_000, "log.retention.ms": -1}


Start = Callable[[], Minibroker]


@pytest.fixture
def start(start_minibroker: StartMinibroker, small_disk: Path) -> Start:
    """Start a broker on the small disk; a second one finds what the first has left."""
    arguments = ("--data-dir", str(small_disk / "data"))
    return lambda: start_minibroker(*arguments, settings=SMALL_FILES).wait_until_ready()


def produce_until_refused(broker: BrokerProcess) -> tuple[int, int]:
    """Fill the disk; return how many records were acked and the error code that ended it."""
    acked = 0
    with RawConnection(broker.host, broker.port) as connection:
        while True:
            row = write(connection, "t", valid(size_bytes=30_000))
            if row.error_code != 0:
                return acked, row.error_code
            assert row.base_offset == acked
            acked += 3


def test_a_full_disk_refuses_writes_serves_reads_and_recovers(start: Start, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    broker = start()
    create_topic(broker, "t")
    ballast.write_bytes(bytes(BALLAST_BYTES))

    acked, code = produce_until_refused(broker)

    assert code == KAFKA_STORAGE_ERROR
    assert acked > 0
    assert [record.offset for record in read_everything(broker, 0)] == list(range(acked))
    broker.wait_for_log(r"(?i)no space left")

    ballast.unlink()
    with RawConnection(broker.host, broker.port) as connection:
        row = write(connection, "t", valid())
    assert (row.error_code, row.base_offset) == (0, acked)
    assert [record.offset for record in read_everything(broker, 0)] == list(range(acked + 3))
    assert broker.terminate() == 0


def test_what_was_acked_before_the_disk_was_full_survives_a_crash(start: Start, small_disk: Path) -> None:
    first = start()
    create_topic(first, "t")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    acked, _ = produce_until_refused(first)
    first.kill()

    ballast.unlink()
    second = start()

    assert [record.offset for record in read_everything(second, 0)] == list(range(acked))


def test_a_topic_that_does_not_fit_is_refused_and_the_broker_goes_on(start: Start) -> None:
    broker = start()
    create_topic(broker, "t")
    produce_until_refused(broker)

    with pytest.raises(AssertionError):
        create_topic(broker, "another", partitions=50)

    assert broker.is_running
    assert read_everything(broker, 0)
