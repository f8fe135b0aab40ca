"""The ZooKeeper of a simulation: a host on its network, and what may happen to it."""

from __future__ import annotations

import trio

from minibroker.simulation.memory_network import MemoryNetwork, Socket
from minibroker.simulation.memory_zookeeper import MemoryZooKeeper
from minibroker.simulation.world import EPOCH_MS, Process, World

HOST = "10.0.2.1"
PORT = 2181
TICK_SECONDS = 0.05  # sessions end at one


class Ensemble:
    """`run` has sessions end."""

    def __init__(self, world: World, network: MemoryNetwork, *, delay_ms: float) -> None:
        self._world = world
        self._delay_seconds = delay_ms / 1000
        self.server = MemoryZooKeeper(lambda: EPOCH_MS + world.own_seconds() * 1000)
        self._slow_seconds = 0.0
        self._ended_early: set[int] = set()
        process = Process("zookeeper")
        network.hosts[process] = HOST
        network.listen(process, (HOST, PORT), self._accept)

    async def run(self) -> None:
        while True:
            await trio.sleep(TICK_SECONDS)
            self.server.expire()

    def _accept(self, sock: Socket) -> None:
        def send(data: bytes | None) -> None:
            if data is None:
                sock.close()
            elif not (sock.is_reset or sock.peer.is_closed):
                sock.send(data)

        sock.answer_by(self.server.connect(send).take)

    def delay(self) -> float:
        """The time of a piece of bytes, to it or from it."""
        return self._world.random.random() * self._delay_seconds + self._slow_seconds

    def has_ended(self, session_id: int) -> bool:
        """Whether a session has ended, by its time: its broker can know that."""
        return session_id not in self.server.sessions and session_id not in self._ended_early

    # -- faults -----------------------------------------------------------------------------------------------

    def be_slow(self, seconds: float) -> None:
        """Take so much longer for each piece of bytes from now on."""
        self._slow_seconds = seconds

    def expire(self, session_id: int) -> None:
        """End a session before its time, as a server whose clock jumps."""
        if session_id in self.server.sessions:
            self._ended_early.add(session_id)
            self.server.end_session(session_id)

    def depose(self) -> None:
        """Have the brokers elect another controller, as an operator who deletes the node of this one."""
        self.server.delete("/controller")
