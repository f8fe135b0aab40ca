"""One run of a plan: safety, with faults, then liveness, without: all must finish, and replicas be equal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

import trio

from minibroker.broker.cluster import controller
from minibroker.broker.cluster.controller import Image, choose_leader
from minibroker.broker.cluster.controller import Plan as ControllerPlan
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState
from minibroker.history.checking import check
from minibroker.history.lines import LineReader
from minibroker.history.model import History
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.simulation import ensemble
from minibroker.simulation.brokers import PORT, SHARED, SimulatedBroker
from minibroker.simulation.clients import (
    BatchingProducer,
    Book,
    Client,
    Failed,
    FencedProducer,
    FirstTransactionalProducer,
    IdempotentProducer,
    LastReader,
    LooseProducer,
    Place,
    Producer,
    Reader,
    TransactionalProducer,
    UnheardProducer,
)
from minibroker.simulation.ensemble import Ensemble
from minibroker.simulation.invariants import Invariants
from minibroker.simulation.members import ConsumerMember, Member, StaticMember
from minibroker.simulation.memory_disk import MemoryDisk
from minibroker.simulation.memory_network import MemoryNetwork
from minibroker.simulation.operators import COMPACTED, KeyReader, Operator, TopicOwner, Upserter
from minibroker.simulation.plan import ERRNOS, Fault, Plan
from minibroker.simulation.replicas import content_of, newest_by_key
from minibroker.simulation.stand_in import collected_at_end, in_place_of_the_system, replaced
from minibroker.simulation.world import PROCESS, Died, OnEvent, World

CLIENT_HOST = "10.0.1.1"
# A late EndTxn of transactions v1 ends the next transaction (KIP-890), and so may nothing of theirs be late.
STALLED = ("producer", "loose", "idempotent", "batching", "transactional", "fenced", "upserter")
START_SECONDS = 30.0
FINISH_SECONDS = 40.0
SETTLE_SECONDS = 30.0
INTERNAL = ("__consumer_offsets", "__transaction_state")
WIPE_ATTEMPTS = 50  # to find that a broker that has ended has left the in-sync replicas
POWERLESS = ("power", "crash_at_call")
ROTTING = (".index", ".timeindex", ".snapshot")  # what a broker makes again from its logs
# What an unclean election may cause in its partition.
OF_LOSS = "lost-write unseen inconsistent-offset poll-skip poll-back duplicate send-order lost-value".split()
KINDS: dict[str, Callable[[str, Book, object], Client]] = {
    "producer": Producer,
    "loose": LooseProducer,
    "idempotent": IdempotentProducer,
    "batching": BatchingProducer,
    "unheard": UnheardProducer,
    "transactional": TransactionalProducer,
    "transactional1": FirstTransactionalProducer,
    "fenced": FencedProducer,
    "reader": Reader,
    "member": Member,
    "static": StaticMember,
    "consumer": ConsumerMember,
    "operator": Operator,
    "owner": TopicOwner,
    "upserter": Upserter,
}


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
    """A handler of the log that notes each defect as a finding: of a broker, or of an instrument of trio."""

    def __init__(self, take: Callable[[str, str], None]) -> None:
        super().__init__(logging.ERROR)
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Died):
            return
        if record.name.startswith(("minibroker", "trio")) and (record.exc_info or "a defect" in text):
            self._take("defect", f"{text}: {error!r}")


def run(plan: Plan, *, cut_at: int = 0, on_event: OnEvent | None = None) -> Result:
    """Run a plan. The faults end early after the event with the number `cut_at`; `on_event` gets each event."""
    with collected_at_end():
        return run_in_a_world(plan, cut_at, on_event)


def run_in_a_world(plan: Plan, cut_at: int, on_event: OnEvent | None) -> Result:
    world = World(plan.seed, cut_at=cut_at, on_event=on_event)
    disk = MemoryDisk(world)

    def delay(source: str, target: str) -> float:
        if ensemble.HOST in (source, target) and simulation.ensemble is not None:
            return simulation.ensemble.delay()
        usual = world.random.random() * plan.delay_ms / 1000
        return usual if world.random.random() < 0.98 else 20 * usual

    network = MemoryNetwork(world, delay, disk.pread)
    simulation = Simulation(plan, world, disk, network)
    root = logging.getLogger()
    complaints = Complaints(simulation.found)
    handlers = root.handlers[:]
    root.handlers[:] = [complaints]
    try:
        with (
            in_place_of_the_system(world, disk, network, lambda: world.random.random() * plan.delay_ms / 1000),
            replaced(controller, "unclean_elections", simulation.noting(controller.unclean_elections)),
        ):
            # In a context of its own: the next run would begin in the process that was polled last.
            copy_context().run(lambda: trio.run(simulation.main, clock=world.clock))
            if world.busy:
                simulation.found("busy", world.busy)
            simulation.judge_history()
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
        self.ensemble = Ensemble(world, network, delay_ms=plan.zookeeper_delay_ms) if plan.is_beside_zookeeper else None
        options = ServeOptions(cluster_dir=SHARED if plan.brokers > 1 else None)
        if self.ensemble is not None:
            options = ServeOptions(zookeeper=f"{ensemble.HOST}:{ensemble.PORT}")
        self._invariants = Invariants(self.found)
        self.brokers = {
            broker_id: SimulatedBroker(
                broker_id,
                world=world,
                disk=disk,
                network=network,
                settings=plan.settings,
                options=options,
                on_end=self._on_end,
                on_step=self._look_at,
            )
            for broker_id in range(1, plan.brokers + 1)
        }
        addresses = {each.broker_id: (each.host, PORT) for each in self.brokers.values()}
        self.book = Book(world, addresses, dict(plan.topics), may_lose=plan.is_unclean, is_beside=plan.is_beside)
        self._faults_over = trio.Event()
        self._uncleanly_led: set[Place] = set()
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
        return any(
            each.kind in ("fail_call", "bad_disk") and each.broker == broker.broker_id for each in self._plan.faults
        )

    def noting(self, unclean_elections: Callable[..., list[TopicPartition]]) -> Callable[..., list[TopicPartition]]:
        """Note the partitions of the unclean elections that a controller plans."""

        def noted(*arguments: Any) -> list[TopicPartition]:
            names = unclean_elections(*arguments)
            self._uncleanly_led.update((name.topic, name.partition) for name in names)
            return names

        return noted

    def _client(self, client: Client) -> Client:
        self._network.hosts[client.process] = CLIENT_HOST
        return client

    # -- phases -----------------------------------------------------------------------------------------------

    async def main(self) -> None:
        clients = [self._client(KINDS[kind](name, self.book, self._plan.seed)) for kind, name in self._plan.clients]
        try:
            async with trio.open_nursery() as nursery:
                self._world.begin(nursery.cancel_scope)
                if self.ensemble is not None:
                    nursery.start_soon(self.ensemble.run)
                for broker in self.brokers.values():
                    broker.start(nursery)
                if await self._prepare():
                    for client in clients:
                        nursery.start_soon(client.run)
                    for fault in self._plan.faults:
                        strike = partial(nursery.start_soon, self._strike, fault, nursery)
                        self._world.clock.at(self._world.seconds() + fault.at, strike)
                    with trio.move_on_after(self._plan.seconds):
                        await self._world.cut.wait()
                    await self._be_live(clients, nursery)
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            if not all(isinstance(each, Ended) for each in leaves_of(group)):
                raise

    async def _prepare(self) -> bool:
        """Create the topics."""
        PROCESS.set(self._admin.process)
        replicas = min(3, self._plan.brokers)
        topics: list[Any] = [(name, count, replicas, [], []) for name, count in self._plan.topics.items()]
        if self._plan.is_cleaning:
            topics.append((COMPACTED[0], 1, replicas, [], [("cleanup.policy", "compact")]))
        with trio.move_on_after(START_SECONDS):
            while True:
                answer = await self._ask_controller(ApiKey.CREATE_TOPICS, 3, topics=topics, timeout_ms=5000)
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
        """End all faults; every client must finish, the replicas become equal, and a last reader reach the end."""
        self._faults_over.set()
        self._heal(nursery)
        self.book.finish()
        await self._until_finished(clients, nursery)
        await self._until(lambda: not self._unsettled(), SETTLE_SECONDS, lambda: self._unsettled(), nursery)
        last: list[Client] = [LastReader("last", self.book, self._plan.seed)]
        last += [KeyReader(each) for each in clients if isinstance(each, Upserter)]
        for reader in last:
            nursery.start_soon(self._client(reader).run)
        await self._until_finished(last, nursery)

    async def _until_finished(self, clients: Sequence[Client], nursery: trio.Nursery) -> None:
        await self._until(
            lambda: all(each.is_finished for each in clients),
            FINISH_SECONDS,
            lambda: "; ".join(f"{each.name} {each.doing}" for each in clients if not each.is_finished),
            nursery,
        )

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
        self._disk.bad.clear()
        for broker in self.brokers.values():
            broker.process.crash_after(0)
            broker.process.failing.clear()
            if broker.app is not None and broker.app.is_offline:
                broker.kill()  # its operator has mended the disk
            broker.start(nursery)

    # -- faults -----------------------------------------------------------------------------------------------

    async def _strike(self, fault: Fault, nursery: trio.Nursery) -> None:
        """Have a fault begin now, and end. Before its time it has no task: a plan without it is the same run so far."""
        if self._faults_over.is_set():
            return
        PROCESS.set(self._admin.process)
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
                return self._close((one, other)) if fault.kind == "one_way" else self._close((one, other), (other, one))
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
            case "bounce":
                self._move_leader(fault.how, broker.broker_id)
                await trio.sleep(fault.calls / 1000)
                self._move_leader(fault.how, fault.other)
            case "stall":
                senders = {each for each in self._network.hosts if each.name.split("-")[0] in STALLED}
                self._network.stall(senders, broker.host, fault.calls / 1000)
            case "bad_disk":
                volume = str(broker.broker_id)
                self._disk.bad[volume] = ERRNOS[fault.how]

                def mend() -> None:
                    self._disk.bad.pop(volume, None)
                    if broker.app is not None and broker.app.is_offline:
                        broker.kill()
                    broker.start(nursery)

                return mend
            case "wipe":
                broker.kill()
                await self._wipe(broker)
                return restart
            case "rot":
                broker.kill()
                chance = self._world.source("fault", fault)
                self._world.note("rot", self._disk.rot(str(broker.broker_id), ROTTING, chance))
                return restart
            case "kill_all":
                for each in self.brokers.values():
                    each.kill()
                return partial(self._heal, nursery)
            case "elect":
                await self._ask_controller(ApiKey.ELECT_LEADERS, 0, topic_partitions=None, timeout_ms=1000)
            case "reassign":
                topics, counts = sorted(self._plan.topics), [2, 3]
                if self._plan.is_beside:
                    topics += INTERNAL
                    counts.append(0)  # cancels one that is on its way
                topic = topics[fault.other % len(topics)]
                replicas = [fault.broker, *(each for each in self.brokers if each != fault.broker)]
                count = self._world.source("fault", fault).choice(counts)
                await self._ask_controller(
                    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
                    0,
                    timeout_ms=1000,
                    topics=[(topic, [(0, replicas[:count] or None)])],
                )
            case _:
                if self.ensemble is not None:
                    return self._begin_of_zookeeper(fault, broker, self.ensemble)
        return lambda: None

    def _begin_of_zookeeper(self, fault: Fault, broker: SimulatedBroker, zookeeper: Ensemble) -> Callable[[], object]:
        """Begin a fault of ZooKeeper, or of the way to it; return what undoes it."""
        there, back = (broker.host, ensemble.HOST), (ensemble.HOST, broker.host)
        ways = {"no_zookeeper": (there, back), "to_zookeeper": (there,), "from_zookeeper": (back,)}
        match fault.kind:
            case "no_zookeeper" | "to_zookeeper" | "from_zookeeper":
                return self._close(*ways[fault.kind])
            case "cut_zookeeper":
                self._network.cut(broker.host, ensemble.HOST)
            case "late_zookeeper":
                self._network.stall([broker.process], ensemble.HOST, fault.calls / 1000)
            case "slow_zookeeper":
                zookeeper.be_slow(fault.calls / 1000)
                return lambda: zookeeper.be_slow(0.0)
            case "expire":
                state = broker.parts and broker.parts.state
                if isinstance(state, ZooKeeperState):
                    zookeeper.expire(state.client.session_id)
            case "depose":
                zookeeper.depose()
            case "restart_zookeeper":
                zookeeper.server.restart()
        return lambda: None

    def _close(self, *ways: tuple[str, str]) -> Callable[[], object]:
        """Close ways of the network; return what opens them."""
        for way in ways:
            self._network.close_way(*way)

        def open_ways() -> None:
            for way in ways:
                self._network.open_way(*way)

        return open_ways

    def _move_leader(self, name: str, broker_id: int) -> None:
        """Have the controller choose a leader, if it can."""
        topic, _, number = name.rpartition("-")
        place = TopicPartition(topic, int(number))

        def choose(image: Image) -> ControllerPlan:
            return choose_leader(image, place, broker_id, is_unclean=False)

        for broker in self.brokers.values():
            parts = broker.parts
            if parts is not None and parts.controller_loop.is_active and not broker.process.is_paused:
                with self._world.acting_as(broker.process), suppress(KafkaError, Died):
                    parts.controller_loop.perform("the leader", choose)

    async def _wipe(self, broker: SimulatedBroker) -> None:
        """Wipe the disk of a broker that has ended, once no partition counts on it."""
        for _ in range(WIPE_ATTEMPTS):
            if not broker.is_running and self._is_out_of_sync(broker.broker_id):
                self._disk.wipe(str(broker.broker_id))
                self._world.note("wipe", broker.broker_id)
                return
            await trio.sleep(0.1)

    def _is_out_of_sync(self, broker_id: int) -> bool:
        """Whether all brokers that run know that this one is in sync nowhere."""
        ready = [each.parts for each in self.brokers.values() if each.is_ready and not each.process.is_paused]
        running = [parts for parts in ready if parts is not None]
        return bool(running) and all(
            broker_id not in state.in_sync_replicas
            for parts in running
            for topic in parts.state.topics.values()
            for state in topic.partitions.values()
        )

    def _look_at(self, broker_id: int, parts: BrokerParts) -> None:
        """Check the invariants after a step of a broker."""
        self._invariants.look(broker_id, parts)
        state = parts.state
        if self.ensemble is None or not isinstance(state, ZooKeeperState) or not state.is_controller:
            return
        if self.ensemble.has_ended(state.client.session_id):
            self.found("controls-without-session", f"broker {broker_id}, in epoch {state.controller_epoch}")

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
            if role.log.high_watermark < role.log.log_end_offset:
                return f"{name} ends at {role.log.log_end_offset}, and is committed to {role.log.high_watermark}"
            replicas = sorted((role.broker_id, *role.remote_replicas))
            if len(role.in_sync_replicas) != len(replicas):
                return f"{name} has {sorted(role.in_sync_replicas)} in sync, of {replicas}"
            roles = [held[each].any(name) for each in replicas]
            if None in roles:
                return f"{name} is not at each of brokers {replicas}"
            start = max(each.log.log_start_offset for each in roles if each is not None)
            contents = {each: self._content_of(each, name, start) for each in replicas}
            first, *others = contents.values()
            if any(each != first for each in others):
                sizes = ", ".join(f"{len(each)} bytes at broker {replica}" for replica, each in contents.items())
                return f"the replicas of {name} differ: {sizes}"
        return self._undeleted()

    def _content_of(self, broker_id: int, name: TopicPartition, start: int) -> Any:
        """Return the content of a replica from a start offset on, before which a crash may bring records back."""
        files = self._disk.files(self.brokers[broker_id].data_dir / f"{name.topic}-{name.partition}")
        if self._plan.is_cleaning and name.topic in (*INTERNAL, COMPACTED[0]):
            return newest_by_key(files)
        return content_of(files, start)

    def _undeleted(self) -> str:
        """The first directory of a topic that was deleted. Beside ZooKeeper a power failure may bring one back, as in
        Kafka: nobody deletes what no topic of the state has."""
        if self.ensemble is not None and any(each.kind in POWERLESS for each in self._plan.faults):
            return ""
        for broker in self.brokers.values():
            for name in self._disk.files(broker.data_dir):
                directory = name.split("/")[0]
                if directory.rpartition("-")[0] in self.book.deleted_topics:
                    return f"broker {broker.broker_id} has {directory}, which was deleted"
        return ""

    def judge_history(self) -> None:
        for wrong in self.book.wrongs:
            self._judge(*wrong)
        history = History(lambda at: f"row {at}")
        reader = LineReader(history)
        for number, row in enumerate(self.book.rows, 1):
            reader.read(number, row)
        is_whole = not self.findings  # else the last reader has not read all
        for finding in check(history.finish(), allowed=() if is_whole else ("unseen",)):
            self._judge(finding.kind, finding.text, (finding.topic, finding.partition))

    def _judge(self, kind: str, text: str, place: Place) -> None:
        """Note the finding, unless an unclean election of the partition allows it."""
        if kind not in OF_LOSS or place not in self._uncleanly_led:
            self.found(kind, text)


def leaves_of(error: BaseException) -> list[BaseException]:
    """The errors in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves_of(each)]
    return [error]
