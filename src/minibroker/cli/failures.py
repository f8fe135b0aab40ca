"""How a command ends: its exit statuses, and the one exception that says what is wrong and what to do next."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class CommandFailed(Exception):
    """One line, printed to standard error; exit status EXIT_FAILED."""
