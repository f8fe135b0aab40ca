"""The end of a process that this broker has started beside it."""

from __future__ import annotations

import subprocess


def end(child: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a child that was asked to end, and kill it after that time; return whether it ended by itself."""
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return False
    return True
