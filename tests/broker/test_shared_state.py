"""The state that the brokers of a cluster share: the journal orders changes, and refuses stale ones for all alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minibroker.broker.app import SECTIONS_OF_WINGS
from minibroker.broker.cluster.sections import (
    BEING_DELETED,
    BROKER_CONFIGS,
    CLIENT_METRICS,
    FEATURES,
    GROUP_CONFIGS,
    NEXT_PRODUCER_ID,
    OF_CORE,
    OLD_OFFSETS,
    FeatureLevels,
)
from minibroker.broker.cluster.state import (
    NO_CONTROLLER,
    BrokerGone,
    BrokerReturned,
    Change,
    ControllerChanged,
)
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity
from minibroker.broker.wings.quotas.quota_apis import CLIENT_QUOTAS
from minibroker.broker.wings.security.acls.acl_store import ACLS
from minibroker.broker.wings.security.sasl.users import CREDENTIALS, SALT_KEY
from minibroker.broker.wings.several import local_disk
from minibroker.broker.wings.several.broker_locks import BrokerLocks
from minibroker.broker.wings.several.shared_journal import SharedJournal
from minibroker.broker.wings.several.shared_state import COMPACTED_BYTES, SharedState, SharedStateError
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential
from minibroker.storage.files import disk
from tests.broker.state_promises import PROMISES, TOPIC, Promise, broker_at, with_isr

Joined = Callable[[int], SharedState]


@pytest.fixture
def joined(tmp_path: Path) -> Iterator[Joined]:
    """Opens the state for a broker of the cluster in the test's directory, and shows the broker to it."""
    opened: list[SharedState] = []

    def join(broker_id: int) -> SharedState:
        state = SharedState(tmp_path, broker_id, SECTIONS_OF_WINGS)
        opened.append(state)
        state.open()
        state.register(broker_at(broker_id))
        return state

    yield join
    for each in opened:
        if each.is_open:
            each.close()


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_to_brokers_is_kept(joined: Joined, promise: Promise) -> None:
    def shown(state: SharedState, is_shown: Callable[[], object]) -> None:
        state.look()
        assert is_shown()

    promise(joined, shown)


STALE_CHANGES = {
    "a state of a partition": Change({"orders": with_isr(TOPIC, 0, (2,))}),
    "a topic that exists": Change({"orders": TOPIC._replace(topic_id=uuid.UUID(int=8))}),
    "configs of a topic": Change({"orders": TOPIC._replace(configs={"retention.ms": "3"})}),
    "a topic that is gone": Change({"orders": None}),
    "a section": Change(sections={ACLS: [{"name": "b"}]}),
}


@pytest.mark.parametrize("stale", STALE_CHANGES.values(), ids=STALE_CHANGES.keys())
def test_a_change_of_a_state_that_others_have_changed_is_refused(joined: Joined, stale: Change) -> None:
    first, second = joined(1), joined(2)
    first.save("the topics", Change({"orders": TOPIC}))
    second.look()
    changed = with_isr(TOPIC, 0, (1,))._replace(configs={"retention.ms": "2"})
    assert first.save("all", Change({"orders": changed}, {ACLS: [{"name": "a"}]}))
    assert not second.save("the same", stale)
    assert second.topics == first.topics == {"orders": changed}
    assert second.get(ACLS) == [{"name": "a"}]
    third = joined(3)  # reads the refused line, too
    assert third.topics == first.topics


