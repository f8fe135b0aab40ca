"""All states of a small partition: what is acknowledged stays, and a rule that loses it is found."""

from __future__ import annotations

import pytest

from minibroker.broker.replica.leading import Leadership, Leading
from minibroker.broker.wings.several.following import AskEpochEnd, Following, State, TruncateTo
from minibroker.storage.index.leader_epochs import EpochEndOffset
from tests.simulation.small_scope import Bounds, explore

TWO = Bounds(brokers=2, records=1, crashes=1)


@pytest.mark.parametrize(
    "bounds", [Bounds(), TWO, TWO._replace(is_unclean=True)], ids=["three brokers", "two", "unclean elections"]
)
def test_no_leader_lacks_or_contradicts_what_was_shown(bounds: Bounds) -> None:
    explored = explore(bounds, 12_000)

    assert (explored.wrong, explored.steps) == ("", [])
    assert explored.states >= 12_000


def truncate_to_high_watermark(self: Following, request: AskEpochEnd, leader_end: EpochEndOffset) -> TruncateTo | None:
    """The rule before KIP-101."""
    if not self._is_answered(request):
        return None
    self.state = State.FETCHING
    return TruncateTo(self.log.high_watermark)


def shrink_before_the_state_has_it(self: Leading, state_version: int | None) -> bool:
    before = self.leadership
    self.leadership = Leadership(before.leader_epoch, before.asked_in_sync_replicas, state_version or 0)
    return state_version is not None


def join_from_anywhere(self: Leading, replica_id: int) -> tuple[int, ...] | None:
    """A replica is in sync again before it has reached the high watermark."""
    return None if replica_id in self.in_sync_replicas else (*self.in_sync_replicas, replica_id)


def count_what_the_state_has(self: Leadership, broker_id: int) -> bool:
    """The high watermark does not wait for a replica that is about to be in sync."""
    return broker_id in self.in_sync_replicas


@pytest.mark.pure
@pytest.mark.parametrize(
    ("role", "name", "rule", "last_step"),
    [
        (Leadership, "counts", count_what_the_state_has, "2 hears of epoch 2"),
        (Following, "on_epoch_end", truncate_to_high_watermark, "2 hears of epoch 1"),
        (Leading, "end_isr_change", shrink_before_the_state_has_it, "2 hears of epoch 1"),
        (Leading, "isr_with", join_from_anywhere, "1 hears of epoch 2"),
    ],
)
def test_a_rule_that_loses_records_is_found(
    monkeypatch: pytest.MonkeyPatch, role: type, name: str, rule: object, last_step: str
) -> None:
    monkeypatch.setattr(role, name, rule)

    explored = explore(TWO, 60_000)

    assert "leads without what was acknowledged" in explored.wrong
    assert explored.steps[-1] == last_step
