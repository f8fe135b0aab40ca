"""All states of a small group within bounds: nothing is wrong, and a rule that is weakened is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from minibroker.broker.group.group import Group, GroupState
from minibroker.broker.group.member import Member
from minibroker.broker.group.rebalance import Rebalances
from minibroker.broker.wings.consumer import heartbeats, reconciliation
from minibroker.broker.wings.consumer.member import ConsumerMember
from minibroker.broker.wings.consumer.reconciliation import Reported, Target
from tests.simulation.small_scope_groups import ClassicWorld, ConsumerWorld, LateWorld, StaticWorld, World, explore

pytestmark = pytest.mark.pure  # rules are replaced

next_step = reconciliation.next_step


@pytest.mark.parametrize(
    ("make", "states"), [(ConsumerWorld, 60), (LateWorld, 30), (ClassicWorld, 150), (StaticWorld, 100)]
)
def test_a_group_comes_to_rest_and_no_partition_has_two_owners(make: Callable[[Path], World], states: int) -> None:
    explored = explore(make, states)

    assert (explored.wrong, explored.steps) == ("", [])
    assert explored.states >= states


def give_what_others_have(
    member: ConsumerMember, target: Target, reported: Reported | None, epoch: int
) -> ConsumerMember:
    return next_step(member, target._replace(is_owned=lambda *_: False), reported, epoch)


def do_not_count(self: Group, now_ms: int) -> None:
    self.protocol = self.select_protocol() if self.members else None
    self.become(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)


@pytest.mark.parametrize(
    ("where", "name", "rule", "make", "wrong"),
    [
        (reconciliation, "reports", lambda *_: False, ConsumerWorld, "are owned"),
        (reconciliation, "next_step", give_what_others_have, ConsumerWorld, "members have"),
        (Group, "has_all_members_joined", lambda _: True, ClassicWorld, "in the end"),
        (Member, "is_kept_alive", property(lambda _: True), ClassicWorld, "in the end"),
        (Group, "begin_generation", do_not_count, ClassicWorld, "generation 0 has"),
        (Group, "elect_joined_leader", lambda _: True, StaticWorld, "has a leader that has not joined"),
        (Rebalances, "check", lambda *_: None, ClassicWorld, "waits for nobody"),
        (heartbeats, "check_epoch", lambda *_: None, LateWorld, "are owned"),
    ],
)
def test_a_rule_that_is_weakened_is_found(
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    name: str,
    rule: object,
    make: Callable[[Path], World],
    wrong: str,
) -> None:
    monkeypatch.setattr(where, name, rule)

    explored = explore(make, 200)

    assert wrong in explored.wrong
