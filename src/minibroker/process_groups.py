"""Ends process groups together with the process that started them, also if that is killed (`kill -9`)."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

# Its standard input ends when this process does. It heeds no signal that is meant for the others of its group.
WATCHER = "trap '' TERM INT HUP QUIT ABRT; read -r _; kill -s KILL 0"


class ProcessGroup:
    """A process group for `subprocess.Popen(process_group=group.id)`.

    All of it is killed when it is closed, and when this process ends. A shell in the group waits for that, and keeps
    the group's id from being given to another one.
    """

    def __init__(self) -> None:
        nowhere = subprocess.DEVNULL
        self._watcher = subprocess.Popen(
            ["sh", "-c", WATCHER], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, process_group=0
        )
        self.id = self._watcher.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all of it; once it is closed, to nobody."""
        if self._watcher.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.id, number)

    def close(self) -> None:
        self._watcher.communicate()
