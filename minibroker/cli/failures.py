"""The one exception a command ends with: one line that says what is wrong and what to do next."""

from __future__ import annotations


class CommandFailed(Exception):
    """Printed to standard error; exit status 1."""
