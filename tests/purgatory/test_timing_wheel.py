"""The timing wheel against what it promises: once, not early, in order, under any jump of time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minibroker.purgatory.timing_wheel import MOVES_PER_TASK, Timer, TimerTask

START_MS = 1_000
# On both sides of where one of Kafka's wheels (20 slots each) or of ours (256) goes over into the next.
EDGES_MS = {edge**level + step for edge in (20, 256) for level in (1, 2, 3, 4) for step in (-1, 0, 1)}
DELAYS_OF_EVERY_LEVEL_MS = sorted(EDGES_MS | {3 * 256**level for level in range(8)} | {1, 2, 2**31})


class Alarm(TimerTask):
    """Writes its name into a list when it fires, and may do something else then."""

    def __init__(self, name: int, fired: list[int], then: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.name = name
        self.fired = fired
        self.then = then

    def on_timeout(self) -> None:
        self.fired.append(self.name)
        if self.then is not None:
            self.then()


@pytest.fixture
def timer() -> Timer:
    return Timer(start_ms=START_MS)


@pytest.fixture
def fired() -> list[int]:
    return []


def test_a_deadline_in_the_past_fires_at_the_next_advance_even_if_time_stands(timer: Timer, fired: list[int]) -> None:
    timer.add(Alarm(1, fired), START_MS - 500)

    assert fired == []
    assert timer.next_deadline_ms() == START_MS
    assert timer.advance(START_MS) == 1


def test_a_cancelled_task_never_fires_and_is_freed_at_once(timer: Timer, fired: list[int]) -> None:
    alarms = [Alarm(name, fired) for name in range(3)]
    for alarm in alarms:
        timer.add(alarm, START_MS + 5)

    assert timer.cancel(alarms[1])
    assert not timer.cancel(alarms[1])
    assert not alarms[1].is_pending
    assert not hasattr(alarms[1], "_next")
    assert len(timer) == 2
    timer.advance(START_MS + 10)

    assert fired == [0, 2]
    assert timer.next_deadline_ms() is None


def test_lit_slots_of_a_level_have_all_its_tasks_in_the_order_of_their_deadlines(
    timer: Timer, fired: list[int]
) -> None:
    deadlines_ms = [2000, 1007, 1324, 1005, 1007]
    for name, deadline_ms in enumerate(deadlines_ms):
        timer.add(Alarm(name, fired), deadline_ms)

    def lit(level: int) -> list[tuple[int, list[int]]]:
        return [(slot, [task.deadline_ms for task in tasks]) for slot, tasks in timer.lit_slots(level)]

    assert lit(0) == [(1005 & 255, [1005]), (1007 & 255, [1007, 1007])]
    assert lit(1) == [(1324 >> 8, [1324]), (2000 >> 8, [2000])]
    assert lit(2) == []


def test_adding_a_pending_task_again_moves_it(timer: Timer, fired: list[int]) -> None:
    alarm = Alarm(1, fired)
    timer.add(alarm, START_MS + 5)
    timer.add(alarm, START_MS + 500)

    assert len(timer) == 1
    assert timer.advance(START_MS + 499) == 0
    assert timer.advance(START_MS + 500) == 1


@pytest.mark.parametrize("start_ms", [0, 1, 19, 255, START_MS + 3])
def test_row_34_deadlines_of_every_level_are_met_to_the_millisecond(fired: list[int], start_ms: int) -> None:
    timer = Timer(start_ms)
    for delay_ms in reversed(DELAYS_OF_EVERY_LEVEL_MS):
        timer.add(Alarm(delay_ms, fired), start_ms + delay_ms)

    for delay_ms in DELAYS_OF_EVERY_LEVEL_MS:
        assert timer.advance(start_ms + delay_ms - 1) == 0
        assert timer.advance(start_ms + delay_ms) == 1
    assert fired == DELAYS_OF_EVERY_LEVEL_MS


def test_equal_deadlines_fire_in_order_of_adding_across_levels(timer: Timer, fired: list[int]) -> None:
    deadline_ms = START_MS + 100_000
    for name, now_ms in enumerate([0, 30_000, 99_000, 99_990]):
        timer.advance(START_MS + now_ms)
        timer.add(Alarm(name, fired), deadline_ms)

    timer.advance(deadline_ms)

    assert fired == [0, 1, 2, 3]


def test_time_that_goes_back_changes_nothing(timer: Timer, fired: list[int]) -> None:
    timer.advance(START_MS + 1_000)
    timer.add(Alarm(1, fired), START_MS + 1_500)
    timer.add(Alarm(0, fired), START_MS + 1_010)

    assert timer.advance(START_MS) == 0
    assert timer.advance(START_MS + 5) == 0
    assert timer.advance(START_MS + 1_010) == 1
    timer.add(Alarm(2, fired), START_MS + 1_400)
    assert timer.advance(START_MS + 1_400) == 1
    assert timer.advance(START_MS + 1_500) == 1
    assert fired == [0, 2, 1]


def test_a_bounded_pass_leaves_the_rest_for_the_next_call(timer: Timer, fired: list[int]) -> None:
    for name in range(10):
        timer.add(Alarm(name, fired), START_MS + 5)

    assert timer.advance(START_MS + 5, max_tasks=4) == 4
    assert timer.next_deadline_ms() == START_MS + 5
    assert timer.advance(START_MS + 5, max_tasks=4) == 4
    assert timer.advance(START_MS + 5, max_tasks=4) == 2
    assert timer.next_deadline_ms() is None
    assert fired == list(range(10))


def test_a_bounded_pass_also_bounds_the_moves_between_levels(timer: Timer, fired: list[int]) -> None:
    count = 5 * MOVES_PER_TASK
    for name in range(count):
        timer.add(Alarm(name, fired), START_MS + 1_000 + name)  # one slot of level 1 or two
    now_ms = START_MS + 999

    passes = 0
    while (next_ms := timer.next_deadline_ms()) is not None and next_ms <= now_ms:
        assert timer.advance(now_ms, max_tasks=1) == 0
        passes += 1

    assert passes >= 5
    assert timer.advance(START_MS + 1_000 + count) == count
    assert fired == list(range(count))


def test_a_task_may_be_cancelled_while_its_slot_is_half_moved(timer: Timer, fired: list[int]) -> None:
    alarms = [Alarm(name, fired) for name in range(3 * MOVES_PER_TASK)]
    for alarm in alarms:
        timer.add(alarm, START_MS + 2_000 + alarm.name)
    timer.advance(START_MS + 2_000 - 1, max_tasks=1)

    for alarm in alarms[1:]:
        assert timer.cancel(alarm)
    timer.advance(START_MS + 5_000)

    assert fired == [0]


def test_a_firing_task_may_add_cancel_and_add_itself_again(timer: Timer, fired: list[int]) -> None:
    victim = Alarm(2, fired)
    late = Alarm(3, fired)
    first = Alarm(1, fired)

    def act() -> None:
        timer.cancel(victim)
        timer.add(late, START_MS + 20)
        if len(fired) == 1:
            timer.add(first, START_MS + 40)

    first.then = act
    timer.add(first, START_MS + 10)
    timer.add(victim, START_MS + 10)

    run_to(timer, START_MS + 100)

    assert fired == [1, 3, 1, 3]


def test_a_task_that_is_always_due_cannot_hold_a_pass_for_ever(timer: Timer, fired: list[int]) -> None:
    alarm = Alarm(1, fired)
    alarm.then = lambda: timer.add(alarm, 0)
    timer.add(alarm, START_MS)

    assert timer.advance(START_MS + 10) == 1
    assert timer.advance(START_MS + 10) == 1


def test_a_task_may_advance_the_timer_itself(timer: Timer, fired: list[int]) -> None:
    timer.add(Alarm(1, fired, then=lambda: timer.advance(START_MS + 90_000, max_tasks=1)), START_MS + 10)
    for name in range(2, 50):
        timer.add(Alarm(name, fired), START_MS + 80_000 + name)

    timer.advance(START_MS + 90_000)

    assert fired == list(range(1, 50))


def test_a_task_that_raises_is_done_and_the_others_still_fire(timer: Timer, fired: list[int]) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    timer.add(Alarm(1, fired), START_MS + 10)
    timer.add(Alarm(2, fired, then=fail), START_MS + 10)
    timer.add(Alarm(3, fired), START_MS + 10)

    with pytest.raises(RuntimeError):
        timer.advance(START_MS + 10)
    timer.advance(START_MS + 10)

    assert fired == [1, 2, 3]
    assert len(timer) == 0


def test_next_deadline_is_exact_when_near_and_never_late_when_far(timer: Timer, fired: list[int]) -> None:
    timer.add(Alarm(1, fired), START_MS + 1_000_000)
    far_ms = timer.next_deadline_ms()
    timer.add(Alarm(2, fired), START_MS + 3)

    assert far_ms is not None
    assert START_MS < far_ms <= START_MS + 1_000_000
    assert timer.next_deadline_ms() == START_MS + 3


def test_an_earlier_task_is_announced_and_a_later_one_is_not(fired: list[int]) -> None:
    announced: list[int] = []
    timer = Timer(START_MS, on_earlier=announced.append)

    timer.add(Alarm(1, fired), START_MS + 200)
    timer.add(Alarm(2, fired), START_MS + 200)
    timer.add(Alarm(3, fired), START_MS + 100)
    assert announced == [START_MS + 200, START_MS + 100]

    timer.advance(START_MS + 100)
    assert timer.next_deadline_ms() == START_MS + 200
    timer.add(Alarm(6, fired), START_MS + 200)
    timer.add(Alarm(4, fired), START_MS + 250)
    timer.add(Alarm(5, fired), START_MS + 150)
    assert announced[2:] == [START_MS + 150]


def run_to(timer: Timer, now_ms: int) -> int:
    """As the broker's timer task does it: step from deadline to deadline; return how often it woke."""
    wakes = 0
    while (next_ms := timer.next_deadline_ms()) is not None and next_ms <= now_ms:
        timer.advance(next_ms)
        wakes += 1
    timer.advance(now_ms)
    return wakes


