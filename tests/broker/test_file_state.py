"""The stored topics and old offsets: the file, and the changes since it was written."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from minibroker.broker.app import SECTIONS_OF_WINGS
from minibroker.broker.cluster import file_state as file_state_module
from minibroker.broker.cluster.file_state import FILE_NAME, FileState, FileStateError
from minibroker.broker.cluster.file_state import JOURNAL_NAME as CHANGES
from minibroker.broker.cluster.sections import BEING_DELETED, NEXT_PRODUCER_ID, OLD_OFFSETS
from minibroker.broker.cluster.state import Change, TopicState
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.wings.security.sasl.users import CREDENTIALS
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential
from minibroker.simulation.world import Died, Process
from minibroker.storage.files import disk
from tests.storage.crashes import crashes
from tests.storage.simulated_disk import simulated_disk


@pytest.fixture
def state(tmp_path: Path) -> FileState:
    """With the topics a and b in the file."""
    state = FileState(tmp_path, 0, SECTIONS_OF_WINGS)
    add(state, "a", "b")
    state.close()
    return state


def topic(name: str, **configs: str) -> TopicState:
    return TopicState(name, {0: PartitionState(0, 0, (0,), (0,))}, configs, UUID(int=7))


def add(state: FileState, *names: str) -> None:
    assert state.save("topics", Change({name: topic(name) for name in names}))


def remove(state: FileState, *names: str) -> None:
    state.save("a deletion", Change(dict.fromkeys(names), {BEING_DELETED: state.get(BEING_DELETED) | set(names)}))


def again(directory: Path) -> FileState:
    state = FileState(directory, 0, SECTIONS_OF_WINGS)
    state.read()
    return state


def is_the_same(one: FileState, other: FileState) -> bool:
    assert (one.cluster_id, [*one.topics.items()]) == (other.cluster_id, [*other.topics.items()])
    return all(one.get(each) == other.get(each) for each in one.sections.values())


def test_a_change_is_one_line_and_leaves_the_file_as_it_is(state: FileState, tmp_path: Path) -> None:
    before = (tmp_path / FILE_NAME).read_bytes()
    add(state, "c")
    state.save("both", Change({"a": topic("a", retention="7"), "b": None}, {BEING_DELETED: frozenset({"b"})}))
    state.save("both", Change(sections={NEXT_PRODUCER_ID: 1000, OLD_OFFSETS: {"group": {TopicPartition("a", 0): 5}}}))

    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert (tmp_path / CHANGES).read_bytes().count(b"\n") == 1 + 3
    assert is_the_same(again(tmp_path), state)

    state.save("fewer groups", Change(sections={OLD_OFFSETS: {}}))
    assert is_the_same(again(tmp_path), state)


@pytest.mark.parametrize(
    ("version", "leader", "is_saved"), [(0, 0, True), (1, 5, True), (0, 5, False), (2, 5, False), (-1, 5, False)]
)
def test_a_change_is_refused_unless_it_has_the_next_version(
    state: FileState, version: int, leader: int, is_saved: bool
) -> None:
    before = state.topics["a"]
    change = before._replace(partitions={0: PartitionState(leader, 0, (0,), (0,), version), 1: before.partitions[0]})

    assert state.save("an election", Change({"a": change})) is is_saved
    assert state.topics["a"] is (change if is_saved else before)


def test_a_topic_that_is_made_again_is_the_last_one(state: FileState, tmp_path: Path) -> None:
    remove(state, "a")
    add(state, "a")

    assert [*again(tmp_path).topics] == ["b", "a"]


def test_the_file_has_everything_after_a_stop_in_order(state: FileState, tmp_path: Path) -> None:
    add(state, "c")

    state.close()

    assert os.listdir(tmp_path) == [FILE_NAME]
    assert [*json.loads((tmp_path / FILE_NAME).read_text())["topics"]] == ["a", "b", "c"]


def test_many_changes_are_written_into_the_file(
    state: FileState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_state_module, "JOURNAL_BYTES", 0)
    sizes = []
    for number in range(40):
        state.save("ids", Change(sections={NEXT_PRODUCER_ID: number}))
        sizes.append((tmp_path / CHANGES).stat().st_size if (tmp_path / CHANGES).exists() else 0)

    assert max(sizes) < 2 * (tmp_path / FILE_NAME).stat().st_size
    assert 0 in sizes
    assert again(tmp_path).get(NEXT_PRODUCER_ID) == 39


@pytest.mark.parametrize("cut_bytes", [1, 20])
def test_a_line_that_was_cut_off_is_dropped_and_another_takes_its_place(
    state: FileState, tmp_path: Path, cut_bytes: int
) -> None:
    add(state, "c")
    add(state, "d")
    os.truncate(tmp_path / CHANGES, (tmp_path / CHANGES).stat().st_size - cut_bytes)

    restarted = again(tmp_path)
    assert [*restarted.topics] == ["a", "b", "c"]
    add(restarted, "e")

    assert [*again(tmp_path).topics] == ["a", "b", "c", "e"]


def test_changes_of_an_older_file_are_not_read_again(state: FileState, tmp_path: Path) -> None:
    """A crash came between the file and the end of its journal."""
    for name in "cde":
        add(state, name)
    left = (tmp_path / CHANGES).read_bytes()
    remove(state, *"cde")
    state.close()
    (tmp_path / CHANGES).write_bytes(left)

    assert [*again(tmp_path).topics] == ["a", "b"]

    add(state, "d")
    assert [*again(tmp_path).topics] == ["a", "b", "d"]


def test_a_process_that_dies_after_any_call_has_stored_its_last_change_or_not(
    state: FileState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written anew several times meanwhile."""
    monkeypatch.setattr(file_state_module, "JOURNAL_BYTES", 0)
    deaths = 0
    for number in range(1000):
        directory = tmp_path / str(number)
        directory.mkdir()
        shutil.copyfile(tmp_path / FILE_NAME, directory / FILE_NAME)
        stored: list[int] = []

        def live(directory: Path = directory, stored: list[int] = stored) -> None:
            living = again(directory)
            for each in range(12):
                living.save("ids", Change(sections={NEXT_PRODUCER_ID: each}))
                stored.append(each)
            living.close()

        if not crashes(live, number):
            break
        deaths += 1
        found = again(directory)
        assert found.get(NEXT_PRODUCER_ID) in {max(len(stored) - 1, 0), len(stored)}, (number, stored)
        assert [*found.topics] == ["a", "b"]
    assert deaths > 24


