"""This broker as a member of a cluster on one machine: it lives, sees the others live and end, and may be elected.

A broker that has died is found at once, by its lock. One that stands still is found by its heartbeats: each broker
counts `BEATS` of them in zookeeper.session.timeout.ms, and one that has counted none while this one has counted more
than that has expired. So a machine that was suspended expires none. A broker that finds itself expired begins another
life, as after an expired session of ZooKeeper.

What others have written into the state comes here as news, and goes to `on_news` in its order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from minibroker.broker.cluster.directory_watch import DirectoryWatch
from minibroker.broker.cluster.shared_state import NO_CONTROLLER, News, SharedState
from minibroker.broker.replica.decisions import Broker
from minibroker.protocol.errors import KafkaError

logger = logging.getLogger(__name__)

BEATS = 6
UNLOCKING_SECONDS = 0.05  # the kernel shows the close of a file before it drops its locks
UNLOCKING_POLL_SECONDS = 0.001


class ClusterMember:
    """`broker` is how this broker shows itself. `on_news` gets news in the order of the journal."""

    def __init__(
        self,
        state: SharedState,
        *,
        broker_id: int,
        broker: Callable[[], Broker],
        session_timeout_ms: int,
        on_news: Callable[[News], None],
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._broker = broker
        self._beat_seconds = session_timeout_ms / BEATS / 1000
        self._on_news = on_news
        self._still: dict[int, tuple[int, int]] = {}  # by broker: its heartbeats, and ours since they stand still

    async def run(self) -> None:
        """Live until cancelled. Raises OSError and KafkaError where the directory fails."""
        watch = DirectoryWatch(self._state.directory, self._state.directory / "brokers")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._beat)
                self.join()
                self._end_dead_lives()
                self.look()
                while True:
                    closed = await watch.changed()
                    for name in closed:
                        if name.isdecimal() and int(name) in self._state.lives and int(name) != self._broker_id:
                            await self._end_life_of(int(name))
                    self.look()
        finally:
            watch.close()

    def join(self) -> None:
        """Show this broker to the cluster. Raises KafkaError."""
        self._state.register(self._broker())

    def look(self) -> None:
        """Read the journal, and hand on its news, those of this broker's own changes too."""
        state = self._state
        state.look()
        while state.has_news:
            for each in state.take_news():
                self._on_news(each)
            if not state.is_registered:
                logger.warning("this broker stood still for too long: the others took it for dead; it joins again")
                self.join()
            if state.controller_id == NO_CONTROLLER and state.claim_controller():
                logger.info("broker %d is the controller, in epoch %d", self._broker_id, state.controller_epoch)

    async def _end_life_of(self, broker_id: int) -> None:
        """End the life of a broker, if it has dropped its lock."""
        with trio.move_on_after(UNLOCKING_SECONDS):
            while self._state.locks.is_held(broker_id):
                await trio.sleep(UNLOCKING_POLL_SECONDS)
            logger.info("broker %d has ended", broker_id)
            self._state.end_life_of(broker_id)

    async def _beat(self) -> None:
        while True:
            self._state.locks.beat()
            try:
                self._end_dead_lives()
                self.look()
            except KafkaError as error:
                logger.error("cannot write the cluster's state: %s", error)
            await trio.sleep(self._beat_seconds)

    def _end_dead_lives(self) -> None:
        """End the lives of brokers whose locks are free, or whose heartbeats stand still."""
        state = self._state
        for broker_id in list(state.lives):
            if broker_id == self._broker_id:
                continue
            beats = state.locks.beats_of(broker_id)
            before, count = self._still.get(broker_id, (-1, 0))
            self._still[broker_id] = beats, count + 1 if beats == before else 0
            if not state.locks.is_held(broker_id):
                logger.info("broker %d has ended", broker_id)
            elif beats == before and count >= BEATS:
                logger.warning("broker %d stands still: its session has expired", broker_id)
            else:
                continue
            state.end_life_of(broker_id)
