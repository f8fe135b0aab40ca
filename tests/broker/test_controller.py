"""The controller's plans for events, by tables: three brokers, and how one partition goes on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import pytest

from minibroker.broker.cluster.controller import (
    NOTHING,
    UNCLEAN,
    Image,
    Plan,
    brokers_changed,
    change_isr,
    choose_leader,
    controller_elected,
    create_topics,
    delete_topics,
    elect,
    elect_preferred,
    enter_topics,
    isr_changed,
    new_partition,
    rebalance_leaders,
    replicas_deleted,
    replicas_offline,
    shut_down,
    topics_appeared,
)
from minibroker.broker.cluster.sections import ASKED_ELECTIONS, BEING_DELETED
from minibroker.broker.cluster.state import Change, Reassignment, TopicState
from minibroker.broker.replica.decisions import (
    Broker,
    LeaderAndIsr,
    PartitionState,
    UpdateMetadata,
)
from minibroker.broker.replica.isr import IsrChange
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from tests.broker.controlled import ID, LED_BY_1, T0, image_of, played, sent


def written(plan: Plan) -> PartitionState | None:
    """The state of T0 that a plan writes."""
    topic = None if plan.change is None else plan.change.topics.get("t")
    return None if topic is None else topic.partitions[0]


class After(NamedTuple):
    """The leader, its epoch and the in-sync replicas once an event was dealt with."""

    leader: int
    epoch: int
    isr: tuple[int, ...]


def after(plan: Plan) -> After | None:
    state = written(plan)
    if state is None:
        return None
    assert state.state_version == LED_BY_1.state_version + 1
    assert state.controller_epoch == 8 or state.leader_epoch == LED_BY_1.leader_epoch
    return After(state.leader, state.leader_epoch, state.in_sync_replicas)


@pytest.mark.parametrize(
    ("isr", "gone", "expected"),
    [
        ((1, 2, 3), (1,), After(2, 5, (2, 3))),
        ((1, 3), (1,), After(3, 5, (3,))),
        ((1,), (1,), After(-1, 5, (1,))),  # the last one in sync stays: it has all records
        ((1, 2), (1, 2), After(-1, 5, (1, 2))),
        ((1, 2, 3), (2,), After(1, 5, (1, 3))),
        ((1, 3), (2,), None),
    ],
)
def test_partitions_of_brokers_that_are_gone_are_led_by_others(
    isr: tuple[int, ...], gone: tuple[int, ...], expected: After | None
) -> None:
    alive = tuple(each for each in (1, 2, 3) if each not in gone)

    plan = brokers_changed(image_of(LED_BY_1._replace(in_sync_replicas=isr), alive), gone=gone)

    assert after(plan) == expected
    assert sent(plan) == dict.fromkeys(alive, "U" if expected is None else "UL")


@pytest.mark.parametrize(
    ("isr", "offline", "expected"),
    [
        ((1, 2, 3), 1, After(2, 5, (2, 3))),
        ((1, 2, 3), 3, After(1, 5, (1, 2))),
        ((1,), 1, After(-1, 5, (1,))),
        ((1, 2), 3, None),
    ],
)
def test_replicas_of_a_log_directory_that_has_failed_are_offline(
    isr: tuple[int, ...], offline: int, expected: After | None
) -> None:
    state = LED_BY_1._replace(in_sync_replicas=isr)
    image = image_of(state)._replace(offline=frozenset({(T0, offline)}))

    plan = replicas_offline(image, [(T0, offline)])

    assert after(plan) == expected
    seen = [each.topics["t"] for each in plan.decisions[offline] if isinstance(each, UpdateMetadata)]
    assert [topic and topic.offline_replicas for topic in seen] == [{0: (offline,)}]
    assert not any(isinstance(each, LeaderAndIsr) for each in plan.decisions[offline])


@pytest.mark.parametrize(
    ("isr", "expected"), [((1, 2), After(2, 5, (2,))), ((1,), After(-1, 5, (1,))), ((2, 3), After(2, 5, (2, 3)))]
)
def test_a_leader_that_was_gone_leads_no_more_though_it_is_alive_again(isr: tuple[int, ...], expected: After) -> None:
    state = LED_BY_1._replace(in_sync_replicas=isr)
    plan = brokers_changed(image_of(state), gone=[1])

    assert after(plan) == expected
    assert sent(plan) == {2: "UL", 3: "UL"}


@pytest.mark.parametrize(("unclean", "expected"), [("true", After(2, 5, (2,))), ("false", After(-1, 5, (1,)))])
def test_a_broker_that_lacks_records_leads_where_the_topic_allows_it(unclean: str, expected: After) -> None:
    image = image_of(LED_BY_1._replace(in_sync_replicas=(1,)), (2, 3), **{UNCLEAN: unclean})

    assert after(brokers_changed(image, gone=[1])) == expected
    assert after(brokers_changed(image._replace(is_unclean=unclean != "true"), gone=[1])) == expected


@pytest.mark.parametrize(
    ("leader", "isr", "returned", "newest", "expected", "decisions"),
    [
        (-1, (1,), 1, -1, After(1, 5, (1,)), "UL"),  # the one that was waited for
        (-1, (1,), 2, -1, None, "UL"),
        (1, (1, 3), 2, -1, None, "UL"),  # it follows
        (1, (1, 2, 3), 1, -1, After(1, 5, (1, 2, 3)), "UL"),  # and followers come back by themselves
        (1, (1, 2, 3), 1, 6, After(1, 7, (1, 2, 3)), "UL"),  # a log knows newer epochs
        (-1, (), 2, -1, After(2, 4, (2,)), "UL"),  # the first leader, in the first epoch
        (-1, (), 2, 6, After(2, 7, (2,)), "UL"),
    ],
)
def test_a_broker_that_has_started_takes_its_roles(
    leader: int, isr: tuple[int, ...], returned: int, newest: int, expected: After | None, decisions: str
) -> None:
    state = LED_BY_1._replace(leader=leader, in_sync_replicas=isr)
    alive = (returned,) if leader == -1 else (1, 2, 3)

    plan = brokers_changed(image_of(state, alive), returned=[returned], newest_epochs={T0: newest})

    assert after(plan) == expected
    assert sent(plan)[returned] == decisions
    (update, roles) = plan.decisions[returned]
    assert isinstance(update, UpdateMetadata) and update.brokers.keys() == set(alive)
    assert isinstance(roles, LeaderAndIsr) and roles.is_new is (not isr)
    assert roles.partitions == {T0: written(plan) or state}


@pytest.mark.parametrize(
    ("state", "expected", "decisions"),
    [
        (LED_BY_1, After(2, 5, (2, 3)), {1: "US", 2: "LU", 3: "LU"}),
        (LED_BY_1._replace(leader=2), After(2, 5, (2, 3)), {1: "US", 2: "LU", 3: "LU"}),
        (LED_BY_1._replace(leader=2, in_sync_replicas=(2,)), None, {}),
        (LED_BY_1._replace(in_sync_replicas=(1,)), None, {}),  # nobody else could lead
        (LED_BY_1._replace(in_sync_replicas=(1,), replicas=(1,)), None, {}),
    ],
)
def test_a_broker_that_is_about_to_end_has_others_lead(
    state: PartitionState, expected: After | None, decisions: dict[int, str]
) -> None:
    plan = shut_down(image_of(state), 1)

    assert (after(plan), sent(plan)) == (expected, decisions)


@pytest.mark.parametrize(
    "event",
    [
        controller_elected,
        partial(brokers_changed, gone=[1]),
        partial(shut_down, broker_id=1),
        lambda image: elect(image, [T0], is_unclean=True)[0],
    ],
)
def test_a_broker_that_is_about_to_end_leads_nothing_more(event: Callable[[Image], Plan]) -> None:
    image = image_of(LED_BY_1, (2, 3))._replace(leaving=frozenset({2}))

    assert after(event(image)) == After(3, 5, (3,))
    assert new_partition(image, (2, 3))[:3] == (3, 0, (3,))
    assert new_partition(image, (2,))[:3] == (-1, 0, ())
    led_by_3 = image_of(LED_BY_1._replace(leader=3, replicas=(2, 3)), (2, 3))
    assert after(rebalance_leaders(led_by_3, percentage=0)) == After(2, 5, (1, 2, 3))
    assert rebalance_leaders(led_by_3._replace(leaving=image.leaving), percentage=0) == NOTHING


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "preferred", "unclean"),
    [
        (1, (1, 2), (1, 2), "ELECTION_NOT_NEEDED", "ELECTION_NOT_NEEDED"),
        (2, (1, 2), (1, 2), After(1, 5, (1, 2)), "ELECTION_NOT_NEEDED"),
        (2, (2,), (1, 2), "PREFERRED_LEADER_NOT_AVAILABLE", "ELECTION_NOT_NEEDED"),
        (2, (1, 2), (2,), "PREFERRED_LEADER_NOT_AVAILABLE", "ELECTION_NOT_NEEDED"),
        (-1, (1,), (2, 3), "PREFERRED_LEADER_NOT_AVAILABLE", After(2, 5, (2,))),
        (-1, (1,), (), "PREFERRED_LEADER_NOT_AVAILABLE", "ELIGIBLE_LEADERS_NOT_AVAILABLE"),
    ],
)
def test_an_election_is_held_is_not_needed_or_cannot_be(
    leader: int, isr: tuple[int, ...], alive: tuple[int, ...], preferred: str | After, unclean: str | After
) -> None:
    image = image_of(LED_BY_1._replace(leader=leader, in_sync_replicas=isr), alive)
    for is_unclean, expected in ((False, preferred), (True, unclean)):
        plan, outcomes = elect(image, [T0], is_unclean=is_unclean)

        code, message = outcomes[T0]
        if isinstance(expected, After):
            assert (code, message, after(plan)) == (ErrorCode.NONE, None, expected)
            assert sent(plan) == dict.fromkeys(alive, "LU")
        else:
            assert (code, plan) == (ErrorCode[expected], NOTHING)
            assert message


@pytest.mark.parametrize(
    ("broker_id", "alive", "is_unclean", "expected"),
    [
        (2, (1, 2), False, After(2, 5, (1, 2))),
        (1, (1, 2), False, None),
        (3, (1, 2, 3), False, "not in sync in t-0: 1, 2 are; wait until it is, or ask for an unclean election"),
        (3, (1, 2, 3), True, After(3, 5, (3,))),
        (2, (1,), True, "broker 2 is not alive; start it first"),
        (4, (1, 4), True, "broker 4 has no replica of t-0; its replicas: 1, 2, 3"),
    ],
)
def test_a_replica_that_may_lead_is_chosen_to(
    broker_id: int, alive: tuple[int, ...], is_unclean: bool, expected: After | str | None
) -> None:
    image = image_of(LED_BY_1._replace(in_sync_replicas=(1, 2)), alive)
    if isinstance(expected, str):
        with pytest.raises(KafkaError, match=expected):
            choose_leader(image, T0, broker_id, is_unclean=is_unclean)
    else:
        plan = choose_leader(image, T0, broker_id, is_unclean=is_unclean)
        assert (after(plan), sent(plan)) == (expected, dict.fromkeys(alive, "LU") if expected else {})


@pytest.mark.parametrize(
    ("epoch", "version", "is_saved"), [(4, 9, True), (3, 9, False), (5, 9, False), (4, 8, False), (4, 10, False)]
)
def test_a_leader_changes_its_in_sync_replicas_if_it_knows_the_state(epoch: int, version: int, is_saved: bool) -> None:
    unknown = TopicPartition("u", 0)
    asked = IsrChange((1, 2), epoch, version)

    plan, outcomes = change_isr(image_of(LED_BY_1), {T0: asked, unknown: asked})

    assert outcomes == {T0: 10 if is_saved else None, unknown: None}
    assert after(plan) == (After(1, 4, (1, 2)) if is_saved else None)
    assert sent(plan) == (dict.fromkeys((1, 2, 3), "U") if is_saved else {})


@pytest.mark.parametrize(
    ("replicas", "leader", "seen", "decisions"),
    [
        ((2, 1), 2, [0], {1: "LU", 2: "LU", 3: "U"}),
        ((5, 1), 1, [0], {1: "LU", 2: "U", 3: "U"}),
        ((5, 6), -1, [], {1: "U", 2: "U", 3: "U"}),  # clients see it with its first leader
    ],
)
def test_a_new_topic_is_led_by_its_first_live_replica(
    replicas: tuple[int, ...], leader: int, seen: list[int], decisions: Mapping[int, str]
) -> None:
    image = image_of(None)._replace(being_deleted=frozenset("tu"))
    topic = TopicState("t", {0: new_partition(image, replicas)}, {"retention.ms": "7"}, ID)
    entered = enter_topics(image, {"t": topic})
    assert entered.change == Change(
        {"t": topic._replace(partitions={0: PartitionState(-1, 0, (), replicas, 0, 8)})},
        {BEING_DELETED: frozenset("u")},
    )
    assert not entered.decisions

    plan = create_topics(image, {"t": topic})

    assert topic.partitions[0] == PartitionState(leader, 0, tuple({*replicas} & {1, 2, 3})[::-1], replicas, 0, 8)
    assert plan.change == Change({"t": topic}, {BEING_DELETED: frozenset("u")})
    assert plan.configs == {"t": topic.configs}
    assert sent(plan) == decisions
    update = plan.decisions[3][-1]
    assert isinstance(update, UpdateMetadata)
    assert [list(each.partitions) for each in update.topics.values() if each] == ([seen] if seen else [])
    assert all(each.is_new for each in plan.decisions[1] if isinstance(each, LeaderAndIsr))


def test_added_partitions_are_all_that_replicas_learn_of() -> None:
    image = image_of(LED_BY_1)
    topic = image.topics["t"]
    added = PartitionState(2, 0, (2,), (2,))

    plan = create_topics(image, {"t": topic._replace(partitions={**topic.partitions, 1: added})})

    assert sent(plan) == {1: "U", 2: "LU", 3: "U"}
    assert plan.decisions[2][0][2] == {TopicPartition("t", 1): added}


def test_a_topic_that_others_have_stored_meanwhile_stays() -> None:
    image = image_of(LED_BY_1)
    other = TopicState("t", {0: new_partition(image, (2,))}, {}, uuid.UUID(int=8))
    grown = image.topics["t"]._replace(
        partitions={0: LED_BY_1._replace(state_version=7), 1: new_partition(image, (3,))}
    )

    for event in (create_topics, enter_topics):
        assert event(image, {"t": other}).change == Change()
    assert not Change({"t": other}).fits(image.topics)
    stored = create_topics(image, {"t": grown}).change
    assert stored is not None and stored.topics["t"] == grown._replace(partitions={**grown.partitions, 0: LED_BY_1})


def test_topics_of_other_brokers_get_their_first_leaders_once_a_replica_is_alive() -> None:
    image = image_of(PartitionState(-1, 0, (), (2, 3)), retention_ms="7")

    plan = topics_appeared(image, ["t", "unknown"])

    assert written(plan) == PartitionState(2, 0, (2, 3), (2, 3), 1, 8)
    assert (sent(plan), plan.configs) == ({1: "U", 2: "LU", 3: "LU"}, {"t": {"retention_ms": "7"}})
    (roles, _) = plan.decisions[2]
    assert isinstance(roles, LeaderAndIsr) and roles.is_new
    alone = image._replace(brokers={1: image.brokers[1]})
    for none in (alone, image._replace(being_deleted=frozenset("t")), image_of(LED_BY_1)):
        assert topics_appeared(none, ["t"]) is NOTHING


@pytest.mark.parametrize(
    ("state", "alive", "expected"),
    [
        (LED_BY_1, (1, 3), None),  # a follower that is gone is its leader's business
        (LED_BY_1, (2, 3), After(2, 5, (2, 3))),
        (LED_BY_1._replace(leader=-1, in_sync_replicas=(2,)), (2, 3), After(2, 5, (2,))),
        (LED_BY_1._replace(leader=-1, in_sync_replicas=()), (2, 3), After(2, 4, (2, 3))),
    ],
)
def test_a_new_controller_repeats_everything_and_elects_where_a_leader_is_gone(
    state: PartitionState, alive: tuple[int, ...], expected: After | None
) -> None:
    image = image_of(state, alive)
    image = image._replace(topics={**image.topics, "u": TopicState("u", {0: LED_BY_1}, {}, ID)})
    deleting = image._replace(being_deleted=frozenset("u"), is_shared=True)

    plan = controller_elected(image)

    assert after(plan) == expected
    for decisions in plan.decisions.values():
        assert isinstance(decisions[0], UpdateMetadata) and decisions[0].topics.keys() == {"t", "u"}
        assert {each.topic for role in decisions[1:] if isinstance(role, LeaderAndIsr) for each in role.partitions} == {
            "t",
            "u",
        }
    assert sent(controller_elected(deleting)) == dict.fromkeys(alive, "ULD")
    update = controller_elected(deleting).decisions[3][0]
    assert isinstance(update, UpdateMetadata) and update.topics.keys() == {"t"}


def test_changed_in_sync_replicas_are_shown_to_all_brokers() -> None:
    plan = isr_changed(image_of(LED_BY_1), ["t", "u"])

    assert (plan.change, sent(plan)) == (None, dict.fromkeys((1, 2, 3), "U"))
    assert isr_changed(image_of(LED_BY_1)._replace(being_deleted=frozenset("t")), ["t"]) is NOTHING


@pytest.mark.parametrize(
    ("led_by_2", "isr", "alive", "percentage", "elected"),
    [
        (2, (1, 2), (1, 2), 10, [0, 1]),
        (2, (1, 2), (1, 2), 49, [0, 1]),
        (2, (1, 2), (1, 2), 50, []),  # of four partitions: no more than is allowed
        (2, (1, 2), (2,), 10, []),
        (2, (2,), (1, 2), 10, []),  # it would lose records
        (0, (1, 2), (1, 2), 0, []),
    ],
)
def test_a_broker_that_leads_too_few_of_its_partitions_gets_them_back(
    led_by_2: int, isr: tuple[int, ...], alive: tuple[int, ...], percentage: int, elected: list[int]
) -> None:
    partitions = {number: PartitionState(2 if number < led_by_2 else 1, 4, isr, (1, 2), 9) for number in range(4)}
    image = image_of(LED_BY_1, alive)
    topic = image.topics["t"]._replace(partitions=partitions)

    plan = rebalance_leaders(image._replace(topics={"t": topic}), percentage=percentage)

    changed = {} if plan.change is None else plan.change.topics
    states = [] if changed.get("t") is None else changed["t"].partitions.items()  # type: ignore[union-attr]
    assert [number for number, state in states if state.leader_epoch == 5 and state.leader == 1] == elected
    moving = topic._replace(reassignments={0: Reassignment((2, 1), (1, 2), ())})
    assert rebalance_leaders(image._replace(topics={"t": moving}), percentage=0) is NOTHING


def test_a_topic_of_several_brokers_is_deleted_once_all_its_replicas_are() -> None:
    """The replicas of a broker that is not alive go when it returns."""
    image = image_of(LED_BY_1, (1, 3))._replace(is_shared=True)

    plan = delete_topics(image, ["t"])

    assert (after(plan), sent(plan)) == (After(-1, 5, (1, 2, 3)), {1: "UD", 3: "UD"})
    image = played(image, plan)
    assert replicas_deleted(image, {(T0, 1), (T0, 3)}) is NOTHING
    for nothing in (elect(image, [T0], is_unclean=True)[0], shut_down(image, 1), topics_appeared(image, ["t"])):
        assert nothing is NOTHING
    assert change_isr(image, {T0: IsrChange((1,), 4, 9)})[1] == {T0: None}
    back = image._replace(brokers={**image.brokers, 2: Broker({})})
    assert sent(brokers_changed(back, returned=[2])) == {1: "U", 2: "UD", 3: "U"}
    assert replicas_deleted(back, {(T0, 1), (T0, 2), (T0, 3)}).change == Change(
        {"t": None}, {BEING_DELETED: frozenset()}
    )


def test_a_deleted_topic_is_unseen_before_its_replicas_go() -> None:
    plan = delete_topics(image_of(LED_BY_1, (1, 3)), ["t"])

    assert plan.change == Change({"t": None}, {BEING_DELETED: frozenset("t")})
    assert sent(plan) == {1: "UD", 3: "UD"}
    update = plan.decisions[1][0]
    assert isinstance(update, UpdateMetadata) and update.topics == {"t": None}


@pytest.mark.parametrize(
    ("leader", "isr", "alive", "expected"),
    [
        (2, (1, 2), (1, 2), After(1, 5, (1, 2))),
        (1, (1, 2), (1, 2), After(1, 5, (1, 2))),  # in a new epoch, as Kafka
        (2, (2, 3), (1, 2), None),  # it lacks records
        (2, (1, 2), (2, 3), None),  # it is not alive
    ],
)
def test_kafkas_tool_asks_for_preferred_leaders(
    leader: int, isr: tuple[int, ...], alive: tuple[int, ...], expected: After | None
) -> None:
    image = image_of(LED_BY_1._replace(leader=leader, in_sync_replicas=isr), alive)

    plan = elect_preferred(image, [T0, TopicPartition("unknown", 0)])

    assert after(plan) == expected
    assert plan.change is not None
    assert plan.change.sections == {ASKED_ELECTIONS: frozenset()}


def test_in_sync_replicas_that_are_stored_already_are_no_stale_change() -> None:
    """The answer to the write was lost: the leader asks again, with the version before."""
    image = image_of(LED_BY_1._replace(in_sync_replicas=(1, 2)))
    plan, outcomes = change_isr(image, {T0: IsrChange((1, 2), 4, 8)})

    assert (plan, outcomes) == (NOTHING, {T0: 9})
    assert change_isr(image, {T0: IsrChange((1, 3), 4, 8)})[1] == {T0: None}
