"""The rules that hold in a broker after each of its steps, and between the brokers of a cluster.

A log is looked at again only once one of its offsets, its epoch or its role has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.leading import Leading

Facts = tuple[Any, ...]  # epoch, high watermark, truncations, log end, log start, in-sync replicas of a leader
NEW: Facts = (-1, -1, 0)


class Invariants:
    """`found` gets the kind and the text of each contradiction."""

    def __init__(self, found: Callable[[str, str], None]) -> None:
        self._found = found
        self._seen: dict[object, Facts] = {}  # by log
        self._led: dict[object, int] = {}  # who led a partition of a topic, with its id, in an epoch
        self._controlled: dict[int, int] = {}  # who was the controller in an epoch
        self._controller_epochs: dict[object, int] = {}  # that a state has reached

    def look(self, broker_id: int, parts: BrokerParts) -> None:
        """Look at a broker."""
        seen, state = self._seen, parts.state
        for name, role in parts.replica_manager.partitions.items():
            log = role.log
            facts = (
                role.leader_epoch,
                log.high_watermark,
                log.truncations,
                log.log_end_offset,
                log.log_start_offset,
                role.in_sync_replicas if isinstance(role, Leading) else None,
            )
            before = seen.get(log, NEW)
            if facts != before:
                seen[log] = facts
                self._compare(f"{name} of broker {broker_id}", facts, before)
                if isinstance(role, Leading):
                    topic = state.topics.get(name.topic)
                    self._look_at_leader(broker_id, name, role, topic and topic.topic_id)
        epoch, before_epoch = state.controller_epoch, self._controller_epochs.get(state, 0)
        if epoch < before_epoch:
            self._found("epoch-back", f"of the controller at broker {broker_id}: {before_epoch} to {epoch}")
        self._controller_epochs[state] = epoch
        if state.is_shared and parts.controller_loop.is_active:
            controller = self._controlled.setdefault(epoch, broker_id)
            if controller != broker_id:
                self._found("two-controllers", f"brokers {controller} and {broker_id} in epoch {epoch}")

    def _compare(self, at: str, facts: Facts, before: Facts) -> None:
        epoch, watermark, truncations, end, start, _ = facts
        if watermark > end:
            self._found("watermark-above-end", f"{at}: {watermark} of {end}")
        if start > watermark:
            self._found("watermark-below-start", f"{at}: {watermark}, and the log starts at {start}")
        if epoch < before[0]:
            self._found("epoch-back", f"{at}: {before[0]} to {epoch}")
        if watermark < before[1] and truncations == before[2]:
            self._found("watermark-back", f"{at}: {before[1]} to {watermark}")

    def _look_at_leader(self, broker_id: int, name: Any, role: Leading, topic_id: object) -> None:
        before = self._led.setdefault((name, topic_id, role.leader_epoch), broker_id)
        if before != broker_id:
            self._found("two-leaders", f"{name}: brokers {before} and {broker_id} in epoch {role.leader_epoch}")
        if broker_id not in role.in_sync_replicas:
            self._found("leader-not-in-sync", f"{name} of broker {broker_id}: {role.in_sync_replicas}")
        if role.log.last_stable_offset > role.log.high_watermark:
            self._found("stable-above-watermark", f"{name} of broker {broker_id}: {role.log.last_stable_offset}")
        entries = role.log.leader_epochs.entries
        if any(one[0] >= other[0] or one[1] > other[1] for one, other in pairwise(entries)):
            self._found("epochs-unordered", f"{name} of broker {broker_id}: {entries}")
