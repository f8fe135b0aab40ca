"""This broker as a member of a cluster of several: it joins, hears the news of the state, may be elected, and leaves.

A wing says how it lives and how it sees that others have ended: by locks and heartbeats (`wings/several/`), or by a
session with ZooKeeper (`wings/zookeeper_nodes/`). What others have written into the state comes here as news, and goes
to `on_news` in its order.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import trio

from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import NO_CONTROLLER, News
from minibroker.broker.cluster.stored_state import StoredState
from minibroker.broker.replica.decisions import Broker
from minibroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

LEAVE_ATTEMPTS = 40
LEAVE_RETRY_SECONDS = 0.05


class StateOfSeveral(StoredState, ABC):
    """A ClusterState that several brokers share: it has news. Its methods raise KafkaError(KAFKA_STORAGE_ERROR)."""

    is_shared = True

    def __init__(self, sections: Iterable[Section[Any]]) -> None:
        super().__init__(sections)
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self._news: list[News] = []

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    def take_news(self) -> list[News]:
        """Take the changes since the last call, those of this broker too, in their order."""
        news, self._news = self._news, []
        return news

    @abstractmethod
    def look(self) -> None:
        """Read what others have changed. Raises OSError."""

    @property
    @abstractmethod
    def brokers(self) -> Mapping[int, Broker]:
        """The live brokers by id."""

    @property
    @abstractmethod
    def is_registered(self) -> bool:
        """Whether this broker lives for the others."""

    @property
    @abstractmethod
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""

    @abstractmethod
    def claim_controller(self) -> bool:
        """Ask to be the controller; return whether this broker is it now."""

    @abstractmethod
    def resign_controller(self) -> None:
        """Have another broker elected, if this one is the controller."""


State = TypeVar("State", bound=StateOfSeveral)


class Member(ABC, Generic[State]):
    """`broker` is how this broker shows itself. `on_news` gets news in the order of the state."""

    def __init__(
        self, state: State, *, broker_id: int, broker: Callable[[], Broker], on_news: Callable[[News], None]
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._broker = broker
        self._on_news = on_news
        self._is_leaving = False
        self._stands_back = False  # in the next election of a controller

    @abstractmethod
    async def run(self) -> None:
        """Live until cancelled."""

    @abstractmethod
    def join(self) -> None:
        """Show this broker to the cluster. Raises KafkaError."""

    @abstractmethod
    def rejoin(self) -> None:
        """Have the controller give this broker its roles again, also the ones that it had to refuse."""

    def look(self) -> None:
        """Read the state, hand on its news, those of this broker's own changes too, and join if it has to.

        Raises KafkaError(KAFKA_STORAGE_ERROR), and OSError.
        """
        state = self._state
        state.look()
        self._tell()
        while not self._is_leaving:
            if not state.is_registered:
                self.join()
            is_vacant = state.controller_id == NO_CONTROLLER
            self._stands_back = self._stands_back and is_vacant and len(state.brokers) > 1
            if state.is_registered and is_vacant and not self._stands_back and state.claim_controller():
                logger.info("broker %d is the controller, in epoch %d", self._broker_id, state.controller_epoch)
            if not state.has_news:
                return
            self._tell()

    def _tell(self) -> None:
        while self._state.has_news:
            for each in self._state.take_news():
                try:
                    self._on_news(each)
                except KafkaError as error:  # such as a setting that this broker does not take
                    logger.error("cannot take a change of the cluster: %s", error)

    async def leave(self, shut_down: Callable[[int], Awaitable[bool]]) -> None:
        """Have others lead in place of this broker, and control; it joins no more.

        `shut_down` asks a controller for that, and returns whether it has answered: it may be about to end, too.
        """
        self._is_leaving = True
        state = self._state
        for _ in range(LEAVE_ATTEMPTS):
            self.look()
            if self._is_alone:
                break
            if state.controller_id != NO_CONTROLLER and await shut_down(state.controller_id):
                break
            await trio.sleep(LEAVE_RETRY_SECONDS)
        try:
            state.resign_controller()
        except KafkaError as error:
            logger.info("another broker controls once the life of this one has ended: %s", error)
        self._tell()

    @property
    def _is_alone(self) -> bool:
        return self._state.brokers.keys() <= {self._broker_id}

    def hand_over_control(self) -> None:
        """Have another broker elected as the controller. Raises KafkaError, also if this broker is not it, or alone."""
        state = self._state
        if not state.is_controller:
            message = f"broker {self._broker_id} is not the controller, broker {state.controller_id} is"
            raise KafkaError(ErrorCode.NOT_CONTROLLER, message)
        if self._is_alone:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no other broker is alive to control; start one first")
        self._stands_back = True
        state.resign_controller()
        self.look()
