"""One round: a cluster with clients under the faults of a plan, then without; what is wrong with it in the end."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Protocol

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.processes import ProcessError
from minibroker.errors import BrokerError
from minibroker.faults import Faults
from minibroker.history.checking import check
from minibroker.history.findings import DUPLICATE
from minibroker.history.lines import read_lines
from minibroker.history.recorder import HistoryWriter
from minibroker.protocol.api import ApiKey
from minibroker.waiting import WaitError
from tests.nemesis.beside_kafka import BesideKafka
from tests.nemesis.ours import Ours
from tests.nemesis.plan import CONTROLLER, COPIED_IN_V2, OURS, TOPICS, Fault, Plan, place_of
from tests.nemesis.workload import QUICK, Workload

REPLICAS = 3
FINISH_SECONDS = 45.0
SETTLE_SECONDS = 30.0
POLL_SECONDS = 0.05
SLOW_SECONDS = 0.15
GROWTH_MS = 500
LATE_SECONDS = 1.0
# In a broker's log: what no fault explains.
DEFECT = re.compile(r"^Traceback|: a defect", re.MULTILINE)
HISTORY = "history.jsonl"
CLIENTS_LOG = "clients.log"
# librdkafka takes NOT_LEADER_FOR_PARTITION and NOT_ENOUGH_REPLICAS for proof that a batch is not in the log. If a later
# batch fails before the first one is sent again, it sends both with a new epoch: in Apache Kafka, too, the records that
# a leader had appended are doubled (its defect 4953).
SENT_AGAIN = re.compile(r"\|ERRSEQ\|.*ProduceRequest for (\S+) \[(\d+)\] .*skipped sequence numbers")
OF_A_BROKER = ("kill", "stop", "pause", "slow", "late", "lose_answers")  # with processes or faults


class Brokers(Protocol):
    """The brokers of a round, by their ids from 1 on. All raise BrokerError for what cannot be."""

    @property
    def broker_ids(self) -> Sequence[int]: ...

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def controller(self) -> int: ...

    def leader_of(self, topic: str, partition: int) -> int: ...

    def start(self) -> object:
        """Start all that do not run, and wait until they are ready."""

    def launch(self, broker_id: int) -> None:
        """Start a broker; `await_ready` waits for it."""

    def await_ready(self, broker_id: int) -> None: ...

    def is_running(self, broker_id: int) -> bool: ...

    def kill(self, broker_id: int) -> None: ...

    def stop(self, broker_id: int) -> None: ...

    def pause(self, broker_id: int) -> None: ...

    def resume(self, broker_id: int) -> None: ...

    def faults_of(self, broker_id: int) -> Faults: ...

    def stand_back(self) -> None:
        """Have another broker control."""

    def elect(self) -> object:
        """Have all preferred replicas lead that can."""

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> object:
        """Begin to move a partition; without replicas cancel the move that goes on."""

    def strike(self, fault: Fault, broker_id: int) -> Callable[[], None] | None:
        """Begin a fault of the network or of followers; return what undoes it."""

    def lengthen_journal(self, journal_bytes: int) -> None:
        """Change the state until its journal is so long; not beside Kafka."""

    def ask_controller(self, api_key: ApiKey, **body: object) -> Any: ...

    def heal(self) -> None:
        """Have all brokers reach each other."""

    def restore(self) -> None:
        """End all faults, and start the brokers that have ended."""

    def wrong(self) -> list[str]:
        """Return what has not settled: replicas out of sync or unequal, moves and deletions that go on."""

    def logs(self) -> Sequence[Path]:
        """The logs of minibrokers."""

    def close(self) -> None: ...


class Round:
    """A round in a directory, which has its history, its logs and its data."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._topics = (*TOPICS, COPIED_IN_V2) if plan.has_v2 else TOPICS
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
            brokers: Brokers = (Ours if plan.kind == OURS else BesideKafka)(plan, directory)
            self._brokers = stack.enter_context(closing(brokers))
            brokers.start()
            self._admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers, **QUICK})
            self._create(self._topics, plan.partitions)
            workload = self._workload = Workload(plan, brokers.bootstrap_servers, history, self._note)
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
            wrong += defects(brokers.logs())
        sent_again = sent_again_by_client((directory / CLIENTS_LOG).read_text(errors="replace"))
        return wrong + [
            each.text
            for each in check(read_lines(directory / HISTORY))
            if each.kind != DUPLICATE or (each.topic, each.partition) not in sent_again
        ]

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
            for broker_id in self._brokers.broker_ids:
                if not self._brokers.is_running(broker_id) and broker_id not in self._down:
                    wrong.append(f"broker {broker_id} ended by itself")
                    self._down.add(broker_id)
        time.sleep(max(0.0, began + self._plan.seconds - time.monotonic()))
        return wrong

    def _begin(self, fault: Fault, number: int, due: list[tuple[float, int, Callable[[], None]]]) -> None:
        self._note(str(fault))
        undo = self._struck(fault)
        if undo is not None:
            due.append((fault.at + fault.seconds, number, undo))

    def _struck(self, fault: Fault) -> Callable[[], None] | None:
        """Begin a fault; return what undoes it."""
        brokers = self._brokers
        match fault.kind:
            case "churn":
                self._churn()
            case "grow":
                self._grow()
            case "kill_all":
                self._kill_all(fault.journal_bytes)
            case "elect":
                self._note(f"  {brokers.elect()}")
            case "move_controller":
                brokers.stand_back()
            case "reassign":
                self._note(f"  {brokers.reassign(*place_of(fault.target), fault.replicas)}")
            case "move_leader":
                brokers.strike(fault, fault.other)
            case kind:
                broker_id = self._broker_of(fault.target)
                if self._is_busy(broker_id) and kind != "kill":
                    self._note("  is busy")
                    return None
                if kind in OF_A_BROKER:
                    undo: Callable[[], None] | None = getattr(self, f"_{kind}")(broker_id)
                    return undo
                return brokers.strike(fault, broker_id)
        return None

    def _broker_of(self, target: int | str) -> int:
        """Raises BrokerError."""
        if target == CONTROLLER:
            return self._brokers.controller
        if isinstance(target, int):
            return target
        return self._brokers.leader_of(*place_of(target))

    def _kill(self, broker_id: int) -> Callable[[], None]:
        self._paused.discard(broker_id)
        self._down.add(broker_id)
        self._brokers.kill(broker_id)
        self._await(broker_id)
        return lambda: self._start(broker_id)

    def _stop(self, broker_id: int) -> Callable[[], None] | None:
        if self._is_busy(broker_id):
            return None
        self._down.add(broker_id)
        self._background(broker_id, lambda: self._brokers.stop(broker_id))
        return lambda: self._start(broker_id)

    def _start(self, broker_id: int) -> None:
        """Start a broker that is down, once it has stopped."""
        if broker_id in self._down:
            self._note(f"start {broker_id}")
            self._await(broker_id)
            self._down.discard(broker_id)
            self._brokers.launch(broker_id)
            self._background(broker_id, lambda: self._brokers.await_ready(broker_id))

    def _kill_all(self, journal_bytes: int) -> None:
        try:
            self._brokers.lengthen_journal(journal_bytes)
        except BrokerError as error:
            self._note(f"  the journal stays as long as it is: {error}")
        for broker_id in self._brokers.broker_ids:
            self._kill(broker_id)
        for broker_id in self._brokers.broker_ids:
            self._start(broker_id)

    def _pause(self, broker_id: int) -> Callable[[], None] | None:
        if broker_id in self._down:
            return None
        self._brokers.pause(broker_id)
        self._paused.add(broker_id)
        return lambda: self._resume(broker_id)

    def _resume(self, broker_id: int) -> None:
        if broker_id in self._paused:
            self._note(f"resume {broker_id}")
            self._paused.discard(broker_id)
            self._brokers.resume(broker_id)

    def _is_busy(self, broker_id: int) -> bool:
        """Whether a broker is down, paused, or about to start or stop."""
        thread = self._threads.get(broker_id)
        return broker_id in self._down | self._paused or (thread is not None and thread.is_alive())

    def _background(self, broker_id: int, work: Callable[[], object]) -> None:
        """Start or stop a broker beside other faults, which may keep it from that."""

        def run() -> None:
            try:
                work()
            except (BrokerError, ProcessError) as error:
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
                self._brokers.heal()
            if time.monotonic() > deadline:
                return [f"brokers do not start or stop: {[each for each in self._threads if self._is_busy(each)]}"]
            time.sleep(POLL_SECONDS)
        self._brokers.restore()
        return []

    def _slow(self, broker_id: int) -> Callable[[], None]:
        """Answer fetches, of followers too, late."""
        return self._brokers.faults_of(broker_id).delay(SLOW_SECONDS, api="fetch").lift

    def _late(self, broker_id: int) -> Callable[[], None]:
        """Obey the controller late."""
        return self._brokers.faults_of(broker_id).delay(LATE_SECONDS, api="leader_and_isr").lift

    def _lose_answers(self, broker_id: int) -> None:
        self._brokers.faults_of(broker_id).disconnect(when="after", api="produce", times=3)

    def _churn(self) -> None:
        """Create a topic, and delete the one before."""
        before = f"churned-{self._churned}"
        self._churned += 1
        self._admin.create_topics([NewTopic(f"churned-{self._churned}", 2, REPLICAS)], request_timeout=1)
        if self._churned > 1:
            self._admin.delete_topics([before], request_timeout=1)

    def _grow(self) -> None:
        """Add a partition to each topic of the clients; if that failed for some of them before, to the others."""
        wanted = self._workload.partitions + 1
        rows = [(topic, wanted, None) for topic in self._topics]
        self._brokers.ask_controller(ApiKey.CREATE_PARTITIONS, topics=rows, timeout_ms=GROWTH_MS, validate_only=False)
        shown = self._brokers.ask_controller(ApiKey.METADATA, topics=None).topics
        # One that has just started shows no topics yet.
        grown = min((len(each.partitions) for each in shown if each.name in self._topics), default=0)
        self._workload.partitions = max(grown, self._workload.partitions)

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
                wrong = self._brokers.wrong()
            except BrokerError as error:
                wrong = [f"a broker does not answer: {error}"]
            if not wrong or time.monotonic() > deadline:
                return wrong
            time.sleep(POLL_SECONDS)


def sent_again_by_client(log: str) -> set[tuple[str, int]]:
    """The partitions to which librdkafka may have sent a record again that it had sent, by its own log."""
    return {(topic, int(partition)) for topic, partition in SENT_AGAIN.findall(log)}


def defects(logs: Iterable[Path]) -> list[str]:
    """Return what the brokers logged that no fault explains."""
    found = []
    for log in logs:
        text = log.read_text(errors="replace")
        found += [f"{log}: {text[match.start() :][:600]}" for match in DEFECT.finditer(text)][:3]
    return found
