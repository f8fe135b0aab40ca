"""The connections of kafka-python, which go around a broker that does not answer, and give it up within seconds.

kafka-python asks one broker, and waits for half a minute. Here a question that any broker can answer goes to another
one too, half a second later. A question that one broker must answer fails once that broker proves to be silent: a
process that stands still accepts connections and sends nothing. A broker that is only slow, or has much to do, answers
on another connection, and gets its time: a slow one until the deadline of the command or the page that asks.
"""

from __future__ import annotations

import copy
import math
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kafka import errors
from kafka.admin import KafkaAdminClient
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.api_key import ApiKey

from minibroker import patience

SILENCE_MS = 3_000  # until a broker that sends nothing on a new connection is taken to be silent
PROOF_AFTER_MS = 1_000  # without an answer, until the broker is tried on another connection
SLOW_MS = 1_000  # for the first answer on a connection, from which on a broker is taken to be slow
OTHER_AFTER_MS = 500  # without an answer, until another broker is asked too
SILENT_SECONDS = 5.0  # that a silent broker is not asked again
CONTROLLER_MS = 3_000  # until there is one
ASKS = re.compile("Describe|List|Find|Fetch|Metadata|ApiVersions")  # names of APIs that change nothing
UNREACHED = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.RequestTimedOutError,
    errors.NodeNotReadyError,
    errors.Cancelled,
    OSError,
)


class NoAnswer(errors.KafkaError):  # type: ignore[misc]
    """A broker of the cluster does not answer; a silent one has accepted a connection."""

    def __init__(self, broker: str, reason: str = "", *, is_silent: bool) -> None:
        super().__init__(f"{broker} does not answer" + (f" ({reason})" if reason else ""))
        self.is_silent = is_silent

    def __str__(self) -> str:
        return str(self.args[0])


