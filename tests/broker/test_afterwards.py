"""Work that requests set off, and when it is done."""

from __future__ import annotations

import pytest

from minibroker.broker.upkeep.afterwards import Afterwards


def test_outside_a_pass_an_action_is_called_at_once() -> None:
    afterwards, done = Afterwards(), list[str]()

    afterwards.call(lambda: done.append("before the first pass"))
    afterwards.begin_pass()
    afterwards.call(lambda: done.append("in a pass"))
    assert done == ["before the first pass"]
    afterwards.end_pass()
    afterwards.call(lambda: done.append("after it"))
    afterwards.begin_pass()
    afterwards.end_pass()

    assert done == ["before the first pass", "in a pass", "after it"]


def test_an_action_that_another_sets_off_is_called_with_it() -> None:
    afterwards, done = Afterwards(), list[str]()

    def first() -> None:
        afterwards.call(lambda: done.append("set off"))
        done.append("first")

    afterwards.begin_pass()
    afterwards.call(first)
    afterwards.call(lambda: done.append("second"))
    afterwards.end_pass()

    assert done == ["set off", "first", "second"]


def test_an_action_that_fails_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    afterwards, done = Afterwards(), list[str]()

    afterwards.begin_pass()
    afterwards.call(lambda: done.append(str(1 / 0)))
    afterwards.call(lambda: done.append("second"))
    afterwards.end_pass()

    assert done == ["second"]
    assert "ZeroDivisionError" in caplog.text
