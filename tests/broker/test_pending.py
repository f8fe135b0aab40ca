"""A value that is not known yet: steps run when it is, errors take their way, and leaving stops what may be stopped."""

from __future__ import annotations

import gc
import logging
import weakref

import pytest
import trio
import trio.testing

from minibroker.broker.pending import Pending, gather, then


class Source:
    """The source of a Pending; `abandoned` counts the calls that stopped it."""

    def __init__(self) -> None:
        self.abandoned = 0

    def abandon(self) -> None:
        self.abandoned += 1


def test_steps_run_in_the_call_that_resolves() -> None:
    assert then(3, lambda value: value + 1) == 4
    pending: Pending[int] = Pending()
    waiting: int | Pending[int] = pending
    following = then(then(waiting, lambda value: value + 1), str)
    assert isinstance(following, Pending) and not following.is_known

    pending.resolve(3)

    assert following.result() == "4"


def test_a_step_may_wait_in_its_turn() -> None:
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()
    following = first.then(lambda value: second.then(lambda other: (value, other)))

    first.resolve(1)
    assert not following.is_known
    second.resolve(2)

    assert following.result() == (1, 2)


def test_only_the_first_value_counts_and_before_it_a_pending_is_its_own_outcome() -> None:
    pending: Pending[int] = Pending()
    assert pending.outcome() is pending

    pending.resolve(1)
    pending.resolve(2)
    pending.fail(ValueError("too late"))

    assert pending.outcome() == 1
    assert pending.then(str).result() == "1"  # a step that is added late runs at once


def test_an_error_passes_every_step_up_to_one_that_recovers() -> None:
    pending: Pending[int] = Pending()
    steps: list[int] = []
    following = pending.then(steps.append).then(lambda _: "fine", lambda error: f"recovered: {error}")

    pending.fail(ValueError("no"))

    assert following.result() == "recovered: no"
    assert steps == []


def test_an_error_in_a_step_goes_to_the_next_steps_not_to_the_resolver() -> None:
    pending: Pending[int] = Pending()
    following = pending.then(lambda value: 1 // value).then(str)
    heard: list[str] = []
    following.when_known(lambda: heard.append("known"))

    pending.resolve(0)

    assert heard == ["known"]
    with pytest.raises(ZeroDivisionError):
        following.result()


def test_an_error_of_a_pending_that_a_step_returned_is_passed_on() -> None:
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()
    following = first.then(lambda _: second)
    following.when_known(lambda: None)
    first.resolve(1)

    second.fail(ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        following.result()


@pytest.mark.parametrize("is_abandoned", [False, True])
def test_an_error_is_logged_unless_abandoned(caplog: pytest.LogCaptureFixture, is_abandoned: bool) -> None:
    pending: Pending[int] = Pending()
    following = pending.then(lambda value: 1 // value)
    if is_abandoned:
        following.abandon()

    with caplog.at_level(logging.ERROR):
        pending.resolve(0)

    assert ("ZeroDivisionError" in caplog.text, len(caplog.records)) == (not is_abandoned, not is_abandoned)


def test_abandoning_a_value_abandons_its_source_unless_it_is_known() -> None:
    sources = Source(), Source(), Source()
    pending, known, waited_for = (Pending[int](source) for source in sources)
    first: Pending[int] = Pending()
    following = first.then(lambda _: waited_for)
    for each in (known, first):
        each.resolve(3)

    pending.then(str).then(str).abandon()
    known.abandon()
    following.abandon()

    assert [source.abandoned for source in sources] == [1, 0, 1]


def test_the_steps_after_an_abandoned_step_that_waits_run() -> None:
    first: Pending[int] = Pending()
    second: Pending[int] = Pending()
    steps: list[int] = []
    following = first.then(lambda _: second).then(steps.append)
    first.resolve(1)

    following.abandon()
    second.resolve(2)

    assert steps == [2]


def test_the_steps_of_an_abandoned_value_run_but_its_follower_does_not() -> None:
    pending: Pending[int] = Pending()
    steps: list[int] = []
    following = pending.then(steps.append)
    following.when_known(lambda: steps.append(99))

    following.abandon()
    pending.resolve(3)

    assert steps == [3]


def test_a_pending_has_one_follower_after_its_steps() -> None:
    pending: Pending[int] = Pending()
    pending.then(str).when_known(lambda: None)

    with pytest.raises(AssertionError, match="one follower"):
        pending.when_known(lambda: None)
    with pytest.raises(AssertionError, match="after the follower"):
        pending.then(str)


def test_a_wait_leaves_no_cycle_for_the_garbage_collector() -> None:
    class Operation:
        def __init__(self) -> None:
            self.pending: Pending[int] = Pending(self)

        def abandon(self) -> None: ...

    operation = Operation()
    freed = weakref.ref(operation)
    operation.pending.then(str).resolve("3")
    gc.disable()
    try:
        del operation
        assert freed() is None
    finally:
        gc.enable()


def test_values_are_gathered_however_many_are_known() -> None:
    first: Pending[int] = Pending()
    last: Pending[int] = Pending()
    outcomes: dict[int, int | Pending[int]] = {**dict.fromkeys(range(10_000), 1), 3: first, 5: last}

    assert gather({}) == {}
    assert gather({1: 2, 3: 4}) == {1: 2, 3: 4}
    gathered = gather(outcomes)
    assert isinstance(gathered, Pending)
    last.resolve(6)
    assert not gathered.is_known
    first.resolve(4)

    assert gathered.result() == {**dict.fromkeys(range(10_000), 1), 3: 4, 5: 6}


def test_what_is_gathered_fails_with_the_first_error() -> None:
    first: Pending[int] = Pending()
    outcomes: dict[int, int | Pending[int]] = {1: first, 2: Pending()}
    gathered = gather(outcomes)
    assert isinstance(gathered, Pending)
    first.fail(ValueError("no"))

    with pytest.raises(ValueError, match="no"):
        gathered.result()


async def test_a_task_waits_until_the_value_is_known(nursery: trio.Nursery) -> None:
    pending: Pending[int] = Pending()
    seen: list[int] = []

    async def wait() -> None:
        seen.append(await pending.wait())

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert seen == []
    pending.resolve(3)
    await trio.testing.wait_all_tasks_blocked()

    assert seen == [3]
    assert await pending.wait() == 3


async def test_a_task_that_is_cancelled_abandons_its_value() -> None:
    source = Source()
    pending: Pending[int] = Pending(source)

    with trio.CancelScope() as scope:
        scope.cancel()
        await pending.wait()

    assert source.abandoned == 1
    pending.resolve(3)  # wakes no task
