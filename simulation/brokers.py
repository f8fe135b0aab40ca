"""The brokers of a simulation: real ones, each a process of the world with a disk and a host of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from minibroker.broker.app import BrokerApp, StopSignals
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperStateError
from minibroker.simulation.memory_disk import MemoryDisk
from minibroker.simulation.memory_network import MemoryNetwork
from minibroker.simulation.world import PROCESS, Died, Process, WallClock, World

PORT = 9092
SHARED = Path("/cluster")
SIGTERM = 15
START_AGAIN_SECONDS = 0.5


class Stops(StopSignals):
    """In place of signals."""

    def __init__(self) -> None:
        self._ask, self._asked = trio.open_memory_channel[int](100)

    @contextmanager
    def received(self) -> Iterator[AsyncIterator[int]]:
        yield self._asked

    def ask(self) -> None:
        self._ask.send_nowait(SIGTERM)


class WatchedApp(BrokerApp):
    """A broker whose parts can be seen."""

    parts: BrokerParts | None = None

    @property
    def is_offline(self) -> bool:
        """Whether its disk has failed: it serves nothing until it is started anew."""
        return self._log_manager.is_offline

    def build(self) -> BrokerParts:
        self.parts = super().build()
        return self.parts


class SimulatedBroker:
    """The broker of an id: at most one process at a time. `on_end` gets each way in which one has ended,
    `on_step` its parts after each step."""

    def __init__(
        self,
        broker_id: int,
        *,
        world: World,
        disk: MemoryDisk,
        network: MemoryNetwork,
        settings: Mapping[str, object],
        options: ServeOptions,
        on_end: Callable[[SimulatedBroker, BaseException], None],
        on_step: Callable[[int, BrokerParts], None],
    ) -> None:
        self.broker_id = broker_id
        self.host = f"10.0.0.{broker_id}"
        self.data_dir = Path(f"/{broker_id}/data")
        self._world = world
        self._disk = disk
        self._network = network
        self._options = options
        self._settings = {
            **{name: str(value) for name, value in settings.items()},
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "log.dirs": str(self.data_dir),
        }
        self._on_end = on_end
        self._on_step = on_step
        self._stops = Stops()
        self._nursery: trio.Nursery | None = None
        self.clock = WallClock()
        self.process = Process(f"broker {broker_id}")
        self.process.end()
        self.app: WatchedApp | None = None
        self.is_ready = False
        self.has_power = True

    @property
    def is_running(self) -> bool:
        return self.process.is_alive

    @property
    def parts(self) -> BrokerParts | None:
        """Its parts, while it runs and is built."""
        return self.app.parts if self.app is not None and self.process.is_alive else None

    def _look(self) -> None:
        """Show its parts after a step of its process."""
        parts = self.parts
        if parts is not None:
            self._on_step(self.broker_id, parts)

    def start(self, nursery: trio.Nursery) -> None:
        """Start a process, if none runs."""
        if self.process.is_alive:
            return
        self._nursery = nursery
        self.process = Process(f"broker {self.broker_id}", self._look)
        self._network.hosts[self.process] = self.host
        self._stops = Stops()
        self.clock = WallClock(self.clock.offset_ms)
        self.is_ready = False
        self.has_power = True
        self._world.note("start", self.broker_id)
        token = PROCESS.set(self.process)
        try:
            nursery.start_soon(self._run, self.process)
        finally:
            PROCESS.reset(token)

    async def _run(self, process: Process) -> None:
        try:
            with process.scope:
                self._world.process()  # it may have been killed before its first step
                config = KafkaConfig(self._settings)
                self.app = app = WatchedApp(config, self.clock, self._options, self._stops)
                app.load()
                listener: Any = self._network.listen(process, (self.host, PORT))

                def on_ready(host: str, port: int) -> None:
                    self.is_ready = process is self.process

                await app.run([listener], on_ready)
        except BaseException as error:
            if isinstance(error, ZooKeeperStateError):
                assert self._nursery is not None
                self._nursery.start_soon(self._start_again, process, self._nursery)
            elif not only_death(error):
                self._on_end(self, error)
            elif process.is_alive:  # the whole simulation ends
                raise
        finally:
            if process.is_alive:
                self._disk.kill(process)  # the end of a process closes what it has open
            self._network.end(process, is_silent=not self.has_power)
            if process is self.process:
                self.is_ready = False

    async def _start_again(self, process: Process, nursery: trio.Nursery) -> None:
        """Start a process that could not reach ZooKeeper anew, as who watches over it does."""
        await trio.sleep(START_AGAIN_SECONDS)
        if process is self.process:
            self.start(nursery)

    def kill(self) -> None:
        """As SIGKILL."""
        if self.process.is_alive:
            self._disk.kill(self.process)
            self._network.end(self.process)

    def lose_power(self) -> None:
        """As the loss of its machine: what is not synced goes, and nobody hears of it."""
        self.has_power = False
        if self.process.is_alive:
            self._disk.kill(self.process)
            self._network.end(self.process, is_silent=True)
        self._disk.lose_power(str(self.broker_id), self._world.source("power", self.broker_id))

    def stop(self) -> None:
        """As SIGTERM."""
        if self.process.is_alive:
            self._stops.ask()


def only_death(error: BaseException) -> bool:
    """Whether an error is of nothing but the end of the process."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(only_death, error.exceptions))
    return isinstance(error, Died | trio.Cancelled)
