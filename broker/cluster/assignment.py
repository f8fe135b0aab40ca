"""Assigns the replicas of new partitions: spread over the live brokers and their racks, or named by the client.

Checks and messages are those of kafka 2.0.1 AdminUtils and AdminZkClient. As in Kafka, a new topic may have replicas on
brokers that are not alive, partitions added later may not. Pure: where an assignment begins is drawn by a function.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain, count, zip_longest

from minibroker.protocol.errors import ErrorCode, KafkaError

MAX_PARTITIONS_PER_TOPIC = 10_000

Replicas = list[int]
Racks = Mapping[int, str | None]  # of the live brokers by id; None for one without a rack
Draw = Callable[[int], int]  # returns a number from 0 up to its argument, which it excludes


def assign_replicas(
    racks: Racks, partition_count: int, replication_factor: int, draw: Draw, *, first: int = 0
) -> list[Replicas]:
    """Assign the replicas of `partition_count` new partitions, numbered from `first`. Raises KafkaError.

    Leaders go round the brokers, and with each round the followers shift by one against them. With racks, the
    replicas of a partition are on different ones as long as there are any. As kafka 2.0.1
    AdminUtils.assignReplicasToBrokers.
    """
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    check_partition_count(partition_count)
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.",
        )
    if all(rack is None for rack in racks.values()):
        racks, step = {broker: str(broker) for broker in racks}, 1  # each on its own
        brokers = sorted(racks)
    else:
        if None in racks.values():
            message = "Not all brokers have rack information for replica rack aware assignment."
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        brokers, step = alternated(racks), len(set(racks.values()))
    start, first_shift = draw(len(brokers)), draw(len(brokers))
    assignment = []
    for number in range(first, first + partition_count):
        # A topic grows in the middle of a round: the shift counts the rounds that begin from there.
        shift = first_shift + number // len(brokers) - max(first - 1, 0) // len(brokers)
        leader = (number + start) % len(brokers)
        assignment.append(replicas_from(brokers, racks, leader, shift * step, replication_factor))
    return assignment


def replicas_from(brokers: Sequence[int], racks: Racks, leader: int, shift: int, replication_factor: int) -> list[int]:
    """The brokers of one partition: that at the place `leader`, then others from `shift` places behind it on.

    A rack gets a second replica once all racks have one.
    """
    chosen = [brokers[leader]]
    used, rack_count = {racks[chosen[0]]}, len(set(racks.values()))
    places = count(shift)
    while len(chosen) < replication_factor:
        broker = brokers[(leader + 1 + next(places) % (len(brokers) - 1)) % len(brokers)]
        if broker not in chosen and (racks[broker] not in used or len(used) == rack_count):
            chosen.append(broker)
            used.add(racks[broker])
    return chosen


def alternated(racks: Racks) -> list[int]:
    """The brokers in such an order that neighbours are on different racks (AdminUtils.getRackAlternatedBrokerList)."""
    by_rack: dict[str | None, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rounds = zip_longest(*(by_rack[rack] for rack in sorted(by_rack, key=str)))
    return [broker for each in rounds for broker in each if broker is not None]


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


def check_brokers(assignment: Iterable[Sequence[int]], racks: Racks) -> None:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) for a replica on a broker that is not there, as kafka 3.9."""
    for broker in chain.from_iterable(assignment):
        if broker not in racks:
            raise invalid(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )


def added_partitions(
    existing: Sequence[Sequence[int]],
    total_count: int,
    assignment: Sequence[Sequence[int]] | None,
    racks: Racks,
) -> list[Replicas]:
    """Assign the replicas of the partitions that grow a topic to `total_count`. Raises KafkaError.

    Where they begin follows from the first replica of partition 0. As kafka 2.0.1 AdminManager.createPartitions and
    AdminZkClient.addPartitions.
    """
    if len({rack is None for rack in racks.values()}) > 1:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information.",
        )
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
        start = next((place for place, broker in enumerate(sorted(racks)) if broker >= existing[0][0]), 0)
        return assign_replicas(
            racks, total_count - len(existing), replication_factor, lambda _: start, first=len(existing)
        )
    _check_added(assignment, len(existing), total_count - len(existing), replication_factor, racks)
    return [list(brokers) for brokers in assignment]


def _check_added(
    assignment: Sequence[Sequence[int]], first: int, increment: int, replication_factor: int, alive: Container[int]
) -> None:
    unknown = [broker for brokers in assignment for broker in brokers if broker not in alive]
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
