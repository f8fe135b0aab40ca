"""What is stored of topics and old offsets: the file, and the changes since it was written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from minibroker.broker.cluster import topic_store as topic_store_module
from minibroker.broker.cluster.change_journal import FILE_NAME as CHANGES
from minibroker.broker.cluster.metadata_cache import TopicState
from minibroker.broker.cluster.topic_store import FILE_NAME, Changed, TopicStore, TopicStoreError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential


@pytest.fixture
def store(tmp_path: Path) -> TopicStore:
    """With the topics a and b in the file."""
    store = TopicStore(tmp_path, broker_id=0)
    add(store, "a", "b")
    store.save()
    return store


def add(store: TopicStore, *names: str) -> None:
    for name in names:
        store.topics[name] = TopicState(name, {0: store.new_partition()})


def again(directory: Path) -> TopicStore:
    store = TopicStore(directory, broker_id=0)
    store.read()
    return store


def is_the_same(one: TopicStore, other: TopicStore) -> bool:
    names = ("cluster_id", "topics", "next_producer_id", "being_deleted", "old_offsets")
    return all(getattr(one, each) == getattr(other, each) for each in names) and [*one.topics] == [*other.topics]


def test_a_change_is_one_line_and_leaves_the_file_as_it_is(store: TopicStore, tmp_path: Path) -> None:
    before = (tmp_path / FILE_NAME).read_bytes()
    add(store, "c")
    store.save(Changed(["c"]))
    store.topics["a"].configs = {"retention.ms": "7"}
    del store.topics["b"]
    store.being_deleted.add("b")
    store.save(Changed(["a", "b"]))
    store.next_producer_id = 1000
    store.old_offsets = {"group": {TopicPartition("a", 0): 5}}
    store.save(Changed(groups=["group"]))

    assert (tmp_path / FILE_NAME).read_bytes() == before
    assert (tmp_path / CHANGES).read_bytes().count(b"\n") == 1 + 3
    assert is_the_same(again(tmp_path), store)


def test_the_file_has_all_that_changes_have(store: TopicStore, tmp_path: Path) -> None:
    store.next_producer_id = 1000
    store.being_deleted.add("c")
    store.old_offsets = {"group": {TopicPartition("a", 0): 5}}
    store.save()

    assert not (tmp_path / CHANGES).exists()
    assert is_the_same(again(tmp_path), store)


def test_a_topic_that_is_made_again_is_the_last_one(store: TopicStore, tmp_path: Path) -> None:
    for change in (store.topics.pop, lambda name: add(store, name)):
        change("a")
        store.save(Changed(["a"]))

    assert [*again(tmp_path).topics] == ["b", "a"]


def test_the_file_has_everything_after_a_stop_in_order(store: TopicStore, tmp_path: Path) -> None:
    add(store, "c")
    store.save(Changed(["c"]))

    store.close()

    assert os.listdir(tmp_path) == [FILE_NAME]
    assert [*json.loads((tmp_path / FILE_NAME).read_text())["topics"]] == ["a", "b", "c"]


def test_many_changes_are_written_into_the_file(
    store: TopicStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_store_module, "JOURNAL_BYTES", 0)
    sizes = []
    for number in range(40):
        store.next_producer_id = number
        store.save(Changed())
        sizes.append((tmp_path / CHANGES).stat().st_size if (tmp_path / CHANGES).exists() else 0)

    assert max(sizes) < 2 * (tmp_path / FILE_NAME).stat().st_size
    assert 0 in sizes
    assert again(tmp_path).next_producer_id == 39


@pytest.mark.parametrize("cut_bytes", [1, 20])
def test_a_line_that_was_cut_off_is_dropped_and_another_takes_its_place(
    store: TopicStore, tmp_path: Path, cut_bytes: int
) -> None:
    add(store, "c")
    store.save(Changed(["c"]))
    add(store, "d")
    store.save(Changed(["d"]))
    os.truncate(tmp_path / CHANGES, (tmp_path / CHANGES).stat().st_size - cut_bytes)

    restarted = again(tmp_path)
    assert [*restarted.topics] == ["a", "b", "c"]
    add(restarted, "e")
    restarted.save(Changed(["e"]))

    assert [*again(tmp_path).topics] == ["a", "b", "c", "e"]


def test_changes_of_an_older_file_are_not_read_again(store: TopicStore, tmp_path: Path) -> None:
    """A crash came between the file and the end of its journal."""
    for name in "cde":
        add(store, name)
        store.save(Changed([name]))
    left = (tmp_path / CHANGES).read_bytes()
    for name in "cde":
        del store.topics[name]
    store.save()
    (tmp_path / CHANGES).write_bytes(left)

    assert [*again(tmp_path).topics] == ["a", "b"]

    add(store, "d")
    store.save(Changed(["d"]))
    assert [*again(tmp_path).topics] == ["a", "b", "d"]


@pytest.mark.parametrize("fails", ["pwrite", "fdatasync"])
def test_a_change_that_cannot_be_stored_is_not_there_afterwards(
    store: TopicStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    add(store, "c")
    store.save(Changed(["c"]))
    add(store, "d")
    plain = getattr(os, fails)

    def fail(fd: int, *arguments: object) -> int:
        if fails == "pwrite":
            return int(plain(fd, b'{"topics"', *arguments[1:]))  # the disk had room for this
        raise OSError("full")

    with monkeypatch.context() as disk:
        disk.setattr(os, fails, fail)
        with pytest.raises(OSError, match=r"full|No space"):
            store.save(Changed(["d"]))
    del store.topics["d"]

    assert is_the_same(again(tmp_path), store)
    add(store, "e")
    store.save(Changed(["e"]))
    assert is_the_same(again(tmp_path), store)


def test_a_line_that_is_no_change_is_an_error(store: TopicStore, tmp_path: Path) -> None:
    add(store, "c")
    store.save(Changed(["c"]))
    with (tmp_path / CHANGES).open("a") as file:
        file.write("no change\n")

    with pytest.raises(TopicStoreError, match=rf"cannot read .*{CHANGES}"):
        again(tmp_path)


def test_credentials_are_written_into_the_file_which_others_cannot_read(store: TopicStore, tmp_path: Path) -> None:
    store.set_scram_credentials({"alice": {"SCRAM-SHA-256": ScramCredential(b"salt", b"stored", b"server", 4096)}})

    assert not (tmp_path / CHANGES).exists()
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600