def test_a_power_failure_after_any_call_takes_no_change_that_was_stored() -> None:
    directory = Path("/1/data")
    log = directory / "t-0"
    deaths = 0
    for number in range(1, 1000):
        stored, is_deleted = 0, False
        with simulated_disk(number) as (world, memory):
            world.current = process = Process("broker")
            disk.makedirs(log)
            disk.sync_directory(directory)
            process.crash_after(number)
            try:
                state = again(directory)
                for each in range(1, 7):
                    if each == 3:
                        remove(state, "t")
                        disk.rename(log, log.with_suffix(".deleted"))
                        state.save("the end", Change(sections={BEING_DELETED: BEING_DELETED.empty}))
                        is_deleted = True
                    state.save("ids", Change(sections={NEXT_PRODUCER_ID: each}))
                    stored = each
                break
            except Died:
                memory.lose_power("1", Random(number))
            deaths += 1
            world.current = Process("broker, later")
            found = again(directory)
            assert found.get(NEXT_PRODUCER_ID) in {stored, stored + 1}, number
            assert not (is_deleted and disk.exists(log)), number
    assert deaths > 24


@pytest.mark.parametrize("fails", ["write", "fdatasync"])
def test_a_change_that_cannot_be_stored_is_not_there_afterwards(
    state: FileState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    add(state, "c")
    plain = getattr(os, fails)

    def fail(fd: int, *arguments: object) -> int:
        if fails == "write":
            return int(plain(fd, b'{"topics"', *arguments[1:]))  # the disk had room for this
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr(f"minibroker.storage.files.disk.{fails}", fail)
        with pytest.raises(KafkaError, match=r"cannot store topics: (full|No space)"):
            add(state, "d")
    assert [*state.topics] == ["a", "b", "c"]

    assert is_the_same(again(tmp_path), state)
    add(state, "e")
    assert is_the_same(again(tmp_path), state)


def test_a_line_that_is_no_change_is_an_error(state: FileState, tmp_path: Path) -> None:
    add(state, "c")
    with (tmp_path / CHANGES).open("a") as file:
        file.write("no change\n")

    with pytest.raises(FileStateError, match=rf"cannot read .*{CHANGES}"):
        again(tmp_path)


def test_others_cannot_read_credentials_in_the_file_and_in_the_journal(state: FileState, tmp_path: Path) -> None:
    state.save(
        "users",
        Change(
            sections={CREDENTIALS: {"alice": {"SCRAM-SHA-256": ScramCredential(b"salt", b"stored", b"server", 4096)}}}
        ),
    )

    assert b"alice" in (tmp_path / CHANGES).read_bytes()
    assert stat.S_IMODE((tmp_path / CHANGES).stat().st_mode) == 0o600
    state.close()
    assert b"alice" in (tmp_path / FILE_NAME).read_bytes()
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_sections_that_the_broker_does_not_declare_stay_and_keep_the_file_private(tmp_path: Path) -> None:
    credentials = {"alice": {"SCRAM-SHA-256": ScramCredential(b"salt", b"stored", b"server", 4096)}}
    FileState(tmp_path, 0, SECTIONS_OF_WINGS).save("users", Change(sections={CREDENTIALS: credentials}))

    without = FileState(tmp_path, 0)
    without.read()
    add(without, "a")
    without.close()

    assert again(tmp_path).get(CREDENTIALS) == credentials
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
    with pytest.raises(LookupError, match="scram_credentials"):
        without.save("users", Change(sections={CREDENTIALS: {}}))