def test_waiting_for_one_far_task_takes_few_wakes(timer: Timer, fired: list[int]) -> None:
    timer.add(Alarm(1, fired), START_MS + 7 * 24 * 3_600_000 + 77)

    assert run_to(timer, START_MS + 7 * 24 * 3_600_000 + 77) <= 8
    assert fired == [1]


DELAYS = st.one_of(
    st.integers(-5, 600), st.integers(0, 70_000), st.integers(0, 2**34), st.sampled_from([255, 256, 65_536])
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DELAYS),
        st.tuples(st.just("cancel"), st.integers(0, 10_000)),
        st.tuples(st.just("advance"), DELAYS),
        st.tuples(st.just("bounded"), DELAYS),
        st.tuples(st.just("sleep"), DELAYS),
    ),
    max_size=120,
)


@settings(max_examples=150, deadline=None)
@given(start_ms=st.sampled_from([0, 1, 255, 65_535, 2**32 - 3, 1_700_000_000_000]), steps=STEPS)
def test_any_history_fires_the_same_tasks_as_a_heap(start_ms: int, steps: list[tuple[str, int]]) -> None:
    check_against_heap(start_ms, steps)


@pytest.mark.slow
def test_long_random_histories_fire_the_same_tasks_as_a_heap() -> None:
    generator = random.Random(20_111)
    for _ in range(200):
        steps = []
        for _ in range(600):
            kind = generator.choices(["add", "cancel", "advance", "bounded", "sleep"], [20, 10, 4, 4, 1])[0]
            steps.append((kind, generator.randrange(generator.choice([10, 300, 3_000, 100_000, 2**33]))))
        check_against_heap(generator.randrange(2**33), steps)


