"""Groups that only fetch, of what all brokers of a cluster know of their clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from minibroker import fetching_groups
from minibroker.client.topic_partition import TopicPartition
from minibroker.control import Control
from minibroker.errors import BrokerError, CommandFailed

HOST = "10.0.0.1"
ID = "of-the-cluster"


def reader(client_id: str, *partitions: tuple[str, int, int, int, int], groups: tuple[str, ...] = ()) -> Any:
    """A row of `inside.fetches`: partitions with topic, number, fetched offset, end and time."""
    return {"client_id": client_id, "host": HOST, "groups": list(groups), "partitions": partitions}


class Brokers:
    """Control sockets by path, each with the pieces of its answer; and their Kafka, with committed offsets."""

    def __init__(self, *pieces: list[list[Any]], cluster_id: str = ID, **committed: dict[tuple[str, int], int]) -> None:
        self.pieces = {f"{number}.control": each for number, each in enumerate(pieces)}
        self.cluster_id = cluster_id
        self.committed = committed

    def control(self, path: str) -> Control:
        return cast(Control, SimpleNamespace(call=lambda name, **arguments: self.answer(path, name, **arguments)))

    def answer(self, path: str, name: str, after: int = 0, skip: int = 0) -> Any:
        if name == "cluster.status":
            if len(self.pieces) == 1:
                raise BrokerError("unknown call", "unknown-call")
            return {"brokers": [{"broker_id": at, "control": each} for at, each in enumerate((*self.pieces, None))]}
        piece = self.pieces[path]
        more = None if after + 1 == len(piece) else [after + 1, skip]
        return {"cluster_id": self.cluster_id, "rows": piece[after], "more": more}

    def metadata(self, topics: list[str]) -> Any:
        return SimpleNamespace(cluster_id=ID)

    def group_ids(self, client: Any) -> list[str]:
        return list(self.committed)

    def committed_of(self, client: Any, groups: list[str]) -> Any:
        return {group: {TopicPartition(*at): end for at, end in self.committed[group].items()} for group in groups}


def found(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, ...]]]:
    """The topic, partition, fetched offset, lag and client of each partition, by group."""
    monkeypatch.setattr(fetching_groups, "Control", brokers.control)
    monkeypatch.setattr(fetching_groups, "committed_of", brokers.committed_of)
    monkeypatch.setattr(fetching_groups, "group_ids", brokers.group_ids)
    groups = fetching_groups.fetching_groups(brokers, brokers.control("0.control"))
    return {name: [(*each[:3], each.lag, each.client_id) for each in rows] for name, rows in groups.items()}


def test_the_newest_fetch_of_a_partition_counts_whichever_client_and_broker_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(
        [[reader("consumer-g-1", ("t", 0, 5, 9, 100), ("t", 1, 3, 3, 100))], [reader("kcat", ("t", 0, 12, 9, 50))]],
        [[reader("consumer-g-2", ("t", 0, 4, 9, 200)), reader("consumer-g-1", ("t", 1, 1, 2, 90))]],
    )

    assert found(brokers, monkeypatch) == {
        "g": [("t", 0, 4, 5, "consumer-g-2"), ("t", 1, 3, 0, "consumer-g-1")],
        "kcat": [("t", 0, 12, 0, "kcat")],
    }


def test_a_group_that_another_broker_coordinates_names_its_client_and_its_commits_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(
        [[reader("app", ("t", 0, 5, 9, 100), ("t", 1, 5, 9, 100)), reader("minibroker-cli", ("t", 0, 0, 9, 100))]],
        [[reader("app", groups=("old", "reports")), reader("idle")]],
        reports={},
        old={("t", 0): 1},
    )

    assert found(brokers, monkeypatch) == {"reports": [("t", 1, 5, 4, "app")]}


def test_the_socket_of_another_cluster_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandFailed, match="another cluster; name the socket"):
        found(Brokers([[]], cluster_id="another"), monkeypatch)
