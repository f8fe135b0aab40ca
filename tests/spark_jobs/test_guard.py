"""The guard: nothing of a command is left when the guard, its parent or the command has ended, in any way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.leftovers import Leftovers, leftovers

pytestmark = [pytest.mark.slow, pytest.mark.integration]

SECONDS = 30.0
# Ignores what asks it to end, as do its child and a grandchild whose parent has ended.
STUBBORN = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
first = os.getpid()
if os.fork() == 0 and os.fork() != 0:
    os._exit(0)
if len(sys.argv) > 1 and os.getpid() == first:
    sys.exit(int(sys.argv[1]))
time.sleep(600)
"""
PARENT = "import os, subprocess, sys; subprocess.run([*sys.argv[1:4], str(os.getpid()), *sys.argv[4:]])"
# With a short grace; the demo's tests run it as it is.
GUARD_WITH_GRACE = """
import sys
from minibroker.demo import guard
guard.GRACE_SECONDS = 0.5
sys.exit(guard.main(int(sys.argv[1]), sys.argv[2:]))
"""
GUARD = [sys.executable, "-c", GUARD_WITH_GRACE]
# The command is forked a second before it asks to end with the guard.
SLOWLY = """
import time
from minibroker.demo import guard
ask = guard._process_control
guard._process_control = lambda option, value: (time.sleep(option == guard.PR_SET_PDEATHSIG), ask(option, value))
"""
SLOW_GUARD = [sys.executable, "-c", SLOWLY + GUARD_WITH_GRACE]
COMMAND = [sys.executable, "-c", STUBBORN]


@pytest.fixture
def left() -> Iterator[Leftovers]:
    with leftovers() as made:
        yield made


def start(left: Leftovers, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=left.environment, process_group=0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_guard_and_all_that_its_command_has_started(left: Leftovers, number: signal.Signals) -> None:
    guard = start(left, [*GUARD, str(os.getpid()), *COMMAND])
    left.wait_until(3, SECONDS)

    guard.send_signal(number)

    assert guard.wait(SECONDS) == -signal.SIGKILL  # what would not end has been killed, the guard with it
    left.wait_until_gone(SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_its_parent(left: Leftovers, number: signal.Signals) -> None:
    parent = start(left, [sys.executable, "-c", PARENT, *GUARD, *COMMAND])
    left.wait_until(4, SECONDS)

    parent.send_signal(number)
    parent.wait()

    left.wait_until_gone(SECONDS)


def test_a_parent_that_has_ended_before_the_guard_started_is_noticed(left: Leftovers) -> None:
    parent = subprocess.Popen(["true"])
    parent.wait()

    guard = start(left, [*GUARD, str(parent.pid), *COMMAND])

    guard.wait(SECONDS)
    left.wait_until_gone(SECONDS)


@pytest.mark.parametrize("guard_of", [GUARD, SLOW_GUARD], ids=["while it runs", "while it starts"])
def test_a_command_ends_with_a_guard_that_is_killed(left: Leftovers, guard_of: list[str]) -> None:
    guard = start(left, [*guard_of, str(os.getpid()), sys.executable, "-c", "import time; time.sleep(600)"])
    left.wait_until(2, SECONDS)

    guard.kill()
    guard.wait()

    left.wait_until_gone(SECONDS)


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["true"], 0),
        ([sys.executable, "-c", "raise SystemExit(3)"], 3),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], 128 + 9),
        (["/no/such/command"], 127),
    ],
)
def test_its_status_is_that_of_the_command(left: Leftovers, command: list[str], status: int) -> None:
    guard = start(left, [*GUARD, str(os.getpid()), *command])

    assert guard.wait(SECONDS) == status


def test_processes_that_a_command_leaves_behind_end_with_it(left: Leftovers) -> None:
    guard = start(left, [*GUARD, str(os.getpid()), *COMMAND, "3"])

    assert guard.wait(SECONDS) == -signal.SIGKILL
    left.wait_until_gone(SECONDS)


def test_the_command_is_in_the_guards_own_process_group_where_ctrl_c_does_not_reach(left: Leftovers) -> None:
    command = [*GUARD, str(os.getpid()), sys.executable, "-c", "import os; print(os.getpgrp())"]

    with subprocess.Popen(command, env=left.environment, stdout=subprocess.PIPE) as guard:
        printed, _ = guard.communicate(timeout=SECONDS)

    assert int(printed) == guard.pid
