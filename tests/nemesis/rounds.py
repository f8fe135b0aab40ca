"""One round: a cluster with clients under the faults of a plan, then without; what is wrong with it in the end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from minibroker import Cluster
from minibroker.errors import BrokerError
from minibroker.history.checking import check
from minibroker.history.lines import read_lines
from minibroker.history.recorder import HistoryWriter
from minibroker.protocol.api import ApiKey
from minibroker.waiting import WaitError
from tests.nemesis.plan import CONTROLLER, OF_ALL, TOPICS, Fault, Plan
from tests.nemesis.workload import QUICK, Workload

REPLICAS = 3
VERB_SECONDS = 0.5  # a verb may be impossible while other faults last
FINISH_SECONDS = 45.0
SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.05
SLOW_SECONDS = 0.15
GROWTH_MS = 500
LATE_SECONDS = 1.0
# In a broker's log: what no fault explains.
DEFECT = re.compile(r"^Traceback|: a defect", re.MULTILINE)
HISTORY = "history.jsonl"


class Round:
    """A round in a directory, which has its history, its logs and its data."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._started = time.monotonic()
        self._events = (directory / "events.log").open("w", buffering=1)
        self._down: set[int] = set()
        self._paused: set[int] = set()
        self._threads: dict[int, threading.Thread] = {}
        self._churned = 0

    def run(self) -> list[str]:
        """Return what is wrong."""
        plan, directory = self._plan, self._directory
        with ExitStack() as stack:
            stack.enter_context(self._events)
            history = stack.enter_context(HistoryWriter(directory / HISTORY))
            cluster = stack.enter_context(
                Cluster(
                    plan.brokers,
                    data_dir=directory / "data",
                    settings=plan.settings,
                    log_prefix=directory / "broker",
                )
            )
            self._cluster = cluster
            self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUICK})
            self._create(TOPICS, plan.partitions)
            workload = self._workload = Workload(plan, cluster.bootstrap_servers, history, self._note)
            workload.start()
            self._note("faults begin")
            wrong = self._strike()
            self._note("faults end")
            wrong += self._lifted()
            self._note("all brokers run")
            wrong += workload.finish(FINISH_SECONDS)
            self._note("clients ended")
            wrong += self._settled()
            wrong += workload.read_all(SETTLE_SECONDS)
            self._note(f"read all; {workload.sent} sent")
            wrong += defects(cluster)
        wrong += [each.text for each in check(read_lines(directory / HISTORY))]
        return wrong

    def _note(self, text: str) -> None:
        self._events.write(f"{time.time():.3f} {time.monotonic() - self._started:.3f} {text}\n")

    # -- faults -----------------------------------------------------------------------------------------------

    def _strike(self) -> list[str]:
        """Do each fault at its time, and undo it; return the brokers that ended by themselves."""
        began = time.monotonic()
        due: list[tuple[float, int, Callable[[], None]]] = [
            (fault.at, number, lambda fault=fault, number=number: self._begin(fault, number, due))  # type: ignore[misc]
            for number, fault in enumerate(self._plan.faults)
        ]
        wrong = []
        while due:
            due.sort(key=lambda each: each[:2])
            at, _, action = due.pop(0)
            if at > self._plan.seconds:
                break
            time.sleep(max(0.0, began + at - time.monotonic()))
            try:
                action()
            except (BrokerError, WaitError, KafkaException) as error:
                self._note(f"  not possible: {error}")
            for broker_id, broker in zip(self._cluster.broker_ids, self._cluster.brokers, strict=True):
                if not broker.is_running and broker_id not in self._down:
                    wrong.append(f"broker {broker_id} ended by itself")
                    self._down.add(broker_id)
        time.sleep(max(0.0, began + self._plan.seconds - time.monotonic()))
        return wrong

    def _begin(self, fault: Fault, number: int, due: list[tuple[float, int, Callable[[], None]]]) -> None:
        cluster, kind = self._cluster, fault.kind
        self._note(str(fault))
        if kind in OF_ALL:
            undo = getattr(self, f"_{kind}")()
        elif kind == "move_controller":
            cluster.move_controller(timeout=VERB_SECONDS)
            return
        elif kind == "move_leader":
            cluster.move_leader(*place_of(fault.target), fault.other, timeout=VERB_SECONDS)
            return
        elif kind == "reassign":
            self._reassign(*place_of(fault.target), fault.replicas)
            return
        else:
            broker_id = self._broker_of(fault.target)
            if self._is_busy(broker_id) and kind != "kill":
                self._note("  is busy")
                return
            undo = getattr(self, f"_{kind}")(broker_id, fault)
        if undo is not None:
            due.append((fault.at + fault.seconds, number, undo))

    def _broker_of(self, target: int | str) -> int:
        """Raises BrokerError."""
        if target == CONTROLLER:
            return self._cluster.controller
        if isinstance(target, int):
            return target
        return self._cluster.leader_of(*place_of(target))

    def _kill(self, broker_id: int, _: Fault) -> Callable[[], None]:
        self._paused.discard(broker_id)
        self._down.add(broker_id)
        self._cluster.kill(broker_id)
        self._await(broker_id)
        return lambda: self._start(broker_id)

    def _stop(self, broker_id: int, _: Fault) -> Callable[[], None] | None:
        if self._is_busy(broker_id):
            return None
        self._down.add(broker_id)
        self._background(broker_id, self._cluster.broker(broker_id).stop)
        return lambda: self._start(broker_id)

    def _start(self, broker_id: int) -> None:
        """Start a broker that is down, once it has stopped."""
        if broker_id in self._down:
            self._note(f"start {broker_id}")
            self._await(broker_id)
            self._down.discard(broker_id)
            self._cluster.broker(broker_id).launch()
            self._background(broker_id, self._cluster.broker(broker_id).await_ready)

    def _kill_all(self) -> None:
        for broker_id in self._cluster.broker_ids:
            self._kill(broker_id, self._plan.faults[0])
        for broker_id in self._cluster.broker_ids:
            self._start(broker_id)

    def _pause(self, broker_id: int, _: Fault) -> Callable[[], None] | None:
        if broker_id in self._down:
            return None
        self._cluster.pause(broker_id)
        self._paused.add(broker_id)
        return lambda: self._resume(broker_id)

    def _resume(self, broker_id: int) -> None:
        if broker_id in self._paused:
            self._note(f"resume {broker_id}")
            self._paused.discard(broker_id)
            self._cluster.resume(broker_id)

    def _is_busy(self, broker_id: int) -> bool:
        """Whether a broker is down, paused, or about to start or stop."""
        thread = self._threads.get(broker_id)
        return broker_id in self._down | self._paused or (thread is not None and thread.is_alive())

    def _background(self, broker_id: int, work: Callable[[], object]) -> None:
        """Start or stop a broker beside other faults, which may keep it from that."""

        def run() -> None:
            try:
                work()
            except BrokerError as error:
                self._note(f"  broker {broker_id}: {str(error).splitlines()[0]}")

        self._threads[broker_id] = threading.Thread(target=run, daemon=True)
        self._threads[broker_id].start()

    def _await(self, broker_id: int) -> None:
        if broker_id in self._threads:
            self._threads[broker_id].join()

    def _lifted(self) -> list[str]:
        """End all faults; return the brokers that do not start or stop."""
        for broker_id in list(self._paused):
            self._resume(broker_id)
        deadline = time.monotonic() + SETTLE_SECONDS
        while any(thread.is_alive() for thread in self._threads.values()):
            with suppress(BrokerError):
                self._cluster.heal()
            if time.monotonic() > deadline:
                return [f"brokers do not start or stop: {[each for each in self._threads if self._is_busy(each)]}"]
            time.sleep(POLL_SECONDS)
        self._cluster.restore()
        return []

    def _isolate(self, broker_id: int, fault: Fault) -> Callable[[], None]:
        self._cluster.isolate(broker_id, fault.other, fault.direction)  # type: ignore[arg-type]
        return self._cluster.heal

    def _hold(self, broker_id: int, _: Fault) -> Callable[[], None]:
        self._cluster.hold_follower(broker_id)
        return lambda: self._cluster.release_follower(broker_id)

    def _slow(self, broker_id: int, _: Fault) -> Callable[[], None]:
        """Answer fetches, of followers too, late."""
        return self._cluster.broker(broker_id).faults.delay(SLOW_SECONDS, api="fetch").lift

    def _late(self, broker_id: int, _: Fault) -> Callable[[], None]:
        """Obey the controller late."""
        return self._cluster.broker(broker_id).faults.delay(LATE_SECONDS, api="leader_and_isr").lift

    def _lose_answers(self, broker_id: int, _: Fault) -> None:
        self._cluster.broker(broker_id).faults.disconnect(when="after", api="produce", times=3)

    def _churn(self) -> None:
        """Create a topic, and delete the one before."""
        before = f"churned-{self._churned}"
        self._churned += 1
        self._admin.create_topics([NewTopic(f"churned-{self._churned}", 2, REPLICAS)], request_timeout=1)
        if self._churned > 1:
            self._admin.delete_topics([before], request_timeout=1)

    def _reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Begin to move a partition, or cancel the move that goes on."""
        rows = [(topic, [(partition, list(replicas) or None)])]
        self._ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=0, topics=rows)

    def _elect(self) -> None:
        """Have all preferred replicas lead that can."""
        self._ask_controller(ApiKey.ELECT_LEADERS, topic_partitions=None, timeout_ms=0)

    def _grow(self) -> None:
        """Add a partition to each topic of the clients; if that failed for some of them before, to the others."""
        wanted = self._workload.partitions + 1
        rows = [(topic, wanted, None) for topic in TOPICS]
        self._ask_controller(ApiKey.CREATE_PARTITIONS, topics=rows, timeout_ms=GROWTH_MS, validate_only=False)
        shown = self._ask_controller(ApiKey.METADATA, topics=None).topics
        self._workload.partitions = min(len(each.partitions) for each in shown if each.name in TOPICS)

    def _ask_controller(self, api_key: ApiKey, **body: object) -> Any:
        """Raises BrokerError."""
        with self._cluster.broker(self._cluster.controller)._administered() as connection:
            answer = connection.ask(api_key, **body)
        self._note(f"  {answer}")
        return answer

    # -- afterwards -------------------------------------------------------------------------------------------

    def _create(self, topics: Iterable[str], partitions: int) -> None:
        wanted = [NewTopic(each, partitions, REPLICAS) for each in topics]
        for future in self._admin.create_topics(wanted).values():
            future.result(SETTLE_SECONDS)

    def _settled(self) -> list[str]:
        """Wait until all replicas are in sync, and equal; return what is not."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                wrong = unsettled(views_of(self._cluster)) or self._moving() or undeleted(self._cluster)
                wrong = wrong or unequal_logs(self._cluster)
            except BrokerError as error:
                wrong = [f"a broker does not answer: {error}"]
            if not wrong or time.monotonic() > deadline:
                return wrong
            time.sleep(POLL_SECONDS)

    def _moving(self) -> list[str]:
        """Return the reassignments that go on."""
        moving = self._ask_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, timeout_ms=0, topics=None).topics
        return [f"{topic.name} still moves: {topic.partitions}" for topic in moving]


