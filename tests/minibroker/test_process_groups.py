"""Process groups end with the process that started them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from minibroker.process_groups import ProcessGroup

TWO_THAT_STAY = "trap '' TERM; sleep 600 & echo; wait"
STARTER = f"""
import subprocess
import sys
from minibroker.process_groups import ProcessGroup

group = ProcessGroup()
subprocess.Popen(["sh", "-c", {TWO_THAT_STAY!r}], process_group=group.id)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_group_ends_with_the_process_that_started_it(how: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"\n"
        starter.send_signal(how)
        assert starter.stdout.read() == b""  # of all who have it open


def test_a_group_that_is_closed_has_ended_with_what_heeds_no_signal() -> None:
    group = ProcessGroup()
    command = ["sh", "-c", TWO_THAT_STAY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=group.id) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        group.signal(signal.SIGTERM)
        assert process.poll() is None
        group.close()
        assert process.stdout.read() == b""
    group.signal(signal.SIGTERM)
    group.close()
