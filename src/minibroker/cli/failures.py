"""Exit statuses of commands, and the exception that carries a failure and the next step."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandFailed(Exception):
    """One line, printed to standard error; exit status EXIT_FAILED."""