def check_against_heap(start_ms: int, steps: list[tuple[str, int]]) -> None:
    """Run `steps` on a wheel and on a heap; compare all that fires, and when."""
    timer = Timer(start_ms=start_ms)
    fired: list[int] = []
    model: list[tuple[int, int]] = []  # deadline, name
    alarms: dict[int, Alarm] = {}
    now_ms = start_ms
    expected: list[int] = []
    for name, (kind, value) in enumerate(steps):
        if kind == "add":
            alarms[name] = Alarm(name, fired)
            timer.add(alarms[name], now_ms + value)
            # What is overdue when added is due now, behind what already is.
            heapq.heappush(model, (max(now_ms + value, now_ms), name))
        elif kind == "cancel" and alarms:
            victim = list(alarms)[value % len(alarms)]
            was_pending = any(entry[1] == victim for entry in model)
            assert timer.cancel(alarms.pop(victim)) == was_pending
            model = [entry for entry in model if entry[1] != victim]
            heapq.heapify(model)
        elif kind in ("advance", "bounded", "sleep"):
            now_ms = max(now_ms, now_ms + value)
            if kind == "bounded":
                advance_in_passes(timer, now_ms, value % 7 + 1)
            elif kind == "sleep":
                run_to(timer, now_ms)
            else:
                timer.advance(now_ms)
            while model and model[0][0] <= now_ms:
                expected.append(heapq.heappop(model)[1])
            assert fired == expected
        assert len(timer) == len(model)
        next_ms = timer.next_deadline_ms()
        assert (next_ms is None) == (not model)
        assert next_ms is None or next_ms <= model[0][0]


def advance_in_passes(timer: Timer, now_ms: int, max_tasks: int) -> None:
    """Advance as the broker does after a burst: no pass fires more than it may."""
    while True:
        assert timer.advance(now_ms, max_tasks=max_tasks) <= max_tasks
        next_ms = timer.next_deadline_ms()
        if next_ms is None or next_ms > now_ms:
            return
