"""This broker as a member of a cluster in ZooKeeper: its life is a session.

A broker that finds its id taken waits for that session to end, and one whose session has expired begins another: it
registers again, and takes part in the election again. A broker that has started registers anew if its controller gives
it no roles: one of Apache Kafka 2.0.1 compares ids, and does not see that a broker was gone for some milliseconds. It
controls no more from the moment when its session may have ended, which is before ZooKeeper elects another. Without a
connection it serves on, as Kafka does; what needs the state fails meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import trio

from minibroker.broker.cluster.member import Member
from minibroker.broker.cluster.state import NO_CONTROLLER, News
from minibroker.broker.network import sockets
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.wings.zookeeper_nodes.zookeeper_state import ZooKeeperState
from minibroker.protocol.errors import KafkaError
from minibroker.protocol.text import reason_of
from minibroker.zookeeper.messages import ZooKeeperError
from minibroker.zookeeper.session import ConnectionLost, SessionExpired

logger = logging.getLogger(__name__)

PINGS: Final = 3  # in a session's timeout
RETRY_SECONDS: Final = 0.1
HIDDEN_SECONDS: Final = 0.5  # in which a controller that is not busy sees that a broker is gone
NOTICED_SECONDS: Final = 2.0  # in which it sees a broker, and gives it its roles
ISR_CHECK_SECONDS: Final = 2.5


class ZooKeeperMember(Member[ZooKeeperState]):
    """`on_connected` is called once what was missed has been read. `has_roles` is whether a controller has given this
    broker its roles, since it started."""

    def __init__(
        self,
        state: ZooKeeperState,
        *,
        broker_id: int,
        broker: Callable[[], Broker],
        on_news: Callable[[News], None],
        on_connected: Callable[[], None],
        has_roles: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(state, broker_id=broker_id, broker=broker, on_news=on_news)
        self._client = state.client
        self._on_connected = on_connected
        self._has_roles = has_roles
        self._is_hidden = False
        self._registrations = 0
        self._must_rejoin = False
        self._is_waiting_for_id = False
        self._woken = trio.Event()
        self._client.listen(self._wake)

    def _wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Live until cancelled; connect again whenever the connection is lost."""
        while True:
            if not self._client.is_connected:
                await self._connect()
            async with trio.open_nursery() as connection:
                connection.start_soon(self._receive, connection.cancel_scope)
                connection.start_soon(self._ping)
                connection.start_soon(self._show_changed_isrs)
                connection.start_soon(self._act)
                connection.start_soon(self._be_noticed)

    @property
    def _is_alone(self) -> bool:
        return not self._client.is_connected or super()._is_alone

    # -- news -------------------------------------------------------------------------------------------------

    async def _act(self) -> None:
        """Act on what the watches show, until the connection is lost."""
        self._woken.set()
        self._on_connected()
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            try:
                self.look()
            except KafkaError as error:
                logger.warning("%s", error)
                await trio.sleep(RETRY_SECONDS)
                self._woken.set()

    def look(self) -> None:
        """Look, and again if another broker was the controller, and has gone meanwhile. Raises KafkaError."""
        super().look()
        state = self._state
        may_control = state.is_registered and not (self._is_leaving or self._stands_back)
        if may_control and state.controller_id == NO_CONTROLLER:
            self._woken.set()

    def rejoin(self) -> None:
        """Have the controller give this broker its roles again, as after a start."""
        self._must_rejoin = True

    async def _be_noticed(self) -> None:
        """Register anew, and wait for longer each time, until the controller has given this broker its roles."""
        wait_seconds = NOTICED_SECONDS
        while True:
            life = self._registrations
            await trio.sleep(wait_seconds)
            if self._has_roles() and not self._must_rejoin:
                wait_seconds = NOTICED_SECONDS
                continue
            is_unnoticed = self._state.controller_id not in (NO_CONTROLLER, self._broker_id) or self._must_rejoin
            if self._is_leaving or not (is_unnoticed and self._state.is_registered and self._registrations == life):
                continue
            if not self._must_rejoin:
                logger.warning(
                    "the controller, broker %d, has not noticed that this broker has started; it registers anew",
                    self._state.controller_id,
                )
            try:
                self._is_hidden = True
                self._state.unregister()
                self._must_rejoin = False
                await trio.sleep(HIDDEN_SECONDS)
            except KafkaError as error:
                logger.warning("%s", error)
            finally:
                self._is_hidden = False
                self._wake()
            wait_seconds *= 2

    def join(self) -> None:
        """Show this broker to the cluster, unless it has to be away for a moment. Raises KafkaError."""
        if self._is_hidden:
            return
        is_registered = self._state.register(self._broker())
        self._registrations += is_registered
        if not (is_registered or self._is_waiting_for_id):
            logger.warning(
                "broker %d is registered in ZooKeeper by another session; this broker joins once that has ended",
                self._broker_id,
            )
        self._is_waiting_for_id = not is_registered

    # -- the connection ---------------------------------------------------------------------------------------

    async def _receive(self, connection: trio.CancelScope) -> None:
        """Read events and answers to pings as they come; end the connection's tasks once it is lost."""
        try:
            with self._client.another_end() as sock:
                while self._client.is_connected:
                    await sockets.wait_readable(sock)
                    self._client.receive()
        except ConnectionLost as error:
            logger.warning("the connection to ZooKeeper is lost: %s", error)
        connection.cancel()

    async def _ping(self) -> None:
        timeout_seconds = self._client.session_timeout_ms / 1000
        while True:
            if self._client.silent_seconds > timeout_seconds * (PINGS - 1) / PINGS:
                self._client.disconnect()
            with suppress(ConnectionLost):  # `_receive` ends these tasks
                self._client.ping()
            await trio.sleep(timeout_seconds / PINGS)

    async def _show_changed_isrs(self) -> None:
        while True:
            await trio.sleep(ISR_CHECK_SECONDS)
            try:
                self._state.show_changed_isrs()
            except (ConnectionLost, ZooKeeperError) as error:
                logger.warning("the controller does not hear of in-sync replicas: %s", error)

    async def _connect(self) -> None:
        """Connect until a server answers; then read what has changed meanwhile."""
        reason = ""
        while True:
            for host, port in self._state.ensemble.servers:
                try:
                    with trio.fail_after(self._client.answer_timeout_ms / 1000):
                        await self._connect_to(host, port)
                    self._state.reload()
                except SessionExpired:
                    logger.warning("the session with ZooKeeper has expired; this broker joins again")
                    self._state.on_expired()
                    self._tell()
                except (OSError, ConnectionLost, ZooKeeperError, trio.TooSlowError, ValueError) as error:
                    if reason_of(error) != reason:
                        reason = reason_of(error)
                        logger.warning("no connection to ZooKeeper at %s:%d: %s", host, port, reason)
                    self._client.disconnect()
                else:
                    logger.info("connected to ZooKeeper at %s:%d", host, port)
                    return
                if self._state.may_have_expired:
                    self._state.on_expired()
                    self._tell()
            await trio.sleep(RETRY_SECONDS)

    async def _connect_to(self, host: str, port: int) -> None:
        sock = await sockets.open_socket(host, port)
        self._client.greet(sock)
        await sockets.wait_readable(sock)
        self._client.accept()
