"""All states of a transactional id within bounds: nothing is wrong, and a rule that is weakened is found."""

from __future__ import annotations

import pytest

from minibroker.broker.transaction.transaction import (
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    ProducerIdentity,
    Transaction,
    TransactionMetadata,
)
from minibroker.protocol.errors import ErrorCode, KafkaError
from tests.simulation.small_scope_transactions import V1, V2, Bounds, explore

pytestmark = pytest.mark.pure  # bounds and rules are replaced

LATE = Bounds(V2, producers=1, failures=0, crashes=0, timeouts=0, is_late=True)
FENCED = Bounds(V2, transactions=1, failures=0, crashes=0, timeouts=0, is_late=True)


@pytest.mark.parametrize(
    "bounds", [Bounds(V1), Bounds(V2), Bounds(V2, is_late=True), LATE, FENCED], ids=lambda bounds: str(bounds)
)
def test_a_transaction_ends_as_its_producer_was_told(bounds: Bounds) -> None:
    explored = explore(bounds, 6000)

    assert (explored.wrong, explored.steps) == ("", [])
    assert explored.is_whole or explored.states >= 6000


def test_a_late_end_ends_the_next_transaction_in_version_1() -> None:
    """The defect that KIP-890 mends."""
    explored = explore(LATE._replace(version=V1), 20_000)

    assert explored.wrong == "0 asks commit of 0 as (1, 0) ends (0, 1)"


def check_no_epoch(self: Transaction, producer: ProducerIdentity) -> None:
    if producer.producer_id != self.metadata.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def check_only_pending(self: Transaction) -> None:
    if self.pending is not None:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def has_ended_in_any_epoch(self: Transaction, producer: ProducerIdentity) -> bool:
    return self.state not in (EMPTY, ONGOING) and producer.producer_id == self.metadata.producer_id


def fence_in_the_same_epoch(self: Transaction, now_ms: int, _: object) -> TransactionMetadata:
    return self._prepare(PREPARE_ABORT, now_ms)


@pytest.mark.parametrize(
    ("name", "rule", "bounds", "wrong"),
    [
        ("_check_producer", check_no_epoch, Bounds(V1), "0 asks add of 0 as (1, 0) is taken, though 1 has (1, 1)"),
        ("_check_settled", check_only_pending, Bounds(V2), "id: PrepareCommit cannot become Ongoing"),
        (
            "_has_ended",
            has_ended_in_any_epoch,
            FENCED,
            "0 asks commit of 0 as (1, 0) is answered NONE, and its outcome is False",
        ),
        ("prepare_fence", fence_in_the_same_epoch, Bounds(V1, crashes=0, failures=0), "(0, 0) has two outcomes"),
    ],
)
def test_a_rule_that_is_weakened_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, rule: object, bounds: Bounds, wrong: str
) -> None:
    monkeypatch.setattr(Transaction, name, rule)

    assert explore(bounds, 20_000).wrong == wrong
