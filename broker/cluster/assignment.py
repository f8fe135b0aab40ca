"""Assigns the replicas of new partitions: chosen for a cluster of one live broker, or named by the client.

Checks and messages are those of kafka 2.0.1 AdminUtils and AdminZkClient. As in Kafka, a new topic may have replicas on
brokers that are not alive, partitions added later may not. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from minibroker.protocol.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_TOPIC = 10_000

Replicas = list[int]


def assign_replicas(broker_id: int, partition_count: int, replication_factor: int) -> list[Replicas]:
    """Assign the replicas of `partition_count` new partitions. Raises KafkaError."""
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    check_partition_count(partition_count)
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > 1:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: 1.",
        )
    return [[broker_id] for _ in range(partition_count)]


def check_partition_count(count: int) -> None:
    if count > MAX_PARTITIONS_PER_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{count} partitions: a topic may have {MAX_PARTITIONS_PER_TOPIC} here at most.",
        )


def assignment_of_topic(assignment: Mapping[int, Sequence[int]]) -> list[Replicas]:
    """Check a client's assignment of a new topic. Raises KafkaError(INVALID_REPLICA_ASSIGNMENT)."""
    check_partition_count(len(assignment))
    if len({len(brokers) for brokers in assignment.values()}) != 1:
        raise invalid("All partitions should have the same number of replicas")
    for brokers in assignment.values():
        if len(set(brokers)) != len(brokers):
            raise invalid(f"Duplicate replica assignment found: {list(brokers)}")
    if sorted(assignment) != list(range(len(assignment))):
        raise invalid("partitions should be a consecutive 0-based integer sequence")
    if not assignment[0]:
        raise invalid("Cannot have replication factor of 0 for partition id 0.")
    return [list(assignment[number]) for number in range(len(assignment))]


def added_partitions(
    existing: Sequence[Sequence[int]],
    total_count: int,
    assignment: Sequence[Sequence[int]] | None,
    broker_id: int,
) -> list[Replicas]:
    """Assign the replicas of the partitions that grow a topic to `total_count`. Raises KafkaError.

    As kafka 2.0.1 AdminManager.createPartitions and AdminZkClient.addPartitions.
    """
    if total_count < len(existing):
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {len(existing)} partitions, which is higher than the requested {total_count}.",
        )
    if total_count == len(existing):
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
    check_partition_count(total_count)
    replication_factor = len(existing[0])
    if assignment is None:
        return assign_replicas(broker_id, total_count - len(existing), replication_factor)
    _check_added(assignment, len(existing), total_count - len(existing), replication_factor, broker_id)
    return [list(brokers) for brokers in assignment]


def _check_added(
    assignment: Sequence[Sequence[int]], first: int, increment: int, replication_factor: int, broker_id: int
) -> None:
    unknown = [broker for brokers in assignment for broker in brokers if broker != broker_id]
    if unknown:
        raise invalid(f"Unknown broker(s) in replica assignment: {joined(dict.fromkeys(unknown))}.")
    if len(assignment) != increment:
        raise invalid(f"Increasing the number of partitions by {increment} but {len(assignment)} assignments provided.")
    for number, brokers in enumerate(assignment, first):
        if not brokers:
            raise invalid(f"Cannot have replication factor of 0 for partition id {number}.")
        if len(set(brokers)) != len(brokers):
            raise invalid(
                f"Duplicate brokers not allowed in replica assignment: {joined(brokers)} for partition id {number}."
            )
    uneven = {
        number: len(brokers) for number, brokers in enumerate(assignment, first) if len(brokers) != replication_factor
    }
    if uneven:
        raise invalid(
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{joined(uneven)}] have replication factors [{joined(uneven.values())}], respectively."
        )


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
