"""The changes of topics that clients ask for, and their outcomes.

A request names many topics, and each has an outcome: the result or a KafkaError. An error of one does not stop the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from minibroker.protocol.errors import KafkaError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NewTopic(NamedTuple):
    """A topic to create. The counts are -1 if the client assigns the replicas."""

    name: str
    partition_count: int
    replication_factor: int
    assignment: Mapping[int, Sequence[int]]
    configs: Mapping[str, str]


class NewPartitions(NamedTuple):
    """A topic's new number of partitions. The assignment is that of the added ones."""

    name: str
    total_count: int
    assignment: Sequence[Sequence[int]] | None


def attempt(
    call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result | KafkaError:
    """Return the call's result, or the KafkaError that it raises."""
    try:
        return call(*args, **kwargs)
    except KafkaError as error:
        return error


def done(outcomes: Mapping[str, Result | KafkaError]) -> dict[str, Result]:
    """Return the results among the outcomes."""
    return {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, KafkaError)}


def result_of(outcome: Result | KafkaError) -> Result:
    """Return the result. Raises the KafkaError of an outcome that is one."""
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
