"""What the controller is asked to do with topics, and what came of it: an outcome each, as requests name many.

An outcome is what was done or the KafkaError that says why it was not; one topic that is refused stops none of the
others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

from minibroker.protocol.errors import KafkaError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NewTopic(NamedTuple):
    """A topic to be made. The counts are -1 where the client assigns the replicas."""

    name: str
    partition_count: int
    replication_factor: int
    assignment: Mapping[int, Sequence[int]]
    configs: Mapping[str, str]


class NewPartitions(NamedTuple):
    """How many partitions a topic is to have. The assignment is that of the added ones."""

    name: str
    total_count: int
    assignment: Sequence[Sequence[int]] | None


def attempt(
    call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
) -> Result | KafkaError:
    """What the call returns, or the KafkaError that it raises."""
    try:
        return call(*args, **kwargs)
    except KafkaError as error:
        return error


def done(outcomes: Mapping[str, Result | KafkaError]) -> dict[str, Result]:
    """Those of the outcomes that are no errors."""
    return {name: outcome for name, outcome in outcomes.items() if not isinstance(outcome, KafkaError)}


def result_of(outcome: Result | KafkaError) -> Result:
    """What was done. Raises KafkaError if nothing was."""
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome
