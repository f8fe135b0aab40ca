"""Transactions that commit offsets for members of the consumer protocol, as Apache Kafka 4.4.0 takes them."""

from __future__ import annotations

from typing import Any

from tests.conformance.scripts.consumer_groups import (
    GROUP,
    alone,
    beats,
    classic,
    committed,
    described,
    fetched,
    joins,
    leaves,
    listed,
)
from tests.conformance.scripts.transactions import CONCURRENT, ended, find, init, of
from tests.conformance.steps import Script, Step, Told, call

VERSIONS = (0, 1, 2, 3)
FIRST_VERSION_WITH_MEMBERS = 3
EPOCH = Told("one", "member_epoch")


def _begun(name: str = "p") -> Script:
    """A transaction with offsets of the group."""
    transactional_id = f"@{name}"
    add = call("AddOffsetsToTxn", 1, group_id=GROUP, retry=CONCURRENT, **of(0, name, transactional_id))
    return [find(transactional_id), init(name, transactional_id), add]


def staged(
    member: Any = "", epoch: Any = -1, offset: int = 5, *, version: int = 3, name: str = "p", **fields: Any
) -> Step:
    given: dict[str, Any] = {**of(0, name, f"@{name}"), "group_id": GROUP, "topics": [("@t", [(0, offset, -1, "")])]}
    if version >= FIRST_VERSION_WITH_MEMBERS:
        given |= {"member_id": member, "generation_id": epoch}
    return call("TxnOffsetCommit", version, **(given | fields))


def _done(is_commit: bool = True, name: str = "p") -> Script:
    return ended(is_commit, **of(0, name, f"@{name}"))


def stable(member: Any = None, epoch: Any = -1, *, version: int = 9) -> Step:
    of_member = (member, epoch) if version >= 9 else (None, -1)
    return call("OffsetFetch", version, groups=[(GROUP, *of_member, [("@t", [0, 1])])], require_stable=True)


def offsets_of_a_member_in_a_transaction() -> Script:
    script = [*alone(), *_begun(), staged("one", EPOCH), fetched(), stable(), stable("one", EPOCH), stable(version=8)]
    return [*script, committed("one", EPOCH, 3), fetched(), *_done(), stable(), stable("one", EPOCH)]


def offsets_of_a_member_in_an_aborted_transaction() -> Script:
    script = [*alone(), committed("one", EPOCH, 3), *_begun(), staged("one", EPOCH), stable("one", EPOCH)]
    return [*script, *_done(False), stable(), fetched()]


def epochs_in_a_transaction() -> Script:
    script = [*alone(), *_begun()]
    for version in VERSIONS:
        script.append(staged(version=version))
        if version >= FIRST_VERSION_WITH_MEMBERS:
            script += [staged("one", epoch, version=version) for epoch in (EPOCH, 0, 1, 2, 99, -1, -2, -3)]
            script += [staged(member, epoch, version=version) for member in ("", "nobody") for epoch in (EPOCH, -1, 99)]
            script += [staged("one", EPOCH, version=version, group_instance_id="i"),
                       staged("", -1, version=version, group_instance_id="i")]  # fmt: skip
    return [*script, *_done(), stable()]


def an_older_epoch_in_a_transaction() -> Script:
    """Before the member has heard of a newer one, and after."""
    script = [*alone(), *_begun(), joins("two", "@t"), staged("one", 1), staged("one", 2), beats("one")]
    script += [staged("one", 1), staged("one", 2), staged("one", EPOCH), staged("two", Told("two", "member_epoch"))]
    script += [beats("one"), beats("two"), staged("one", 2), staged("one", EPOCH)]
    return [*script, *_done(), stable()]


def a_static_member_in_a_transaction() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    instance: dict[str, Any] = {"group_instance_id": "i"}
    script = [*alone(), joins("three", "@t", **static), *_begun()]
    epoch = Told("three", "member_epoch")
    script += [staged("three", epoch, **instance), staged("three", epoch), staged("one", EPOCH, **instance)]
    script += [
        staged("three", epoch, group_instance_id="j"),
        leaves("three", -2, **static),
        staged("three", epoch, **instance),
    ]
    script += [joins("four", "@t", **static), staged("three", epoch, **instance)]
    return [*script, staged("four", Told("four", "member_epoch"), **instance), *_done(), stable()]


def a_member_that_left_in_a_transaction() -> Script:
    script = [*alone(), *_begun(), staged("one", EPOCH), leaves("one"), staged("one", EPOCH), staged("one", -1)]
    return [*script, staged(), stable(), described(), listed(), *_done(), stable(), fetched()]


def a_transaction_of_a_group_that_is_not_there() -> Script:
    script = [*alone(), *_begun(), leaves("one"), call("DeleteGroups", 2, group_names=[GROUP])]
    script += [staged("one", 1), staged("", 1), staged(), staged(version=0), described(), listed(), stable()]
    script += [joins("one", "@t"), stable("one", EPOCH)]
    return [*script, *_done(), stable(), described()]


def a_group_with_staged_offsets_is_deleted() -> Script:
    delete = call("DeleteGroups", 2, group_names=[GROUP])
    offsets = call("OffsetDelete", 0, group_id=GROUP, topics=[("@t", [0])])
    script = [*alone(), *_begun(), staged("one", EPOCH), offsets, stable(), leaves("one"), offsets, stable()]
    return [*script, staged(), delete, listed(), stable(), *_done(), stable(), listed()]


def a_classic_member_of_a_consumer_group_in_a_transaction() -> Script:
    script = [*alone(), classic("first"), classic("first", Told("first")), *_begun()]
    script += [staged(Told("first"), each) for each in (Told("first", "generation_id"), 1, 99, -1)]
    return [*script, staged("one", EPOCH), *_done(), stable()]


def two_transactions_of_a_group() -> Script:
    script = [*alone(), *_begun(), *_begun("q"), staged("one", EPOCH, 1), staged("one", EPOCH, 2, name="q")]
    return [*script, *_done(), stable(), *_done(name="q"), stable()]