def place_of(name: str | int) -> tuple[str, int]:
    """The topic and the number of a partition, `sent-0`."""
    topic, _, partition = str(name).rpartition("-")
    return topic, int(partition)


def views_of(cluster: Cluster) -> dict[int, list[dict[str, Any]]]:
    """All partitions as each broker sees them. Raises BrokerError."""
    return {
        broker_id: control.call("cluster.partitions")["partitions"]
        for broker_id, control in cluster._controls().items()
    }


def unsettled(views: Mapping[int, list[dict[str, Any]]]) -> list[str]:
    """Return what has not settled: replicas out of sync, of other epochs, or not committed to their ends."""
    wrong = []
    for broker_id, rows in views.items():
        for row in rows:
            name, replica = f"{row['topic']}-{row['partition']}", row["replica"]
            if sorted(row["in_sync_replicas"]) != sorted(row["replicas"]):
                wrong.append(f"{name}: ISR {row['in_sync_replicas']} of {row['replicas']}, says {broker_id}")
            if row["leader_seen"] != row["leader"]:
                wrong.append(f"{name}: broker {broker_id} shows the leader {row['leader_seen']}, not {row['leader']}")
            if (replica is not None) != (broker_id in row["replicas"]):
                wrong.append(f"{name}: broker {broker_id} has {replica}, assigned to {row['replicas']}")
            if replica is None:
                continue
            if replica["leader_epoch"] != row["leader_epoch"] or replica["leader"] != row["leader"]:
                wrong.append(f"{name}: broker {broker_id} is {replica}, and should be {row}")
            if replica["high_watermark"] != replica["log_end_offset"]:
                wrong.append(f"{name}: broker {broker_id} has committed up to {replica['high_watermark']} of {replica}")
    if len({tuple(sorted((row["topic"], row["partition"]) for row in rows)) for rows in views.values()}) > 1:
        wrong.append("the brokers do not know the same partitions")
    return wrong


