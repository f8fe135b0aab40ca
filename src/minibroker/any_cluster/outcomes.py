"""The outcome of each change that a command or a page makes."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """The outcome for one name: created, exists, deleted, absent, or failed with an error in one line."""

    name: str
    outcome: str
    error: str | None = None
