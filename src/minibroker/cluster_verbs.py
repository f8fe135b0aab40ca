"""The verbs of a running cluster: facts, changes of roles, faults and waits, over its brokers' control sockets.

`minibroker.Cluster` has these verbs, and so has `minibroker cluster` on the command line.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from minibroker.errors import BrokerError
from minibroker.waiting import WaitError

if TYPE_CHECKING:
    from minibroker.control import Control

WAIT_SECONDS = 5.0
POLL_SECONDS = 0.005
NO_BROKER = -1

Direction = Literal["both", "to", "from"]
Json = dict[str, Any]


class Replica(NamedTuple):
    """A replica of a partition, as its own broker knows it."""

    broker_id: int
    role: str  # "leader" or "follower"
    leader_id: int  # the broker that it follows, or itself; -1 for none
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    log_start_offset: int
    in_sync_replicas: frozenset[int]
    hold: str | None  # "held", "5 records behind" or "2 s behind", as a test wants it
    follower_ends: Mapping[int, int]  # the log end offsets of its followers that a leader has heard of, by broker id

    def __str__(self) -> str:
        offsets = f"high watermark {self.high_watermark}, log end offset {self.log_end_offset}"
        held = "" if self.hold is None else f", {self.hold}"
        in_sync = ids_text(self.in_sync_replicas)
        return f"broker {self.broker_id}: {self.role} in epoch {self.leader_epoch}, {offsets}, ISR {in_sync}{held}"


class ClusterVerbs(ABC):
    """The verbs of a cluster. All raise BrokerError, with the reason, for what cannot be.

    Those that change something return when it is so, or raise WaitError after `timeout` seconds.
    """

    @abstractmethod
    def _controls(self) -> Mapping[int, Control]:
        """The control sockets of the brokers that can answer, by broker id."""

    # -- facts ------------------------------------------------------------------------------------------------

    def replicas(self, topic: str, partition: int = 0) -> dict[int, Replica]:
        """The replicas of a partition on brokers that run and are not paused, each as its broker knows it."""
        found = {}
        for broker_id, row in self._views(topic, partition).items():
            replica = row["replica"]
            if replica is not None:
                found[broker_id] = replica_of(broker_id, replica)
        return found

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The id of the broker that leads a partition. Raises BrokerError if none does at the moment."""
        leader: int = self._newest_view(topic, partition)["leader"]
        if leader == NO_BROKER or leader not in self._live():
            raise BrokerError(f"{topic}-{partition} has no leader at the moment; until_leader() waits for one")
        return leader

    @property
    def controller(self) -> int:
        """The id of the broker that controls. Raises BrokerError if none does at the moment."""
        controller_id: int = self._ask_any("cluster.status")["controller_id"]
        if controller_id == NO_BROKER:
            raise BrokerError("the cluster has no controller at the moment; try again")
        return controller_id

    def coordinator_of(self, group: str, *, timeout: float = WAIT_SECONDS) -> int:
        """The id of the broker that coordinates a group. The first call creates the topic of the coordinators."""
        topic, partition = self._coordinator_partition(group)
        return self.until_leader(topic, partition, timeout=timeout)

    # -- roles ------------------------------------------------------------------------------------------------

    def move_leader(self, topic: str, partition: int, broker_id: int, *, timeout: float = WAIT_SECONDS) -> None:
        """Have another broker lead, which must be an in-sync replica; the last leader follows it."""
        self._elect(topic, partition, broker_id, is_unclean=False)
        self.until_leader(topic, partition, broker_id, timeout=timeout)

    def unclean_election(
        self, topic: str, partition: int, broker_id: int | None = None, *, timeout: float = WAIT_SECONDS
    ) -> int:
        """Have a replica lead that is not in sync, so that what it lacks is lost; return its broker.

        Without `broker_id` it is the first live replica, and the leader must be gone, as in Kafka.
        """
        if broker_id is None:
            broker_id = self._unclean_candidate(topic, partition)
        self._elect(topic, partition, broker_id, is_unclean=True)
        return self.until_leader(topic, partition, broker_id, timeout=timeout)

    def _unclean_candidate(self, topic: str, partition: int) -> int:
        row, live = self._newest_view(topic, partition), self._live()
        if row["leader"] in live:
            raise BrokerError(
                f"broker {row['leader']} leads {topic}-{partition}; kill it first, or name the broker that is to lead"
            )
        for each in row["replicas"]:
            if each in live:
                return int(each)
        raise BrokerError(f"no replica of {topic}-{partition} is on a live broker; start one of {row['replicas']}")

    def _elect(self, topic: str, partition: int, broker_id: int, *, is_unclean: bool) -> None:
        arguments = {"topic": topic, "partition": partition, "broker_id": broker_id, "is_unclean": is_unclean}
        self._ask(self.controller, "cluster.move_leader", **arguments)

    def move_controller(self, *, timeout: float = WAIT_SECONDS) -> int:
        """Have the controller stand back and another one elected; return that one's id."""
        before = self.controller
        self._ask(before, "cluster.move_controller")

        def instead() -> str | None:
            views = {each: self._ask(each, "cluster.status")["controller_id"] for each in self._controls()}
            seen = set(views.values())
            return None if len(seen) == 1 and seen.isdisjoint({before, NO_BROKER}) else f"it is {views}, by broker"

        wait_until("another broker controls", instead, timeout)
        return self.controller

    def move_coordinator(self, group: str, broker_id: int, *, timeout: float = WAIT_SECONDS) -> None:
        """Have another broker coordinate a group, and all others of the same partition of its topic."""
        topic, partition = self._coordinator_partition(group)
        self.until_leader(topic, partition, timeout=timeout)
        self.move_leader(topic, partition, broker_id, timeout=timeout)

    def _coordinator_partition(self, group: str) -> tuple[str, int]:
        found = self._ask_any("cluster.coordinator", group=group)
        return found["topic"], found["partition"]

    # -- followers --------------------------------------------------------------------------------------------

    def hold_follower(self, broker_id: int, topic: str | None = None, partition: int | None = None) -> None:
        """Have a broker fetch nothing from leaders, in all partitions, those of a topic or one, until it is released.

        It stays in sync until it has lagged for replica.lag.time.max.ms; acks=all waits for it so long.
        """
        self._ask(broker_id, "cluster.hold", topic=topic, partition=partition)

    def lag(
        self,
        broker_id: int,
        topic: str | None = None,
        partition: int | None = None,
        *,
        records: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Have a follower stay behind its leaders by a number of records or by a time, until it is released.

        It takes whole batches, so it may stay further behind. Seconds are the broker's, and count from when it saw that
        there are records.
        """
        if (records is None) == (seconds is None):
            raise ValueError("a follower lags by records=... or by seconds=...; hold_follower() stops it")
        self._ask(broker_id, "cluster.hold", topic=topic, partition=partition, records=records, seconds=seconds)

    def release_follower(
        self, broker_id: int | None = None, topic: str | None = None, partition: int | None = None
    ) -> None:
        """End holds and lags of a broker, or of all; with a topic those of that topic or partition."""
        for each in self._controls() if broker_id is None else (broker_id,):
            self._ask(each, "cluster.release", topic=topic, partition=partition)

    def shrink_isr(self, topic: str, partition: int, broker_id: int, *, timeout: float = WAIT_SECONDS) -> None:
        """Remove a follower from the in-sync replicas at once; it is held, so that it stays out until it is released.

        What it has not fetched it lacks; acks=all no longer waits for it.
        """
        is_here = broker_id in self._controls()
        if is_here:
            self.hold_follower(broker_id, topic, partition)
        try:
            leader = self.leader_of(topic, partition)
            self._ask(leader, "cluster.shrink_isr", topic=topic, partition=partition, broker_id=broker_id)
        except BrokerError:
            if is_here:
                self.release_follower(broker_id, topic, partition)
            raise
        self._until_isr(topic, partition, f"without {broker_id}", lambda isr: broker_id not in isr, timeout)

    # -- the network ------------------------------------------------------------------------------------------

    def isolate(self, a: int, b: int, direction: Direction = "both") -> None:
        """Cut the network between two brokers: `a` reaches `b` no more ("to"), or `b` does not reach `a` ("from").

        Clients reach both, and both the state of the cluster, as if it were in ZooKeeper. It lasts until `heal`, or as
        long as the processes.
        """
        if direction not in ("both", "to", "from"):
            raise ValueError(f'direction is "both", "to" or "from", not {direction!r}')
        if direction != "from":
            self._ask(a, "cluster.cut_off", broker_id=b)
        if direction != "to":
            self._ask(b, "cluster.cut_off", broker_id=a)

    def heal(self) -> None:
        """Have all brokers reach each other again."""
        for each in self._controls():
            self._ask(each, "cluster.heal")

    # -- waits ------------------------------------------------------------------------------------------------

    def until_leader(
        self,
        topic: str,
        partition: int = 0,
        broker_id: int | None = None,
        *,
        not_: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> int:
        """Wait until a broker leads, and all show it to their clients; return its id.

        `broker_id` waits for that one, `not_` for any other. Raises WaitError with what each broker shows instead.
        """

        def instead() -> str | None:
            views, live = self._views(topic, partition), self._live()
            leaders = {row["leader"] for row in views.values()} | {row["leader_seen"] for row in views.values()}
            leader = next(iter(leaders))
            leading = views[leader]["replica"] if leader in views else None
            if (
                len(views) == len(self._controls())
                and len(leaders) == 1
                and leader in live
                and (leading is None if leader not in views else leading and leading["role"] == "leader")
                and broker_id in (None, leader)
                and leader != not_
            ):
                return None
            return "; ".join(view_text(each, row) for each, row in views.items())

        whom = f"broker {broker_id}" if broker_id is not None else "a broker"
        other = "" if not_ is None else f" other than {not_}"
        wait_until(f"{whom}{other} leads {topic}-{partition}", instead, timeout)
        return self.leader_of(topic, partition)

    def until_isr(
        self, topic: str, partition: int, broker_ids: Collection[int], *, timeout: float = WAIT_SECONDS
    ) -> None:
        """Wait until these brokers are the in-sync replicas. Raises WaitError with those that are instead."""
        wanted = frozenset(broker_ids)
        self._until_isr(topic, partition, ids_text(wanted), lambda isr: isr == wanted, timeout)

    def _until_isr(
        self, topic: str, partition: int, text: str, is_wanted: Callable[[frozenset[int]], bool], timeout: float
    ) -> None:
        def instead() -> str | None:
            views = self._views(topic, partition)
            leader = self.leader_of(topic, partition)
            stored = {frozenset(row["in_sync_replicas"]) for row in views.values()}
            replica = views[leader]["replica"] if leader in views else None
            if replica is not None:
                stored.add(frozenset(replica["in_sync_replicas"]))
            if all(map(is_wanted, stored)):
                return None
            return f"it is {' or '.join(map(ids_text, stored))}\n{self._replicas_text(topic, partition)}"

        wait_until(f"the ISR of {topic}-{partition} is {text}", instead, timeout)

    def until_high_watermark(self, topic: str, partition: int, offset: int, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the high watermark has reached an offset on all live replicas. Raises WaitError with the offsets
        that they have instead."""

        def instead() -> str | None:
            found = self.replicas(topic, partition).values()
            if found and all(each.high_watermark >= offset for each in found):
                return None
            return self._replicas_text(topic, partition)

        wait_until(f"the high watermark of {topic}-{partition} is {offset} on all live replicas", instead, timeout)

    def until_stable(self, group: str, members: int, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until a group has that many members, all with their assignments. Raises WaitError with its state."""

        def instead() -> str | None:
            coordinator = self.coordinator_of(group)
            found = self._ask(coordinator, "cluster.group", group=group)
            if found["state"] == "Stable" and found["members"] == members:
                return None
            state = f"{found['state']} with {found['members']}" if found["state"] else "unknown"
            return f"it is {state}, at its coordinator {coordinator}"

        wait_until(f"group {group} is stable with {members} members", instead, timeout)

    # -- asking -----------------------------------------------------------------------------------------------

    def _ask(self, broker_id: int, name: str, /, **arguments: object) -> Any:
        controls = self._controls()
        if broker_id not in controls:
            raise BrokerError(
                f"broker {broker_id} cannot be asked: it does not run, or is paused; those that can: "
                f"{', '.join(map(str, controls)) or 'none'}"
            )
        return controls[broker_id].call(name, **arguments)

    def _ask_any(self, name: str, /, **arguments: object) -> Any:
        """Ask a broker, one that is alive for the others if there is such a one."""
        controls = self._controls()
        if not controls:
            raise BrokerError("no broker of the cluster runs; start one")
        last: BrokerError | None = None
        for control in controls.values():
            try:
                return control.call(name, **arguments)
            except BrokerError as error:  # it may have ended meanwhile
                last = error
        assert last is not None
        raise last

    def _live(self) -> set[int]:
        """The brokers that are alive for all that can be asked."""
        lives = [
            {row["broker_id"] for row in self._ask(each, "cluster.status")["brokers"]} for each in self._controls()
        ]
        return set.intersection(*lives) if lives else set()

    def _newest_view(self, topic: str, partition: int) -> Json:
        return max(self._views(topic, partition).values(), key=lambda row: int(row["leader_epoch"]))

    def _views(self, topic: str, partition: int) -> dict[int, Json]:
        """A partition as each broker sees it that knows it. Raises BrokerError if none does."""
        controls = self._controls()
        if not controls:
            raise BrokerError("no broker of the cluster runs; start one")
        found = {}
        for broker_id, control in controls.items():
            rows = control.call("cluster.partitions", topic=topic, partition=partition)["partitions"]
            if rows:
                found[broker_id] = rows[0]
        if not found:
            raise BrokerError(f"the cluster has no partition {topic}-{partition}; create the topic first")
        return found

    def _replicas_text(self, topic: str, partition: int) -> str:
        return "\n".join(map(str, self.replicas(topic, partition).values()))


def replica_of(broker_id: int, row: Json) -> Replica:
    return Replica(
        broker_id,
        row["role"],
        row["leader"],
        row["leader_epoch"],
        row["high_watermark"],
        row["log_end_offset"],
        row["log_start_offset"],
        frozenset(row["in_sync_replicas"]),
        row["hold"],
        {int(each): offset for each, offset in row["followers"].items()},
    )


def view_text(broker_id: int, row: Json) -> str:
    role = "no replica" if row["replica"] is None else row["replica"]["role"]
    return f"broker {broker_id} ({role}) shows {row['leader_seen']}, and {row['leader']} is stored"


def ids_text(broker_ids: Iterable[int]) -> str:
    return f"{{{', '.join(map(str, sorted(broker_ids)))}}}"


def wait_until(what: str, instead: Callable[[], str | None], timeout: float) -> None:
    """Wait until `instead` returns None, not what is instead; BrokerError of it is one of that, too.

    Raises WaitError after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        cause: BrokerError | None = None
        try:
            found = instead()
        except BrokerError as error:
            cause, found = error, str(error)
        if found is None:
            return
        if time.monotonic() >= deadline:
            raise WaitError(f"after {timeout:g} s not yet: {what}; {found}") from cause
        time.sleep(POLL_SECONDS)
