"""Holds a script with a broker that is not a process."""

from __future__ import annotations

from collections.abc import Callable

import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import CLOSED, RESTARTED, SILENT, WAITS, Transcript
from minibroker.conformance.steps import Script, Step
from minibroker.protocol.errors import KafkaProtocolError
from tests.broker.conftest import InMemoryBroker


class Parked:
    """A request that was sent and may wait."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.outcome: bytes | str = WAITS
        self.is_answered = trio.Event()
        self.scope = trio.CancelScope()


class InMemoryPeer:
    """A broker; a step whose connection is named after an address comes from there."""

    def __init__(
        self, broker: InMemoryBroker, nursery: trio.Nursery, restarted: Callable[[], InMemoryBroker] | None = None
    ) -> None:
        self._broker = broker
        self._restarted = restarted
        self._nursery = nursery
        self._parked: dict[str, Parked] = {}
        self._clients: dict[str, Client] = {}
        self._accepted = 0

    async def hold(self, script: Script, prefix: str) -> list[Plain]:
        transcript = Transcript(prefix, self._broker.clock.wall_now_ms)
        for step in script:
            await self._move(step, transcript)
        for name in list(self._clients):
            self._hang_up(name)
        return transcript.answers

    def _hang_up(self, name: str) -> None:
        client = self._clients.pop(name, None)
        if client is not None:
            for closed in self._broker.parts.probes.closed:
                closed(client, "")

    async def _move(self, step: Step, transcript: Transcript) -> None:
        name = step.connection
        source = name if name.startswith("127.") else "127.0.0.1"
        if name not in self._clients:
            self._accepted += 1
            self._clients[name] = Client(f"{source}:50000", "127.0.0.1", 9092, self._accepted)
        self._broker.client = self._clients[name]
        if step.kind == "call":
            outcome = await self._ask(transcript.frame(step))
            while transcript.wants_again(step, outcome):
                outcome = await self._ask(transcript.frame(step))
            transcript.add(step, outcome)
        elif step.kind == "restart":
            assert self._restarted is not None, "this broker cannot be restarted"
            self._clients.clear()
            self._broker.close()
            self._broker = self._restarted()
            transcript.add(step, RESTARTED)
        elif step.kind == "drop":
            if name in self._parked:
                self._parked.pop(name).scope.cancel()
            self._hang_up(name)
        else:
            if step.kind == "park":
                self._parked[name] = Parked(step)
                self._nursery.start_soon(self._wait, self._parked[name], transcript.frame(step))
            parked = self._parked.get(name)
            if parked is None:
                transcript.add(step, "nothing asked")
                return
            if step.kind == "take":
                await parked.is_answered.wait()
            await wait_all_tasks_blocked()
            transcript.add(parked.step, parked.outcome)
            if parked.is_answered.is_set():
                del self._parked[name]

    async def _wait(self, parked: Parked, frame: bytes) -> None:
        with parked.scope:
            parked.outcome = await self._ask(frame)
            parked.is_answered.set()

    async def _ask(self, frame: bytes) -> bytes | str:
        try:
            answer = await self._broker.answer(frame[4:])
        except (KafkaProtocolError, CloseConnectionError):
            return CLOSED
        return SILENT if answer is None else answer
