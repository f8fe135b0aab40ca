"""One run of a plan: safety, with faults, then liveness, without: all must finish, and replicas be equal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import trio

from minibroker.broker.cluster.controller import Image, choose_leader
from minibroker.broker.cluster.controller import Plan as ControllerPlan
from minibroker.broker.replica.leading import Leading
from minibroker.history.checking import check
from minibroker.history.lines import LineReader
from minibroker.history.model import History
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.simulation.brokers import PORT, SimulatedBroker
from minibroker.simulation.clients import KINDS, Book, Client, Failed, LastReader
from minibroker.simulation.memory_disk import MemoryDisk
from minibroker.simulation.memory_network import MemoryNetwork
from minibroker.simulation.plan import ERRNOS, Fault, Plan
from minibroker.simulation.stand_in import in_place_of_the_system
from minibroker.simulation.world import PROCESS, Died, World

CLIENT_HOST = "10.0.1.1"
LOOK_SECONDS = 0.05
START_SECONDS = 30.0
FINISH_SECONDS = 40.0
SETTLE_SECONDS = 30.0
INTERNAL = ("__consumer_offsets", "__transaction_state")


class Finding(NamedTuple):
    """A contradiction that a run has shown: a class of `minibroker check`, or of the laboratory."""

    kind: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.kind}: {self.text}"


class Result(NamedTuple):
    plan: Plan
    findings: Sequence[Finding]
    rows: Sequence[dict[str, Any]]
    seconds: float
    events: int
    digest: str

    def document(self) -> dict[str, Any]:
        return {
            "plan": self.plan.document(),
            "findings": [each._asdict() for each in self.findings],
            "history": list(self.rows),
            "seconds": round(self.seconds, 6),
            "events": self.events,
            "digest": self.digest,
        }


class Complaints(logging.Handler):
    """A handler of the log that notes each defect of a broker as a finding."""

    def __init__(self, take: Callable[[str, str], None]) -> None:
        super().__init__(logging.ERROR)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.name.startswith("minibroker") and (record.exc_info or "a defect" in text):
            error = record.exc_info[1] if record.exc_info else None
            self._take("defect", f"{text}: {error!r}")


def run(plan: Plan) -> Result:
    """Run a plan."""
    world = World(plan.seed)
    disk = MemoryDisk(world)

    def delay() -> float:
        usual = world.random.random() * plan.delay_ms / 1000
        return usual if world.random.random() < 0.98 else 20 * usual

    network = MemoryNetwork(world, delay, disk.pread)
    simulation = Simulation(plan, world, disk, network)
    root = logging.getLogger()
    complaints = Complaints(simulation.found)
    handlers = root.handlers[:]
    root.handlers[:] = [complaints]
    try:
        with in_place_of_the_system(world, disk, network, lambda: world.random.random() * plan.delay_ms / 1000):
            trio.run(simulation.main, clock=world.clock)
            if world.busy:
                simulation.found("busy", world.busy)
            simulation.judge_history()
            simulation.forget()
    finally:
        root.handlers[:] = handlers
    return Result(plan, simulation.findings, simulation.book.rows, world.seconds(), world.events, world.digest)


class Ended(Exception):
    """A finding ends the run."""


class Simulation:
    def __init__(self, plan: Plan, world: World, disk: MemoryDisk, network: MemoryNetwork) -> None:
        self._plan = plan
        self._world = world
        self._disk = disk
        self._network = network
        self.findings: list[Finding] = []
        self.brokers = {
            broker_id: SimulatedBroker(
                broker_id,
                world=world,
                disk=disk,
                network=network,
                settings=plan.settings,
                is_of_several=plan.brokers > 1,
                on_end=self._on_end,
            )
            for broker_id in range(1, plan.brokers + 1)
        }
        addresses = {each.broker_id: (each.host, PORT) for each in self.brokers.values()}
        self.book = Book(world, addresses, dict(plan.topics))
        self._faults_over = trio.Event()
        self._led: dict[tuple[str, int, int], int] = {}  # who led a partition in an epoch
        self._watermarks: dict[object, tuple[int, int]] = {}
        self._admin = self._client(Client("admin", self.book, plan.seed))

    def found(self, kind: str, text: str) -> None:
        """Note a finding, once. One during the run ends it."""
        if all((each.kind, each.text) != (kind, text) for each in self.findings):
            self.findings.append(Finding(kind, self._world.seconds(), text))
            self._world.end()

    def _on_end(self, broker: SimulatedBroker, error: BaseException) -> None:
        from minibroker.broker.starting import StartError
        from minibroker.storage.files.storage_errors import LogDirectoryError

        reasons = leaves_of(error)
        if all(isinstance(each, StartError | LogDirectoryError | OSError) for each in reasons) and self._may_fail(
            broker
        ):
            return
        self.found("crash", f"broker {broker.broker_id} ended by itself: {', '.join(map(repr, reasons))}")

    def _may_fail(self, broker: SimulatedBroker) -> bool:
        """Whether the disk of a broker was made to fail."""
        return any(each.kind == "fail_call" and each.broker == broker.broker_id for each in self._plan.faults)

    def _client(self, client: Client) -> Client:
        self._network.hosts[client.process] = CLIENT_HOST
        return client

    def forget(self) -> None:
        """Let go of the brokers: their files close while the disk still stands in."""
        self.brokers.clear()
        self._watermarks.clear()

    # -- phases -----------------------------------------------------------------------------------------------

    async def main(self) -> None:
        clients = [self._client(KINDS[kind](name, self.book, self._plan.seed)) for kind, name in self._plan.clients]
        try:
            async with trio.open_nursery() as nursery:
                self._world.begin(nursery.cancel_scope)
                nursery.start_soon(self._network.run)
                for broker in self.brokers.values():
                    broker.start(nursery)
                if await self._prepare():
                    nursery.start_soon(self._look)
                    for client in clients:
                        nursery.start_soon(client.run)
                    for fault in self._plan.faults:
                        nursery.start_soon(self._strike, fault, nursery)
                    await trio.sleep(self._plan.seconds)
                    await self._be_live(clients, nursery)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if not all(isinstance(each, Ended) for each in leaves_of(group)):
                raise

    async def _prepare(self) -> bool:
        """Create the topics."""
        PROCESS.set(self._admin.process)
        names = list(self._plan.topics.items())
        with trio.move_on_after(START_SECONDS):
            while True:
                answer = await self._ask_controller(
                    ApiKey.CREATE_TOPICS,
                    3,
                    topics=[(name, count, min(3, self._plan.brokers), [], []) for name, count in names],
                    timeout_ms=5000,
                )
                codes = {row.error_code for row in answer.topics} if answer else {ErrorCode.UNKNOWN_SERVER_ERROR}
                if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return True
                await self._admin.pause()
        self.found("not-live", "the topics could not be created")
        return False

    async def _ask_controller(self, api: ApiKey, version: int, **values: Any) -> Any:
        try:
            metadata = await self._admin.any_broker(ApiKey.METADATA, 7, topics=[], allow_auto_topic_creation=False)
            return await self._admin.ask(metadata.controller_id, api, version, **values)
        except (Failed, KeyError):
            return None

    async def _be_live(self, clients: Sequence[Client], nursery: trio.Nursery) -> None:
        """End all faults; every client must finish, the replicas be equal, and a last reader reach the end."""
        self._faults_over.set()
        self._heal(nursery)
        self.book.finish()
        await self._until(
            lambda: all(each.is_finished for each in clients),
            FINISH_SECONDS,
            lambda: "; ".join(f"{each.name} {each.doing}" for each in clients if not each.is_finished),
            nursery,
        )
        last = self._client(LastReader("last", self.book, self._plan.seed))
        nursery.start_soon(last.run)
        await self._until(lambda: last.is_finished, FINISH_SECONDS, lambda: f"last {last.doing}", nursery)
        await self._until(lambda: not self._unsettled(), SETTLE_SECONDS, lambda: self._unsettled(), nursery)
        self._look_once()

    async def _until(
        self, is_done: Callable[[], bool], seconds: float, what: Callable[[], str], nursery: trio.Nursery
    ) -> None:
        deadline = trio.current_time() + seconds
        while not is_done():
            if trio.current_time() > deadline:
                self.found("not-live", what())
                raise Ended
            self._heal(nursery)
            await trio.sleep(0.2)

    def _heal(self, nursery: trio.Nursery) -> None:
        for broker in self.brokers.values():
            broker.process.crash_after(0)
            broker.process.failing.clear()
            if broker.app is not None and broker.app.is_offline:
                broker.kill()  # its operator has mended the disk
            broker.start(nursery)

    # -- faults -----------------------------------------------------------------------------------------------

    async def _strike(self, fault: Fault, nursery: trio.Nursery) -> None:
        PROCESS.set(self._admin.process)
        await trio.sleep(fault.at)
        self._world.note("fault", str(fault))
        broker = self.brokers[fault.broker]
        undo = await self._begin(fault, broker, nursery)
        with trio.move_on_after(fault.seconds):
            await self._faults_over.wait()
        undo()

    async def _begin(self, fault: Fault, broker: SimulatedBroker, nursery: trio.Nursery) -> Callable[[], object]:
        """Begin a fault; return what undoes it."""
        restart = partial(broker.start, nursery)
        match fault.kind:
            case "kill":
                broker.kill()
                return restart
            case "power":
                broker.lose_power()
                return restart
            case "stop":
                broker.stop()
                return restart
            case "crash_at_call":
                broker.process.crash_after(fault.calls)

                def end_crash() -> None:
                    broker.process.crash_after(0)
                    if not broker.is_running and fault.how:
                        broker.lose_power()
                    broker.start(nursery)

                return end_crash
            case "fail_call":
                broker.process.failing[broker.process.calls + fault.calls] = ERRNOS[fault.how]
                return restart
            case "pause":
                process = broker.process
                self._world.pause(process, is_paused=True)
                return lambda: self._world.pause(process, is_paused=False)
            case "isolate" | "one_way":
                one, other = broker.host, self.brokers[fault.other].host
                ways = [(one, other)] if fault.kind == "one_way" else [(one, other), (other, one)]
                for way in ways:
                    self._network.close_way(*way)

                def open_ways() -> None:
                    for way in ways:
                        self._network.open_way(*way)

                return open_ways
            case "cut":
                self._network.cut(broker.host, self.brokers[fault.other].host)
            case "cut_clients":
                self._network.cut(CLIENT_HOST, broker.host)
            case "clock":
                broker.clock.jump(int(fault.how))
            case "fail_over":
                self._move_leader(fault.how, broker.broker_id)
                await trio.sleep(fault.calls / 1000)
                broker.kill()
                return restart
            case "kill_all":
                for each in self.brokers.values():
                    each.kill()
                return partial(self._heal, nursery)
            case "elect":
                await self._ask_controller(ApiKey.ELECT_LEADERS, 0, topic_partitions=None, timeout_ms=1000)
            case "reassign":
                topic = sorted(self._plan.topics)[fault.other % len(self._plan.topics)]
                replicas = [fault.broker, *(each for each in self.brokers if each != fault.broker)]
                replicas = replicas[: self._world.random.choice((2, 3))]
                await self._ask_controller(
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                    0,
                    timeout_ms=1000,
                    topics=[(topic, [(0, replicas)])],
                )
        return lambda: None

    def _move_leader(self, name: str, broker_id: int) -> None:
        """Have the controller choose a leader, if it can."""
        topic, _, number = name.rpartition("-")
        place = TopicPartition(topic, int(number))

        def choose(image: Image) -> ControllerPlan:
            return choose_leader(image, place, broker_id, is_unclean=False)

        for controller in self.brokers.values():
            parts = controller.parts
            if parts is not None and parts.controller_loop.is_active and not controller.process.is_paused:
                with self._world.acting_as(controller.process), suppress(KafkaError, Died):
                    parts.controller_loop.perform("the leader", choose)

    # -- what must be so at each moment -----------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            self._look_once()
            await trio.sleep(LOOK_SECONDS)

    def _look_once(self) -> None:
        for broker in self.brokers.values():
            parts = broker.parts
            if parts is None:
                continue
            for name, role in parts.replica_manager.partitions.items():
                self._look_at(broker, name, role)

    def _look_at(self, broker: SimulatedBroker, name: Any, role: Any) -> None:
        log, at = role.log, f"{name} of broker {broker.broker_id}"
        if log.high_watermark > log.log_end_offset:
            self.found("watermark-above-end", f"{at}: {log.high_watermark} of {log.log_end_offset}")
        if isinstance(role, Leading):
            key = name.topic, name.partition, role.leader_epoch
            before = self._led.setdefault(key, broker.broker_id)
            if before != broker.broker_id:
                self.found("two-leaders", f"{at} in epoch {role.leader_epoch}, and broker {before}")
            epoch, watermark = self._watermarks.get(role, (role.leader_epoch, 0))
            if epoch == role.leader_epoch and log.high_watermark < watermark:
                self.found("watermark-back", f"{at}: {watermark} to {log.high_watermark}")
            self._watermarks[role] = role.leader_epoch, log.high_watermark

    # -- the end ----------------------------------------------------------------------------------------------

    def _unsettled(self) -> str:
        """The first replica that is out of sync, or unequal; empty at a good end."""
        parts = {each.broker_id: each.parts for each in self.brokers.values() if each.is_ready}
        held = {broker_id: each.replica_manager.partitions for broker_id, each in parts.items() if each is not None}
        if len(held) < len(self.brokers):
            return f"{len(held)} of {len(self.brokers)} brokers are ready"
        leaders = {role.topic_partition: role for each in held.values() for role in each.leaders()}
        led = {(each.topic, each.partition) for each in leaders}
        for topic, number in self.book.places():
            if (topic, number) not in led:
                return f"{topic}-{number} has no leader"
        for name, role in leaders.items():
            replicas = sorted((role.broker_id, *role.remote_replicas))
            if len(role.in_sync_replicas) != len(replicas):
                return f"{name} has {sorted(role.in_sync_replicas)} in sync, of {replicas}"
            missing = [each for each in replicas if held[each].any(name) is None]
            if missing:
                return f"{name} is not at brokers {missing}"
            contents = {each: self._content_of(each, name) for each in replicas}
            if len(set(contents.values())) > 1:
                sizes = ", ".join(f"{len(each)} bytes at broker {replica}" for replica, each in contents.items())
                return f"the replicas of {name} differ: {sizes}"
        return ""

    def _content_of(self, broker_id: int, name: Any) -> bytes:
        files = self._disk.files(self.brokers[broker_id].data_dir / f"{name.topic}-{name.partition}")
        return b"".join(files[each] for each in sorted(files) if each.endswith(".log"))

    def judge_history(self) -> None:
        for text in self.book.lost_commits:
            self.found("lost-commit", text)
        history = History(lambda at: f"row {at}")
        reader = LineReader(history)
        for number, row in enumerate(self.book.rows, 1):
            reader.read(number, row)
        is_whole = not self.findings  # else the last reader has not read all
        for finding in check(history.finish(), allowed=() if is_whole else ("unseen",)):
            self.found(finding.kind, finding.text)


def leaves_of(error: BaseException) -> list[BaseException]:
    """The errors in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves_of(each)]
    return [error]
