"""Runs a command and leaves nothing of it: a process of its own between the demo and the Spark job.

The rule: the command ends with the process that started the guard, however that one ends, and at SIGTERM, SIGINT and
SIGHUP; whatever the command has started ends with it. The guard leads the process group that they are in, asks them
to end with SIGTERM, waits, and kills. Signals of a terminal do not reach the group: its starter decides.

The job cannot do this itself: a signal that comes while Spark starts may be lost in it, and its JVM outlives it.

    python -m minibroker.demo.guard PARENT_PID COMMAND ...
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

POLL_SECONDS = 0.5
GRACE_SECONDS = 5.0
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
NOT_STARTED = 127  # the status of a shell whose command it cannot run
KILLED = 128  # plus the signal's number, also as of a shell

# Of prctl(2). Linux only; elsewhere orphans of the command are asked to end, but not waited for.
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main(parent_pid: int, command: list[str]) -> int:
    """Run the command to its end, or to that of the parent; return the exit status as a shell would."""
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    # Heard in `sigtimedwait` alone, so that none comes at a bad moment.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS | {signal.SIGCHLD})
    _process_control(PR_SET_CHILD_SUBREAPER, 1)
    status = _wait_for_end(_start(command), parent_pid)
    _end_group()
    return KILLED - status if status < 0 else status


def _start(command: list[str]) -> int:
    guard_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _process_control(PR_SET_PDEATHSIG, signal.SIGKILL)  # should the guard itself be killed
        if os.getppid() != guard_pid:  # it was, before this
            os._exit(KILLED + signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvp(command[0], command)
    except OSError as error:
        print(f"guard: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
    os._exit(NOT_STARTED)


def _wait_for_end(pid: int, parent_pid: int) -> int:
    """Return the command's exit status, or -SIGTERM when the parent has ended or a signal has come."""
    # Polled as by `minibroker serve --parent-pid`: a pipe from the parent stays open in the parent's other children.
    while os.getppid() == parent_pid:
        heard = signal.sigtimedwait(STOP_SIGNALS | {signal.SIGCHLD}, POLL_SECONDS)
        if heard is not None and heard.si_signo in STOP_SIGNALS:
            break
        while (ended := _reaped()) is not None:
            if ended[0] == pid:
                return ended[1]
    return -signal.SIGTERM


def _end_group() -> None:
    """Ask all that is left to end; after a grace, kill it, the guard with it."""
    os.killpg(0, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while True:
        try:
            while _reaped() is not None:
                pass
        except ChildProcessError:
            return
        remaining_seconds = deadline - time.monotonic()
        if remaining_seconds <= 0:
            os.killpg(0, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, remaining_seconds)


def _reaped() -> tuple[int, int] | None:
    """A child that has ended, and its exit status. Raises ChildProcessError when there are no children."""
    pid, status = os.waitpid(-1, os.WNOHANG)
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _process_control(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
