"""Rows 31-34 of kafka 2.0.1's fetch path: the end of a wait, once, on time, and nothing left of it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.protocol.errors import ErrorCode
from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer, TimerTask
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import assign, follow, park
from tests.fetch_path.asking import LONG_MS, fetch_rows, fill, seconds, sizes, wanted


class Operation(DelayedOperation):
    """Waits for `is_ready`, and counts its answers."""

    def __init__(self, delay_ms: int = 1000) -> None:
        super().__init__(delay_ms)
        self.is_ready = False
        self.answers = self.expirations = 0

    def try_complete(self) -> bool:
        return self.is_ready and self.force_complete()

    def on_complete(self) -> None:
        self.answers += 1

    def on_expiration(self) -> None:
        self.expirations += 1


# -- row 31: expiry -------------------------------------------------------------------------------------------


async def test_row_31_at_max_wait_what_is_there_is_answered(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t", 2)
    both = ("t", [wanted(0, 0), wanted(1, 0)])
    batch = await fill(broker, "t")
    began = trio.current_time()
    parked = await park(nursery, fetch_rows, broker, both, max_wait_ms=500, min_bytes=10_000)

    await fill(broker, "t", partition=1)
    assert await parked.seen() is None
    await trio.sleep(0.501)

    assert sizes(await parked.seen()) == [batch, batch]
    assert trio.current_time() - began < 0.51


async def test_row_31_expired_and_completed_are_counted_apart(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    purgatory = broker.parts.replica_manager.fetch_purgatory

    await broker.fetch(("t", 0, 0), max_wait_ms=10)
    await park(nursery, broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)
    await fill(broker, "t")

    assert (purgatory.statistics().expired, purgatory.statistics().completed) == (1, 1)


# -- row 32: once ---------------------------------------------------------------------------------------------


def test_row_32_of_condition_deadline_and_force_only_the_first_answers() -> None:
    timer = Timer(start_ms=0)
    purgatory = Purgatory("test", timer)
    operation = Operation()
    purgatory.try_complete_else_watch(operation, ["a", "b"], now_ms=0)

    operation.is_ready = True
    completed = [purgatory.check_and_complete(key) for key in ("a", "b", "a")]
    timer.advance(10_000)

    assert completed == [1, 0, 0]
    assert not operation.force_complete()
    assert (operation.answers, operation.expirations) == (1, 0)


def test_row_32_a_check_that_comes_while_the_condition_is_tried_answers_no_second_time() -> None:
    purgatory = Purgatory("test", Timer(start_ms=0))

    class Reentrant(Operation):
        is_being_tried = False

        def try_complete(self) -> bool:
            if not self.is_ready:
                return False
            if not self.is_being_tried:
                self.is_being_tried = True
                purgatory.check_and_complete("a")  # completes it before this try does
            return self.force_complete()

    operation = Reentrant()
    purgatory.try_complete_else_watch(operation, ["a"], now_ms=0)
    operation.is_ready = True

    purgatory.check_and_complete("a")

    assert operation.answers == 1


async def test_row_32_data_and_the_deadline_at_one_moment_are_one_answer(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    answers = []

    async def fetch() -> None:
        answers.append(await broker.fetch(("t", 0, 0), max_wait_ms=500))

    nursery.start_soon(fetch)
    await trio.sleep(0.5)
    await fill(broker, "t")
    await trio.sleep(1)

    statistics = broker.parts.replica_manager.fetch_purgatory.statistics()
    assert len(answers) == 1
    assert (statistics.delayed, statistics.completed + statistics.expired) == (0, 1)


# -- row 33: purge --------------------------------------------------------------------------------------------


def test_row_33_what_is_done_leaves_the_lists_when_more_than_a_thousand_have_gathered() -> None:
    interval = KafkaConfig({"log.dirs": "/nowhere"}).fetch_purgatory_purge_interval_requests
    purgatory = Purgatory("Fetch", Timer(start_ms=0), purge_interval=interval)
    operations = [Operation() for _ in range(1001)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, ["quiet", f"busy {number}"], now_ms=0)
        operation.is_ready = True

    watched = []
    for number in range(1001):
        purgatory.check_and_complete(f"busy {number}")
        watched.append(purgatory.statistics().watched)

    assert interval == 1000
    assert watched[998:] == [1003, 1002, 0]


async def test_row_33_the_interval_is_a_setting(
    make_broker: MakeBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    broker = make_broker(fetch_purgatory_purge_interval_requests=1)
    await broker.create_topic("t", 2)
    both = ("t", [wanted(0, 0), wanted(1, 0)])
    for _ in range(2):
        await park(nursery, fetch_rows, broker, both, max_wait_ms=LONG_MS)

    await fill(broker, "t")

    assert broker.parts.replica_manager.fetch_purgatory.statistics().watched == 0


# -- row 34: the timing wheel ---------------------------------------------------------------------------------

# On both sides of where one of Kafka's wheels (20 slots each) or of ours (256) goes over into the next.
DEADLINES_MS = sorted(
    {edge**level + step for edge in (20, 256) for level in (1, 2, 3, 4) for step in (-1, 0, 1)} | {1, 2, 2**31}
)


class Noted(TimerTask):
    """Notes when it fired."""

    def __init__(self, fired: list[int]) -> None:
        super().__init__()
        self._fired = fired

    def on_timeout(self) -> None:
        self._fired.append(self.deadline_ms)


@pytest.mark.parametrize("start_ms", [0, 1, 19, 255, 1_000_003])
def test_row_34_every_deadline_is_met_to_the_millisecond(start_ms: int) -> None:
    timer, fired = Timer(start_ms), list[int]()
    for delay_ms in reversed(DEADLINES_MS):
        timer.add(Noted(fired), start_ms + delay_ms)

    for number, delay_ms in enumerate(DEADLINES_MS):
        timer.advance(start_ms + delay_ms - 1)
        assert len(fired) == number
        timer.advance(start_ms + delay_ms)
        assert fired[number:] == [start_ms + delay_ms]


@pytest.mark.parametrize("max_wait_ms", [1, 19, 20, 21, 399, 400, 401, 8_001, 65_537])
async def test_row_34_a_fetch_waits_as_long_as_it_says(
    broker: InMemoryBroker, autojump_clock: MockClock, max_wait_ms: int
) -> None:
    await broker.create_topic("t")

    took, _ = await seconds(broker.fetch(("t", 0, 0), max_wait_ms=max_wait_ms))

    assert max_wait_ms <= took * 1000 + 0.001 < max_wait_ms + 2


async def test_row_34_a_produce_waits_as_long_as_it_says(broker: InMemoryBroker, autojump_clock: MockClock) -> None:
    await assign(broker, "t", [0, 1])
    await follow(broker, "t", 0)

    took, answer = await seconds(broker.produce("t", [b"x"], acks=-1))

    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert took == pytest.approx(1.0, abs=0.002)  # the timeout_ms that `produce` says