def undeleted(cluster: Cluster) -> list[str]:
    """Return the topics that are still being deleted, and the logs that no partition has."""
    wrong = []
    for broker_id, control in cluster._controls().items():
        being_deleted = control.call("cluster.status")["being_deleted"]
        rows = control.call("cluster.partitions")["partitions"]
        known = {f"{row['topic']}-{row['partition']}" for row in rows if row["replica"] is not None}
        if being_deleted:
            wrong.append(f"broker {broker_id} still deletes {being_deleted}")
        for each in Path(cluster.broker(broker_id).data_dir).iterdir():
            if each.is_dir() and not each.name.endswith("-delete") and each.name not in known:
                wrong.append(f"broker {broker_id} has the log {each.name}, and no such replica")
    return wrong


def unequal_logs(cluster: Cluster) -> list[str]:
    """Return the partitions whose replicas have different bytes."""
    logs: dict[str, dict[int, bytes]] = {}
    for broker_id, broker in zip(cluster.broker_ids, cluster.brokers, strict=True):
        for row in views_of(cluster)[broker_id]:
            if row["replica"] is not None:
                name = f"{row['topic']}-{row['partition']}"
                segments = sorted((Path(broker.data_dir) / name).glob("*.log"))
                logs.setdefault(name, {})[broker_id] = b"".join(each.read_bytes() for each in segments)
    return [
        f"{name}: the logs differ: { ({broker_id: len(log) for broker_id, log in replicas.items()}) } bytes"
        for name, replicas in logs.items()
        if len(set(replicas.values())) > 1
    ]


def defects(cluster: Cluster) -> list[str]:
    """Return what the brokers logged that no fault explains."""
    found = []
    for broker in cluster.brokers:
        text = broker.log_file.read_text(errors="replace")
        found += [f"{broker.log_file.name}: {text[match.start() :][:600]}" for match in DEFECT.finditer(text)][:3]
    return found