def test_a_topic_that_was_deleted_is_not_changed(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    first.save("the topics", Change({"orders": TOPIC}))
    second.look()
    first.save("the deletion", Change({"orders": None}))
    assert not second.save("the ISR", Change({"orders": with_isr(TOPIC, 0, (2,))}))
    assert not second.topics


def test_every_section_comes_back_as_it_was(joined: Joined) -> None:
    change = Change(
        {"orders": TOPIC},
        {
            BEING_DELETED: frozenset({"old"}),
            NEXT_PRODUCER_ID: 3000,
            OLD_OFFSETS: {"group": {TopicPartition("orders", 0): 5}, "gone": {}},
            BROKER_CONFIGS: {"": {"log.retention.ms": "5"}},
            GROUP_CONFIGS: {"g": {"consumer.session.timeout.ms": "50000"}},
            CLIENT_METRICS: {"m": {"interval.ms": "1000"}},
            CLIENT_QUOTAS: {Entity(DEFAULT, "client"): {"producer_byte_rate": 1.5}},
            ACLS: [{"name": "a"}],
            CREDENTIALS: {"alice": {"SCRAM-SHA-256": ScramCredential(b"salt", b"stored", b"server", 4096)}},
            SALT_KEY: b"key",
            FEATURES: FeatureLevels(3, {"transaction.version": 1}),
        },
    )
    assert change.sections.keys() == {*OF_CORE, *SECTIONS_OF_WINGS}
    first, second = joined(1), joined(2)
    assert first.save("everything", change)
    assert first.save("the offsets", Change(sections={OLD_OFFSETS: {"group": {TopicPartition("orders", 0): 5}}}))
    second.look()
    for state in (first, second):
        assert state.get(OLD_OFFSETS) == {"group": {TopicPartition("orders", 0): 5}}
        assert state.topics == change.topics
        for section, value in change.sections.items():
            assert state.get(section) == value or section is OLD_OFFSETS


def test_a_section_that_a_broker_does_not_declare_goes_into_the_next_journal(tmp_path: Path) -> None:
    shown = [{"name": "a" * COMPACTED_BYTES}]
    states = [SharedState(tmp_path, 1, SECTIONS_OF_WINGS), SharedState(tmp_path, 2), SharedState(tmp_path, 3, [ACLS])]
    states[0].open()
    for acls in ([{"name": "b" * 2 * COMPACTED_BYTES}], [], shown):
        assert states[0].save("ACLs", Change(sections={ACLS: acls}))
    before = (tmp_path / "state").stat()
    states[1].open()
    states[2].open()
    assert not os.path.samestat(before, (tmp_path / "state").stat())
    assert states[2].get(ACLS) == shown
    for each in states:
        each.close()


def test_one_broker_controls_until_its_life_ends(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    assert first.claim_controller()
    assert not second.claim_controller()  # as it has not heard of the first one
    assert not second.claim_controller()
    assert (second.controller_id, second.controller_epoch) == (1, 1)
    first.close()
    second.look()
    assert second.controller_id == NO_CONTROLLER
    assert second.claim_controller()
    assert second.is_controller
    assert second.controller_epoch == 2


def test_a_controller_that_was_replaced_changes_nothing(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    first.claim_controller()
    second.look()
    second.end_life_of(1)
    second.claim_controller()
    assert not first.save("the topics", Change({"orders": TOPIC}, controller_epoch=1))
    assert not first.is_controller
    assert not first.is_registered
    first.register(broker_at(1))
    assert first.is_registered
    assert not first.is_controller


def test_the_news_are_those_of_all_brokers_in_one_order(joined: Joined) -> None:
    first, second = joined(1), joined(2)
    first.claim_controller()
    first.save("the topics", Change({"orders": TOPIC}, controller_epoch=1))
    second.close()
    first.look()
    topics = Change({"orders": TOPIC}, controller_epoch=1)
    expected = [BrokerReturned(1), BrokerReturned(2), ControllerChanged(1), topics, BrokerGone(2)]
    assert first.take_news() == expected
    assert not first.has_news


def test_two_brokers_of_one_id_do_not_live_at_once(joined: Joined) -> None:
    joined(1)
    with pytest.raises(SharedStateError, match=r"broker 1 of the cluster in .* is running; choose another broker\.id"):
        joined(1)


def test_a_broker_that_is_alone_writes_a_long_journal_anew(joined: Joined, tmp_path: Path) -> None:
    first = joined(1)
    first.claim_controller()
    topic = TOPIC
    first.save("the topics", Change({"orders": topic}))
    while (tmp_path / "state").stat().st_size <= COMPACTED_BYTES:
        topic = with_isr(with_isr(topic, 0, (1, 2)), 1, (1, 2))
        first.save("the ISR", Change({"orders": topic}))
    cluster_id = first.cluster_id
    first.close()
    again = joined(1)
    assert (tmp_path / "state").stat().st_size < 4096
    assert (again.cluster_id, again.controller_epoch, again.topics) == (cluster_id, 1, {"orders": topic})
    assert again.brokers == {1: broker_at(1)}
    assert again.claim_controller()
    assert again.controller_epoch == 2


def test_a_directory_on_a_network_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / {tmp_path} rw - nfs4 host:/ rw\n")
    monkeypatch.setattr(local_disk, "MOUNTS", mounts)
    with pytest.raises(SharedStateError, match=r"is on a network \(nfs4\), where locks do not hold; name one"):
        SharedState(tmp_path, 1).open()


def test_a_line_that_was_cut_off_is_skipped_by_all(tmp_path: Path) -> None:
    journal, other = SharedJournal(tmp_path / "state"), SharedJournal(tmp_path / "state")
    journal.append({"a": 1})
    with (tmp_path / "state").open("ab") as file:
        file.write(b'\n{"b": ')
    assert [line for _, line in other.read()] == [{"a": 1}]
    journal.append({"c": 3})
    assert [line for _, line in journal.read()] == [{"a": 1}, {"c": 3}]
    assert [line for _, line in other.read()] == [{"c": 3}]


@pytest.mark.parametrize(
    "line", ['{"controller":{"id":1}}', '{"broker":[]}', '{"after":0,"change":{"topics":{"t":5}}}']
)
def test_a_damaged_line_keeps_a_broker_from_starting(tmp_path: Path, line: str) -> None:
    first = SharedState(tmp_path, 1)
    first.open()
    with (tmp_path / "state").open("a") as journal:
        journal.write(f"{line}\n")

    with pytest.raises(SharedStateError, match=r"the line that ends at byte \d+ is damaged"):
        SharedState(tmp_path, 2).open()
    first.close()


def test_an_error_of_the_disk_is_one_of_storage(joined: Joined, monkeypatch: pytest.MonkeyPatch) -> None:
    state = joined(1)

    def full(fd: int, content: bytes) -> int:
        return 1

    monkeypatch.setattr(disk, "write", full)
    with pytest.raises(KafkaError, match="cannot store the topics: No space left on device"):
        state.save("the topics", Change({"orders": TOPIC}))
    assert not state.topics


HOLDER = """
import sys, time
from pathlib import Path
from minibroker.broker.wings.several.broker_locks import BrokerLocks
locks = BrokerLocks(Path(sys.argv[1]))
assert locks.hold(2)
locks.beat()
print("held", flush=True)
time.sleep(60)
"""


def test_a_killed_broker_has_dropped_its_lock(tmp_path: Path) -> None:
    locks = BrokerLocks(tmp_path)
    assert not locks.is_held(2)
    assert locks.beats_of(2) == 0
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert locks.is_held(2)
        assert locks.beats_of(2) == 1
        assert not locks.hold(2)
        process.send_signal(signal.SIGKILL)
    assert not locks.is_held(2)
    assert locks.hold(2)
    locks.release()
    assert not locks.is_held(2)
