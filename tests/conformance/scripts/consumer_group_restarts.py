"""Groups of the consumer protocol whose coordinator is killed and started again, as Apache Kafka 4.4.0 goes on."""

from __future__ import annotations

from typing import Any

from tests.conformance.scripts.consumer_group_configs import configured, shown
from tests.conformance.scripts.consumer_group_transactions import EPOCH, _begun, _done, stable, staged
from tests.conformance.scripts.consumer_groups import (
    GROUP,
    MATCHING_MS,
    WILL_BE_BACK,
    _patiently,
    alone,
    beats,
    classic,
    committed,
    described,
    fetched,
    heartbeat,
    joins,
    leaves,
    listed,
    topics,
    two_members,
    wait,
)
from tests.conformance.scripts.transactions import COORDINATOR_IS_NEW, find
from tests.conformance.steps import Script, Told, call, restart

SHORT_SESSION_MS = 8000


def _restarted() -> Script:
    loaded = call("OffsetFetch", 8, groups=[(GROUP, None, -1, [])], retry=COORDINATOR_IS_NEW)
    return [restart(), find(GROUP, 0), loaded]


def members_go_on_after_a_restart() -> Script:
    script = [
        *_patiently(two_members()),
        committed("one", EPOCH),
        described(),
        *_restarted(),
        described(),
        beats("one"),
    ]
    script += [beats("two"), committed("two", Told("two", "member_epoch"), 6), fetched(), listed()]
    return [*script, heartbeat("two", 99), joins("three", "@t"), beats("one"), beats("two"), described()]


def a_restart_in_the_middle_of_a_rebalance() -> Script:
    """The first member has yet to give back what the second one is to get."""
    script = [*_patiently(alone()), joins("two", "@t"), beats("one", topic_partitions=None), *_restarted(), described()]
    return [*script, beats("two"), beats("one"), beats("two"), beats("one"), described()]


def an_answer_that_a_restart_has_swallowed() -> Script:
    """The member goes on in the epoch before."""
    script = [*_patiently(two_members()), joins("three", "@t"), beats("one"), *_restarted()]
    script += [heartbeat("one", 2), heartbeat("one", 2, topic_partitions=[]), beats("one"), beats("two")]
    return [*script, described()]


def static_members_after_a_restart() -> Script:
    """One that is away comes back to what it had; one that is there keeps its instance id."""
    static: dict[str, Any] = {"instance_id": "i"}
    other: dict[str, Any] = {"instance_id": "j"}
    script = [
        *_patiently(topics(("@t", 2))),
        joins("one", "@t", **static),
        joins("two", "@t", **other),
        beats("one"),
        beats("two"),
    ]
    script += [leaves("one", WILL_BE_BACK, **static), *_restarted(), described(), joins("three", "@t", **other)]
    return [*script, joins("four", "@t", **static), beats("four"), beats("two", **other), described()]


def a_regular_expression_after_a_restart() -> Script:
    matching: dict[str, Any] = {
        "subscribed_topic_names": None,
        "subscribed_topic_regex": "@t.*",
        "server_assignor": "range",
    }
    script = [*_patiently(topics(("@t1", 2), ("@t2", 2), ("@u", 1))), joins("one", **matching), wait(MATCHING_MS, "@u")]
    script += [beats("one"), described(), *_restarted(), described(), beats("one"), joins("two", **matching)]
    return [*script, beats("one"), beats("two"), described()]


def the_range_assignor_after_a_restart() -> Script:
    ranged: dict[str, Any] = {"server_assignor": "range"}
    script = [
        *_patiently(topics(("@t", 3), ("@u", 3))),
        joins("one", "@t", "@u", **ranged),
        joins("two", "@t", "@u", **ranged),
    ]
    script += [beats("one"), *_restarted(), described(), beats("one"), beats("two"), joins("three", "@t", **ranged)]
    return [*script, beats("one"), beats("two"), beats("three"), described()]


def sessions_begin_anew_after_a_restart() -> Script:
    script = [*topics(("@t", 2)), *configured(session=SHORT_SESSION_MS), joins("one", "@t"), joins("two", "@t")]
    script += [beats("one"), *_restarted(), wait(SHORT_SESSION_MS - 3000), beats("one")]
    return [
        *script,
        wait(SHORT_SESSION_MS - 1000),
        described(),
        heartbeat("two", Told("two", "member_epoch")),
        beats("one"),
    ]


def a_rebalance_timeout_begins_anew_after_a_restart() -> Script:
    script = [
        *_patiently(topics(("@t", 2))),
        joins("one", "@t", rebalance_timeout_ms=5000),
        beats("one"),
        joins("two", "@t"),
    ]
    script += [heartbeat("one", EPOCH), *_restarted(), heartbeat("one", EPOCH), wait(6000), heartbeat("one", EPOCH)]
    return [*script, beats("two"), described()]


def a_static_member_that_is_away_for_longer_than_a_restart() -> Script:
    static: dict[str, Any] = {"instance_id": "i"}
    script = [*topics(("@t", 2)), *configured(session=SHORT_SESSION_MS), joins("one", "@t", **static)]
    script += [leaves("one", WILL_BE_BACK, **static), *_restarted(), shown(), described()]
    return [*script, wait(SHORT_SESSION_MS + 2000), described(), listed()]


def members_of_both_protocols_after_a_restart() -> Script:
    script = [
        *_patiently(alone()),
        classic("first"),
        classic("first", Told("first")),
        beats("one"),
        *_restarted(),
        described(),
    ]
    known: dict[str, Any] = {"group_id": GROUP, "generation_id": 2, "member_id": Told("first")}
    script += [call("Heartbeat", 4, **known), call("SyncGroup", 5, assignments=[], **known), beats("one")]
    return [*script, described(), leaves("one"), listed()]


def groups_without_members_after_a_restart() -> Script:
    """One has offsets, one is deleted."""
    script = [*_patiently(alone()), committed("one", EPOCH), leaves("one"), joins("a", "@t", group_id="@gone")]
    script += [leaves("a", group_id="@gone"), call("DeleteGroups", 2, group_names=["@gone"]), *_restarted()]
    return [*script, described(GROUP, "@gone"), listed(), fetched(), joins("two", "@t"), described()]


def a_transaction_of_a_member_over_a_restart() -> Script:
    script = [
        *_patiently(alone()),
        *_begun(),
        staged("one", EPOCH),
        *_restarted(),
        stable(),
        stable("one", EPOCH),
        beats("one"),
    ]
    return [*script, find("@p"), *_done(), stable("one", EPOCH)]
