"""The outcome of each change that a command or a page makes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

DENIED = "the cluster's ACLs deny this client; ask its administrator"


class Outcome(NamedTuple):
    """The outcome for one name: created, exists, deleted, absent, or failed with an error in one line."""

    name: str
    outcome: str
    error: str | None = None


def in_order(names: Sequence[str], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes in the order of their names there: Kafka without ZooKeeper answers in another."""
    return sorted(outcomes, key=lambda outcome: names.index(outcome.name))
