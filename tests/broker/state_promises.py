"""The promises of the state of a cluster to its brokers, kept by a shared directory and by a ZooKeeper alike."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from minibroker.broker.cluster.state import NO_CONTROLLER, Change, ControllerChanged, TopicState
from minibroker.broker.replica.decisions import Broker, PartitionState

TOPIC = TopicState(
    "orders",
    {0: PartitionState(1, 0, (1, 2), (1, 2)), 1: PartitionState(2, 0, (1, 2), (2, 1))},
    {"retention.ms": "1000"},
    uuid.UUID(int=7),
)

Join = Callable[[int], Any]  # opens the state for a broker, and shows the broker to it
Shown = Callable[[Any, Callable[[], object]], None]  # has a state look until it shows what is waited for


def broker_at(broker_id: int) -> Broker:
    return Broker({"PLAINTEXT": ("127.0.0.1", 9000 + broker_id)}, "rack")


def with_isr(topic: TopicState, partition: int, in_sync_replicas: tuple[int, ...]) -> TopicState:
    before = topic.partitions[partition]
    after = before._replace(in_sync_replicas=in_sync_replicas, state_version=before.state_version + 1)
    return topic._replace(partitions={**topic.partitions, partition: after})


def brokers_share_the_cluster_its_topics_and_its_brokers(joined: Join, shown: Shown) -> None:
    first, second = joined(1), joined(2)
    assert first.save("the topics", Change({"orders": TOPIC}))
    shown(second, lambda: second.topics)
    shown(first, lambda: len(first.brokers) == 2)
    assert first.cluster_id == second.cluster_id
    assert second.topics == first.topics
    assert second.topics["orders"]._replace(topic_id=TOPIC.topic_id) == TOPIC
    assert first.brokers == second.brokers == {1: broker_at(1), 2: broker_at(2)}
    assert joined(3).topics == first.topics


def leaders_change_partitions_of_one_topic_without_reading_each_other(joined: Join, shown: Shown) -> None:
    first, second = joined(1), joined(2)
    first.save("the topics", Change({"orders": TOPIC}))
    shown(second, lambda: second.topics)
    before = first.topics["orders"]
    assert first.save("the ISR", Change({"orders": with_isr(before, 0, (1,))}))
    assert second.save("the ISR", Change({"orders": with_isr(before, 1, (2,))}))
    after = {"orders": with_isr(with_isr(before, 0, (1,)), 1, (2,))}
    shown(first, lambda: first.topics == after)
    shown(second, lambda: second.topics == after)


def an_isr_that_others_have_changed_meanwhile_is_refused_and_read_again(joined: Join, shown: Shown) -> None:
    leader, other = joined(1), joined(2)
    leader.save("the topic", Change({"orders": TOPIC}))
    shown(other, lambda: other.topics)
    known = other.topics["orders"]
    assert leader.save("the ISR", Change({"orders": with_isr(known, 0, (1,))}))
    assert not other.save("the ISR", Change({"orders": with_isr(known, 0, (2,))}))
    state = other.topics["orders"].partitions[0]
    assert (state.in_sync_replicas, state.state_version) == ((1,), 1)
    assert other.save("the ISR", Change({"orders": with_isr(other.topics["orders"], 0, (1, 2))}))
    shown(leader, lambda: leader.topics["orders"].partitions[0].state_version == 2)
    assert not leader.save("the topic", Change({"orders": TOPIC}))  # states of a topic that was made before


def one_broker_controls_and_one_that_resigns_is_followed_by_another(joined: Join, shown: Shown) -> None:
    first, second = joined(1), joined(2)
    assert first.claim_controller()
    assert not second.claim_controller()  # as it has not heard of the first one
    assert (first.controller_epoch, second.controller_id, second.is_controller) == (1, 1, False)
    second.take_news()
    first.resign_controller()
    shown(second, lambda: second.controller_id == NO_CONTROLLER)
    assert not first.is_controller
    assert second.take_news() == [ControllerChanged(NO_CONTROLLER)]
    assert second.claim_controller()
    assert (second.controller_epoch, second.is_controller) == (2, True)
    assert not first.save("the topic", Change({"orders": TOPIC}, controller_epoch=1))
    assert not first.topics


PROMISES = (
    brokers_share_the_cluster_its_topics_and_its_brokers,
    leaders_change_partitions_of_one_topic_without_reading_each_other,
    an_isr_that_others_have_changed_meanwhile_is_refused_and_read_again,
    one_broker_controls_and_one_that_resigns_is_followed_by_another,
)
Promise = Callable[[Join, Shown], None]
