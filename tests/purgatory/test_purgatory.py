"""Delayed operations: completed once, by whichever comes first, and forgotten by whoever watched them."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence

import pytest

from minibroker.purgatory.delayed_operation import DelayedOperation
from minibroker.purgatory.purgatory import Purgatory
from minibroker.purgatory.timing_wheel import Timer

START_MS = 5_000


class Wait(DelayedOperation):
    """Waits until it is told to be ready; counts what is done to it."""

    def __init__(self, delay_ms: int = 100) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.tries = 0
        self.completions = 0
        self.expirations = 0
        self.then: Callable[[], object] | None = None

    def try_complete(self) -> bool:
        self.tries += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        if self.then is not None:
            self.then()

    def on_expiration(self) -> None:
        assert self.completions == 1
        self.expirations += 1


@pytest.fixture
def timer() -> Timer:
    return Timer(start_ms=START_MS)


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("test", timer)


def watch(purgatory: Purgatory, operation: Wait, *keys: Hashable) -> Wait:
    assert not purgatory.try_complete_else_watch(operation, keys or ("a",), START_MS)
    return operation


def test_an_operation_whose_condition_holds_is_completed_and_not_watched(purgatory: Purgatory, timer: Timer) -> None:
    operation = Wait()
    operation.ready = True

    assert purgatory.try_complete_else_watch(operation, ["a", "b"], START_MS)
    assert operation.completions == 1
    assert purgatory.watched == 0
    assert len(timer) == 0


def test_a_waiting_operation_is_completed_by_a_check_of_any_of_its_keys(purgatory: Purgatory, timer: Timer) -> None:
    operation = watch(purgatory, Wait(), "a", "b")

    assert operation.tries == 1
    assert purgatory.check_and_complete("b") == 0
    operation.ready = True
    assert purgatory.check_and_complete("c") == 0
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.watched == 1  # still under a
    assert purgatory.check_and_complete("a") == 0
    assert (operation.completions, purgatory.watched, len(timer)) == (1, 0, 0)


def test_a_check_completes_all_that_are_ready_and_leaves_the_others(purgatory: Purgatory) -> None:
    operations = [watch(purgatory, Wait()) for _ in range(6)]
    for operation in operations[::2]:
        operation.ready = True

    assert purgatory.check_and_complete("a") == 3
    assert [operation.completions for operation in operations] == [1, 0] * 3
    assert purgatory.watched == 3


def test_the_deadline_completes_then_expires_and_no_check_tries_again(purgatory: Purgatory, timer: Timer) -> None:
    operation = watch(purgatory, Wait(delay_ms=100))

    timer.advance(START_MS + 99)
    assert not operation.is_completed
    timer.advance(START_MS + 100)

    operation.ready = True
    assert purgatory.check_and_complete("a") == 0
    assert (operation.completions, operation.expirations, operation.tries) == (1, 1, 1)
    assert purgatory.endings["expired"] == 1


def test_row_32_of_condition_force_deadline_and_cancel_the_first_counts(purgatory: Purgatory, timer: Timer) -> None:
    by_force, by_condition = watch(purgatory, Wait()), watch(purgatory, Wait(), "b", "c")
    by_condition.ready = True

    assert by_force.force_complete()
    assert [purgatory.check_and_complete(key) for key in "bcb"] == [1, 0, 0]
    timer.advance(START_MS + 1_000)

    for operation in (by_force, by_condition):
        assert not operation.force_complete()
        assert not purgatory.cancel(operation)
        assert (operation.completions, operation.expirations) == (1, 0)
    assert (purgatory.endings["completed"], purgatory.endings["cancelled"]) == (2, 0)


def test_row_32_a_check_that_comes_while_the_condition_is_tried_completes_no_second_time(purgatory: Purgatory) -> None:
    class Reentrant(Wait):
        def try_complete(self) -> bool:
            self.tries += 1
            if self.tries == 2:  # the first was when it was watched
                purgatory.check_and_complete("a")  # completes it before this try does
            return self.ready and self.force_complete()

    operation = watch(purgatory, Reentrant())
    operation.ready = True

    purgatory.check_and_complete("a")

    assert operation.completions == 1


def test_a_cancelled_operation_is_never_answered(purgatory: Purgatory, timer: Timer) -> None:
    operation = watch(purgatory, Wait(), "a", "b")

    assert purgatory.cancel(operation)
    assert not purgatory.cancel(operation)
    operation.ready = True
    purgatory.check_and_complete("a")
    timer.advance(START_MS + 1_000)

    assert operation.completions == 0
    assert operation.is_completed
    assert not operation.force_complete()
    assert purgatory.endings["cancelled"] == 1
    assert purgatory.delayed == 0


def test_an_operation_needs_a_key_and_cannot_wait_twice(purgatory: Purgatory) -> None:
    operation = watch(purgatory, Wait())

    with pytest.raises(ValueError, match="without keys"):
        purgatory.try_complete_else_watch(Wait(), [], START_MS)
    with pytest.raises(ValueError, match="only once"):
        purgatory.try_complete_else_watch(operation, ["b"], START_MS)
    assert purgatory.watched == 1


def test_an_operation_completed_during_its_own_check_is_not_watched(purgatory: Purgatory, timer: Timer) -> None:
    class Odd(Wait):
        def try_complete(self) -> bool:
            self.force_complete()
            return False

    assert not purgatory.try_complete_else_watch(Odd(), ["a"], START_MS)
    assert purgatory.watched == 0
    assert len(timer) == 0


def test_row_33_completed_operations_leave_other_lists_when_more_than_the_interval_have_gathered(timer: Timer) -> None:
    purgatory = Purgatory("test", timer, purge_interval=10)
    bystander = watch(purgatory, Wait(), "b", "quiet")
    for _ in range(10):
        watch(purgatory, Wait(), "a", "b").force_complete()
    assert purgatory.watched == 22

    watch(purgatory, Wait(), "a", "b").force_complete()

    assert purgatory.watched == 2
    assert purgatory.purged == 22
    assert not bystander.is_completed
    bystander.ready = True
    assert purgatory.check_and_complete("b") == 1


def test_keys_that_come_and_go_do_not_accumulate(timer: Timer) -> None:
    purgatory = Purgatory("test", timer, purge_interval=100)
    for name in range(5_000):
        operation = watch(purgatory, Wait(), f"topic-{name}", f"other-{name}")
        if name % 3 == 0:
            purgatory.cancel(operation)
        elif name % 3 == 1:
            operation.force_complete()
    timer.advance(START_MS + 100)

    assert len(purgatory._watchers) <= 202
    assert purgatory.delayed == 0


def test_a_key_without_watchers_costs_one_look_up(purgatory: Purgatory) -> None:
    class CountedKey:
        hashed = 0

        def __hash__(self) -> int:
            CountedKey.hashed += 1
            return 1

    assert purgatory.check_and_complete(CountedKey()) == 0
    assert CountedKey.hashed == 1


def test_completion_may_complete_its_neighbour(purgatory: Purgatory) -> None:
    first, second = watch(purgatory, Wait()), watch(purgatory, Wait())
    first.ready = second.ready = True
    first.then = lambda: purgatory.check_and_complete("a")

    purgatory.check_and_complete("a")

    assert (first.completions, second.completions) == (1, 1)
    assert purgatory.watched == 0


def test_completion_may_watch_again_under_the_same_key(purgatory: Purgatory, timer: Timer) -> None:
    first, second = watch(purgatory, Wait()), Wait()
    first.ready = True
    first.then = lambda: watch(purgatory, second)

    assert purgatory.check_and_complete("a") == 1
    assert purgatory.watched == 1
    assert second.tries == 1  # when it was watched, not again by the check that was under way
    second.ready = True
    assert purgatory.check_and_complete("a") == 1
    assert len(timer) == 0


def test_expiration_may_watch_again(purgatory: Purgatory, timer: Timer) -> None:
    first, second = watch(purgatory, Wait(delay_ms=10)), Wait(delay_ms=10)
    first.then = lambda: purgatory.try_complete_else_watch(second, ["a"], START_MS + 10)

    timer.advance(START_MS + 19)
    assert (first.completions, second.completions) == (1, 0)
    timer.advance(START_MS + 20)
    assert second.completions == 1


def test_a_failing_answer_loses_no_other_operation(purgatory: Purgatory, timer: Timer) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    operations = [watch(purgatory, Wait()) for _ in range(3)]
    operations[1].then = fail
    for operation in operations:
        operation.ready = True

    with pytest.raises(RuntimeError):
        purgatory.check_and_complete("a")
    purgatory.check_and_complete("a")

    assert [operation.completions for operation in operations] == [1, 1, 1]
    assert purgatory.watched == 0
    assert len(timer) == 0


def test_purgatories_share_a_timer_and_count_their_own(timer: Timer) -> None:
    fetches, produces = Purgatory("Fetch", timer), Purgatory("Produce", timer)
    watch(fetches, Wait(delay_ms=10))
    watch(fetches, Wait(delay_ms=20))
    watch(produces, Wait(delay_ms=10))

    timer.advance(START_MS + 10)

    assert (fetches.delayed, produces.delayed) == (1, 0)
    assert (fetches.endings["expired"], produces.endings["expired"]) == (1, 1)


@pytest.mark.parametrize("seed", range(20))
def test_in_any_history_each_operation_ends_exactly_once(seed: int) -> None:
    generator = random.Random(seed)
    timer = Timer(start_ms=START_MS)
    purgatory = Purgatory("test", timer, purge_interval=generator.choice([0, 3, 50]))
    now_ms = START_MS
    all_operations: list[Wait] = []
    abandoned: set[Wait] = set()
    for _ in range(300):
        action = generator.random()
        if action < 0.45:
            keys: Sequence[int] = generator.sample(range(8), generator.randint(1, 4))
            operation = Wait(delay_ms=generator.choice([0, 5, 300, 2_000]))
            operation.ready = generator.random() < 0.1
            purgatory.try_complete_else_watch(operation, keys, now_ms)
            all_operations.append(operation)
        elif action < 0.75 and all_operations:
            generator.choice(all_operations).ready = True
            purgatory.check_and_complete(generator.randrange(8))
        elif action < 0.85 and all_operations:
            operation = generator.choice(all_operations)
            if purgatory.cancel(operation):
                abandoned.add(operation)
        else:
            now_ms += generator.choice([1, 50, 700])
            timer.advance(now_ms)
        assert purgatory.delayed == len(timer)

    timer.advance(now_ms + 10_000)

    for operation in all_operations:
        assert operation.is_completed
        assert operation.completions == (0 if operation in abandoned else 1)
    for key in range(8):
        purgatory.check_and_complete(key)
    assert purgatory.watched == 0
