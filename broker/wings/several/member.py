"""This broker as a member of a cluster on one machine: it sees others end by their locks and heartbeats.

A broker that has died is found at once, by its lock. One that stands still is found by its heartbeats: each broker
counts `BEATS` of them in zookeeper.session.timeout.ms, and one that has counted none while this one has counted that
many has expired. So a machine that was suspended expires none; and no clock that tests turn does, since the others have
some real time to turn theirs. A broker that finds itself expired begins another life, as after an expired session of
ZooKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import trio

from minibroker.broker.cluster.member import Member
from minibroker.broker.cluster.state import News
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.wings.several import directory_watch
from minibroker.broker.wings.several.shared_state import SharedState
from minibroker.protocol.errors import KafkaError
from minibroker.storage import real_time

logger = logging.getLogger(__name__)

T = TypeVar("T")

BEATS = 6
STILL_SECONDS = 0.2  # of real time
SUSPICION_POLL_SECONDS = 0.05
UNLOCKING_POLL_SECONDS = 0.001  # the kernel shows the close of a file before it drops its locks
UNLOCKING_POLLS = 50


class Stillness(NamedTuple):
    """The heartbeats of a broker, and how many of ours, since when, have passed without another one of its own."""

    beats: int
    own_beats: int
    since_seconds: float


class ClusterMember(Member[SharedState]):
    """`on_beat` is called with each heartbeat, to try again what has failed."""

    def __init__(
        self,
        state: SharedState,
        *,
        broker_id: int,
        broker: Callable[[], Broker],
        session_timeout_ms: int,
        on_news: Callable[[News], None],
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(state, broker_id=broker_id, broker=broker, on_news=on_news)
        self._beat_seconds = session_timeout_ms / BEATS / 1000
        self._on_beat = on_beat
        self._has_joined = False
        self._still: dict[int, Stillness] = {}

    async def run(self) -> None:
        """Live until cancelled. An error of the disk is logged, and tried again with the next heartbeat.

        Raises OSError where the directory cannot be watched.
        """
        watch = directory_watch.DirectoryWatch(self._state.directory, self._state.directory / "brokers")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._beat)
                while True:
                    for name in await watch.changed():
                        if name.isdecimal() and int(name) in self._state.lives and int(name) != self._broker_id:
                            await self._end_life_of(int(name))
                    self._try_to(self.look)
        finally:
            watch.close()

    def join(self) -> None:
        """Show this broker to the cluster. Raises KafkaError."""
        if self._has_joined and not self._state.is_registered:
            logger.warning("this broker stood still for too long: the others took it for dead; it joins again")
        self._state.register(self._broker())
        self._has_joined = True

    def rejoin(self) -> None:
        """Have the controller give this broker its roles again, also the ones that it had to refuse."""
        self._try_to(self.join)
        self._try_to(self.look)

    async def _end_life_of(self, broker_id: int) -> None:
        """End the life of a broker, if it has dropped its lock."""
        for _ in range(UNLOCKING_POLLS):
            if not self._state.locks.is_held(broker_id):
                logger.info("broker %d has ended", broker_id)
                self._try_to(partial(self._state.end_life_of, broker_id))
                return
            await trio.sleep(UNLOCKING_POLL_SECONDS)

    async def _beat(self) -> None:
        while True:
            self._state.locks.beat()
            is_suspicious = self._try_to(self._end_dead_lives)
            self._try_to(self.look)
            self._try_to(self._on_beat)
            await trio.sleep(SUSPICION_POLL_SECONDS if is_suspicious else self._beat_seconds)

    def _try_to(self, step: Callable[[], T]) -> T | None:
        """Take a step that reads or writes the state; log its error."""
        try:
            return step()
        except (KafkaError, OSError) as error:
            logger.error("cannot use the state of the cluster: %s", error)
            return None

    def _end_dead_lives(self) -> bool:
        """End the lives of brokers whose locks are free, or whose heartbeats stand still; return whether some still
        stand too shortly."""
        state = self._state
        is_suspicious = False
        for broker_id in list(state.lives):
            if broker_id == self._broker_id:
                continue
            beats, before = state.locks.beats_of(broker_id), self._still.get(broker_id)
            if before is None or before.beats != beats:
                still = Stillness(beats, 0, real_time.monotonic())
            else:
                still = before._replace(own_beats=before.own_beats + 1)
            self._still[broker_id] = still
            if not state.locks.is_held(broker_id):
                logger.info("broker %d has ended", broker_id)
            elif still.own_beats < BEATS:
                continue
            elif real_time.monotonic() - still.since_seconds < STILL_SECONDS:
                is_suspicious = True
                continue
            else:
                logger.warning("broker %d stands still: its session has expired", broker_id)
            state.end_life_of(broker_id)
            del self._still[broker_id]
        return is_suspicious