class TooSlow(NoAnswer):
    """The deadline is over, and this broker has not answered, though it lives."""

    def __init__(self, node: Any) -> None:
        broker = f"broker {node}" if isinstance(node, int) else "the broker"
        super().__init__(broker, is_silent=True)
        self.args = (f"{broker} has not answered in time",)


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """The connections of one client, which one command or page uses at a time."""

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._silent_until: dict[Any, float] = {}
        self._slow: set[Any] = set()
        self._until = math.inf

    def run(self, coro: Any, *args: Any) -> Any:
        """As kafka-python, for the thread that asks; its deadline is that of the questions."""
        self._until = patience.until()
        return super().run(coro, *args)

    def send(self, request: Any, node_id: Any = None, request_timeout_ms: int | None = None) -> Any:
        """The future answer of that broker, or of any. It may fail with NoAnswer."""
        if self.cluster.is_bootstrap(node_id):
            return super().send(request, node_id, request_timeout_ms)
        if node_id is None:
            return self.call_soon(self._of_any, request, request_timeout_ms)
        return self.call_soon(self._of, node_id, request, request_timeout_ms)

    async def _of_any(self, request: Any, timeout_ms: int | None) -> Any:
        nodes = self._likeliest_first()
        if asks(request):
            return await self._first(partial(self.send, copy.copy(request), node, timeout_ms) for node in nodes)
        connection = await self._first(partial(self.call_soon, self._ready, node) for node in nodes)
        return await connection.send_request(request, request_timeout_ms=timeout_ms)

    def _likeliest_first(self) -> list[Any]:
        """The brokers in the order to ask them: connected ones, the one that named the others, the silent ones last."""
        brokers = {each.node_id: (each.host, each.port) for each in self.cluster.brokers()}
        named = {(each.host, each.port) for each in self.cluster.bootstrap_brokers()}

        def rank(node: Any) -> tuple[bool, bool, bool]:
            connection = self._conns.get(node)
            is_connected = connection is not None and connection.connected and not connection.paused
            return self._is_silent(node), not is_connected, brokers[node] not in named

        return sorted(brokers, key=rank) or [each.node_id for each in self.cluster.bootstrap_brokers()]

    async def _first(self, starts: Iterator[Callable[[], Any]]) -> Any:
        """The first answer. A question begins as the one before it has failed, or has not been answered for a while."""
        winner, begun = Future(), 0
        failures: list[Exception] = []
        for start in starts:
            question, settled = start(), Future()
            begun += 1
            question.add_callback(lambda value: winner.is_done or winner.success(value))
            question.add_errback(failures.append)
            question.add_both(lambda _, settled=settled: settled.success(None))
            winner.add_callback(lambda _, settled=settled: settled.is_done or settled.success(None))
            try:
                await self.wait_for(settled, OTHER_AFTER_MS)
            except errors.KafkaTimeoutError:
                continue
            if winner.is_done:
                break
            if not isinstance(failures[-1], NoAnswer):
                raise failures[-1]
        while not winner.is_done:
            if len(failures) == begun:
                raise failures[0] if failures else errors.NodeNotReadyError("no broker")
            await self._net.sleep(0.01)
        return winner.value

    async def _of(self, node: Any, request: Any, timeout_ms: int | None) -> Any:
        """The answer of that broker; a question is asked once more if its connection ends."""
        try:
            return await self._answered(node, request, timeout_ms)
        except NoAnswer as error:
            if error.is_silent or not asks(request):
                raise
        return await self._answered(node, copy.copy(request), timeout_ms)

    async def _answered(self, node: Any, request: Any, timeout_ms: int | None) -> Any:
        """The answer of that broker. A request that changes something waits for it, whatever the deadline is."""
        if asks(request) and node in self._slow and time.monotonic() > self._until:
            raise TooSlow(node)
        connection = await self._ready(node)
        answer = connection.send_request(request, request_timeout_ms=timeout_ms)
        try:
            if not asks(request):
                return await answer
            if node not in self._slow:
                try:
                    return await self.wait_for(answer, PROOF_AFTER_MS + getattr(request, "max_wait_ms", 0))
                except errors.KafkaTimeoutError:
                    await self._prove(node, answer)
            return await (self._of_slow(node, answer) if node in self._slow else answer)
        except UNREACHED as error:
            raise self._no_answer(node, error) from error

    async def _of_slow(self, node: Any, answer: Any) -> Any:
        """The answer of a slow broker, if it comes before the deadline. Raises TooSlow."""
        begun = time.monotonic()
        left_ms = None if self._until == math.inf else max(0.0, self._until - begun) * 1000
        try:
            found = await self.wait_for(answer, left_ms)
        except errors.KafkaTimeoutError:
            raise TooSlow(node) from None
        if time.monotonic() - begun < SLOW_MS / 1000:
            self._slow.discard(node)
        return found

    async def _ready(self, node: Any) -> Any:
        """The connection to that broker, which has answered on it."""
        if isinstance(node, int) and node < 0:
            raise errors.LeaderNotAvailableError
        if self._is_silent(node):
            raise self._no_answer(node, errors.KafkaTimeoutError())
        try:
            connection = self.get_connection(node)
            await self._heard(node, connection.init_future)
        except UNREACHED as error:
            raise self._no_answer(node, error) from error
        return connection

    async def _prove(self, node: Any, answer: Any) -> None:
        """Wait until the broker answers on a new connection, or `answer` is there. Raises what `_heard` raises."""
        broker = self.cluster.broker_metadata(node)
        connection = KafkaConnection(
            self._net, node_id=node, broker_version_data=self.broker_version_data, **self.config
        )
        timeout_at = time.monotonic() + SILENCE_MS / 1000
        self._net.call_soon(lambda: self._connect(broker, connection, timeout_at=timeout_at))
        proof = Future()
        for each in (connection.init_future, answer):
            each.add_both(lambda _: proof.is_done or proof.success(None))
        try:
            await self._heard(node, proof)
        finally:
            connection.close()

    async def _heard(self, node: Any, sign: Any) -> None:
        """Wait for a sign of life, until the deadline or for a moment behind it; note that it took long.

        Raises TooSlow at the deadline, KafkaTimeoutError after SILENCE_MS, and what the sign raises.
        """
        begun = time.monotonic()
        wait_ms = min(SILENCE_MS, max(SLOW_MS, (self._until - begun) * 1000))
        try:
            await self.wait_for(sign, wait_ms)
        except errors.KafkaTimeoutError:
            if wait_ms < SILENCE_MS:
                raise TooSlow(node) from None
            raise
        if time.monotonic() - begun >= SLOW_MS / 1000:
            self._slow.add(node)

    def _is_silent(self, node: Any) -> bool:
        return time.monotonic() < self._silent_until.get(node, 0.0)

    def _no_answer(self, node: Any, error: Exception) -> NoAnswer:
        is_silent = isinstance(error, (errors.KafkaTimeoutError, errors.RequestTimedOutError))
        if is_silent and not self._is_silent(node):
            self._silent_until[node] = time.monotonic() + SILENT_SECONDS
            self.close(node)
        reason = "" if is_silent else " ".join(map(str, error.args))
        broker = self.cluster.broker_metadata(node)
        where = "" if broker is None else f" at {broker.host}:{broker.port}"
        return NoAnswer(f"broker {node}{where}", reason, is_silent=is_silent)


def asks(request: Any) -> bool:
    """Whether the request changes nothing, so that several brokers may get it."""
    return request.API_KEY in set(ApiKey) and ASKS.search(ApiKey(request.API_KEY).name) is not None


class Client(KafkaNetClient):  # type: ignore[misc]
    """The layer of kafka-python between a client and its connections."""

    def __init__(self, **configs: Any) -> None:
        net = NetworkSelector(**configs)
        super().__init__(net, Connections(net, **configs), **configs)


class AdminClient(KafkaAdminClient):  # type: ignore[misc]
    """kafka-python's client over these connections."""

    async def _refresh_controller_id(self, timeout_ms: int = CONTROLLER_MS) -> int | None:
        """None where any broker passes a request on to the controller: where the brokers have a quorum."""
        if ApiKey.DescribeQuorum in self._manager.broker_version_data.api_versions:
            return None
        controller: int = await super()._refresh_controller_id(timeout_ms)
        return controller
