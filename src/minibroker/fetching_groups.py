"""Groups that only fetch: the lag of clients that commit nothing, such as Spark's source, as a minibroker knows it.

Kafka's protocol has no such groups. The control socket of a minibroker has where each client fetched last, the brokers
of its cluster have the rest; a client's group is the one that it joined or committed to, else the one that its client
id names. A partition with a committed offset of that group is left out: its lag is known better.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from minibroker.admin.group_offsets import GroupDescription
from minibroker.admin.groups import Group
from minibroker.any_cluster.cluster import at_once
from minibroker.any_cluster.described_groups import group_ids
from minibroker.any_cluster.group_admin import committed_of
from minibroker.any_cluster.shortfalls import lacks
from minibroker.control import Control
from minibroker.errors import BrokerError, CommandFailed
from minibroker.protocol.client_ids import OF_TOOLS, group_in

ONLY_FETCHES = "fetches only"  # in the place of a state
UNKNOWN_CALL = "unknown-call"


class FetchedPartition(NamedTuple):
    """A partition as the clients of one host fetched it last: what they got ends before `fetched`."""

    topic: str
    partition: int
    fetched: int
    end: int  # the high watermark
    lag: int
    client_id: str
    host: str
    fetched_ms: int  # since the epoch


class Reader(NamedTuple):
    """The clients with one client id on one host, of all brokers."""

    groups: list[str]
    partitions: list[FetchedPartition]

    def names(self, client_id: str) -> list[str]:
        """The groups that it may be of, the likeliest last."""
        return self.groups or [group_in(client_id)]


def only_fetching(group: str) -> GroupDescription:
    """Describe a group that Kafka's protocol does not have."""
    return GroupDescription(Group(group, ONLY_FETCHES, "", "", [], type=""), [])


def fetching_groups(client: Any, control: Control) -> dict[str, list[FetchedPartition]]:
    """The partitions that groups only fetch, by group, in order. Raises BrokerError, and CommandFailed."""
    readers: dict[tuple[str, str], Reader] = {}
    for row in rows_of(client, control):
        client_id, host = row["client_id"], row["host"]
        reader = readers.setdefault((client_id, host), Reader([], []))
        reader.groups.extend(each for each in row["groups"] if each not in reader.groups)
        reader.partitions.extend(
            FetchedPartition(topic, partition, fetched, end, max(0, end - fetched), client_id, host, at_ms)
            for topic, partition, fetched, end, at_ms in row["partitions"]
        )
    readers = {key: reader for key, reader in readers.items() if reader.partitions and key[0] not in OF_TOOLS}
    names = {name for (client_id, _), reader in readers.items() for name in reader.names(client_id)}
    committed = committed_of(client, sorted(names.intersection(group_ids(client)))) if names else {}
    newest: dict[str, dict[tuple[str, int], FetchedPartition]] = {}
    for (client_id, _), reader in readers.items():
        groups = reader.names(client_id)
        known = {(each.topic, each.partition) for group in groups for each in committed.get(group, {})}
        for each in reader.partitions:
            found, key = newest.setdefault(groups[-1], {}), (each.topic, each.partition)
            if key not in known and (key not in found or found[key].fetched_ms <= each.fetched_ms):
                found[key] = each
    return {group: sorted(found.values()) for group, found in sorted(newest.items()) if found}


def rows_of(client: Any, control: Control) -> Iterable[Any]:
    """Ask all brokers of a cluster for the last fetches. Raises CommandFailed if the socket is another cluster's."""
    cluster_id = client.metadata([]).cluster_id
    found: list[Any] = []

    def ask(each: Control) -> list[Any]:
        rows: list[Any] = []
        more: list[int] | None = [0, 0]
        while more is not None:
            answer = each.call("inside.fetches", after=more[0], skip=more[1])
            if answer["cluster_id"] != cluster_id:
                raise CommandFailed(
                    "the control socket is that of another cluster; name the socket of one of these brokers, or leave "
                    "--control and MINIBROKER_CONTROL out"
                )
            rows += answer["rows"]
            more = answer["more"]
        return rows

    answers = at_once({broker: partial(ask, each) for broker, each in controls_of(control).items()})
    for broker, answer in answers.items():
        if not isinstance(answer, Exception):
            found += answer
        elif isinstance(answer, BrokerError) and len(answers) > 1:
            lacks(f"broker {broker}: {answer}; what its clients only fetch is not shown")
        else:
            raise answer
    return found


def controls_of(control: Control) -> dict[int, Control]:
    """The control sockets of all brokers that are up in this one's cluster, by broker id. Raises BrokerError."""
    try:
        brokers = control.call("cluster.status")["brokers"]
    except BrokerError as error:
        if error.code != UNKNOWN_CALL:
            raise
        return {0: control}  # a broker alone
    return {each["broker_id"]: Control(each["control"]) for each in brokers if each["control"] is not None}
