"""The controller's channels to the other brokers: each a queue of decisions, sent in their order, one after the other.

A decision is sent again every 100 ms until the broker has answered, or has left the cluster. As kafka 2.0.1
ControllerChannelManager; the controller's own broker needs no channel, since it obeys in a call.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from minibroker.broker.replica.decisions import Broker, Decision, Obeyed
from minibroker.broker.replica.other_broker import OtherBroker
from minibroker.broker.wings.several.decision_messages import Message, Shown, obeyed_of
from minibroker.broker.wings.several.inter_broker_versions import NEWEST_PROTOCOL
from minibroker.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

RETRY_MS = 100


Connect = Callable[[str, int], OtherBroker]
OnAnswer = Callable[[int, Decision, Obeyed], None]  # with the id of the broker


class BrokerChannels:
    """A channel to each other live broker, at its `listener`; calls `on_answer` with each answer.

    Messages have the versions of `protocol_version`. `run` sends; before, and after `close`, decisions wait or are
    dropped with their channels.
    """

    def __init__(
        self,
        *,
        own_id: int,
        connect: Connect,
        listener: str,
        on_answer: OnAnswer,
        protocol_version: str = NEWEST_PROTOCOL,
    ) -> None:
        self._own_id = own_id
        self._protocol_version = protocol_version
        self._connect = connect
        self._listener = listener
        self._on_answer = on_answer
        self._channels: dict[int, Channel] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Send the decisions of all channels, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for channel in self._channels.values():
                nursery.start_soon(channel.run)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Open channels to brokers that are new, and close those to brokers that are gone, with what they have not
        sent. A broker that has started again is to be gone in between (`forget`)."""
        for broker_id in self._channels.keys() - brokers.keys():
            self.forget(broker_id)
        for broker_id, broker in brokers.items():
            address = broker.endpoints.get(self._listener)
            if broker_id in self._channels:
                self._channels[broker_id].move_to(address)
            elif broker_id != self._own_id:
                self._open(broker_id, address)

    def forget(self, broker_id: int) -> None:
        """Close the channel to a broker that has ended, if there is one."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def close(self) -> None:
        """Send nothing more: this broker is no longer the controller."""
        self.set_brokers({})

    def send(self, broker_id: int, decisions: Sequence[Decision]) -> None:
        """Send decisions after those before them, without a wait; to a broker without a channel none."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send(decisions)

    def _open(self, broker_id: int, address: tuple[str, int] | None) -> None:
        shown = Shown(self._protocol_version)
        channel = Channel(broker_id, address, self._connect, self._listener, self._on_answer, shown)
        self._channels[broker_id] = channel
        if self._nursery is not None:
            self._nursery.start_soon(channel.run)


class Channel:
    """The queue to one broker."""

    def __init__(
        self,
        broker_id: int,
        address: tuple[str, int] | None,
        connect: Connect,
        listener: str,
        on_answer: OnAnswer,
        shown: Shown,
    ) -> None:
        self._broker_id = broker_id
        self._address = address
        self._connect = connect
        self._listener = listener
        self._on_answer = on_answer
        self._shown = shown
        self._broker: OtherBroker | None = None
        self._queue, self._decisions = trio.open_memory_channel[Decision](math.inf)
        self._scope = trio.CancelScope()

    def send(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            self._queue.send_nowait(decision)

    def move_to(self, address: tuple[str, int] | None) -> None:
        """Reach the broker at this address from now on; what it has not answered is sent there again."""
        if address != self._address:
            self._address = address
            self._disconnect()

    def close(self) -> None:
        self._scope.cancel()
        self._disconnect()  # what is in flight is not answered any more

    def _disconnect(self) -> None:
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    async def run(self) -> None:
        try:
            with self._scope:
                async for decision in self._decisions:
                    message = self._shown.message_of(decision, self._listener)
                    obeyed = obeyed_of(message.api_key, await self._answer(message))
                    if obeyed.error is ErrorCode.NONE:
                        self._shown.note_obeyed(decision)
                    self._on_answer(self._broker_id, decision, obeyed)
        finally:
            self._disconnect()

    async def _answer(self, message: Message) -> Any:
        """Send a message until it is answered."""
        has_failed = False
        while True:
            broker: OtherBroker | None = None
            try:
                broker = self._connected()
                return await broker.ask(*message)
            except ConnectionError as error:
                is_failure = broker is self._broker  # else this channel has closed the connection itself
                if is_failure and not has_failed:
                    logger.warning("broker %d has not got %s: %s", self._broker_id, message.api_key.name, error)
                has_failed = has_failed or is_failure
            await trio.sleep(RETRY_MS / 1000)

    def _connected(self) -> OtherBroker:
        if self._address is None:
            raise ConnectionError(f"it advertises no listener {self._listener}")
        if self._broker is None:
            self._broker = self._connect(*self._address)
        return self._broker
