"""Injects faults of tests between the connections and the registry; a broker without `--control` has no injector.

A request that no fault matches passes straight through. Faults strike a matching request in this order: delays, a
disconnect before it is served, errors and wrong CRCs in its answer, then delays and a disconnect after serving, a torn
frame, a slow answer. One background task does all of it; only the request's own connection waits for it, which keeps
the order of answers. A fault strikes requests that arrive after it was made; it does not wake a waiting fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.apis.registry import ApiRegistry, describe
from minibroker.broker.faults.corruption import first_half, places_with_records, with_wrong_crc
from minibroker.broker.faults.error_faults import ErrorFaults
from minibroker.broker.faults.fault import Fault, Kind, RequestFacts, When
from minibroker.broker.faults.parsing import FaultParser
from minibroker.broker.network.connection import Encoded
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from minibroker.broker.replica.fetch_session import FetchSessionCache
from minibroker.broker.upkeep.background import Background
from minibroker.protocol.api import Request, decode_request
from minibroker.protocol.errors import KafkaProtocolError

logger = logging.getLogger(__name__)

ACTIVE_FAULTS_MAX = 1000
ID_BITS = 48


class FaultInjector:
    """Wraps `registry.dispatch`. `calls` has the control calls by name."""

    def __init__(
        self,
        registry: ApiRegistry,
        fetch_sessions: FetchSessionCache,
        open_clients: Callable[[], Iterable[Client]],
        background: Background,
        *,
        kept_max: int,
    ) -> None:
        self._registry = registry
        self._background = background
        self._open_clients = open_clients
        self._parser = FaultParser(registry.apis, registry.profile)
        self._error_faults = ErrorFaults(registry, fetch_sessions)
        self._ids = count(Random().getrandbits(ID_BITS))  # other ids than those of an earlier process
        self._kept_max = kept_max
        self._faults: dict[int, Fault] = {}  # the newest ever made: tests may ask for their counts
        self._active: list[Fault] = []
        # Gets each struck request with its answer, which may be none of the registry's.
        self.witness: Callable[[Request, Client, Any], None] | None = None
        self.calls: dict[str, Callable[..., object]] = {
            "faults.add": self.add,
            "faults.lift": self.lift,
            "faults.lift_all": self.lift_all,
            "faults.active": self.active,
            "faults.describe": self.describe,
            "faults.connections": self.connections,
        }

    # -- requests ---------------------------------------------------------------------------------------------

    def dispatch(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Dispatch to the registry, with the faults that match the request. Raises as the registry's."""
        if not self._active:
            return self._registry.dispatch(frame, client)
        request = decode_request(frame, self._registry.apis)
        faults = self._matching(request, client)
        if not faults:
            return self._registry.dispatch(frame, client)
        client.client_id = request.client_id
        return self._background.promise(partial(self._answer, request, client, faults))

    def _matching(self, request: Request, client: Client) -> list[Fault]:
        self._active = [fault for fault in self._active if fault.is_active]
        places = self._error_faults.places(request)
        facts = RequestFacts(request.api_key, client.number, client.address, request.client_id, places)
        return [fault for fault in self._active if fault.match.fits(facts)]

    async def _answer(self, request: Request, client: Client, faults: Sequence[Fault]) -> Encoded:
        try:
            return await self._struck(request, client, faults)
        except (KafkaProtocolError, CloseConnectionError):
            raise
        except Exception as error:
            logger.error("%s: cannot inject a fault of a test", describe(request, client), exc_info=error)
            raise CloseConnectionError("cannot inject a fault of a test") from error

    async def _struck(self, request: Request, client: Client, faults: Sequence[Fault]) -> Encoded:
        await hold(faults, When.BEFORE)
        disconnect(faults, When.BEFORE)
        body = await self._error_faults.answer(request, client, of_kind(faults, Kind.ERROR))
        if self.witness is not None:
            self.witness(request, client, body)
        encoded = self._registry.encoded(request, client, with_wrong_crcs(body, of_kind(faults, Kind.WRONG_CRC)))
        await hold(faults, When.AFTER)
        disconnect(faults, When.AFTER)
        return None if encoded is None else sent(encoded, faults)

    # -- control calls ----------------------------------------------------------------------------------------

    def add(self, kind: str, **arguments: Any) -> int:
        """Make a fault, which strikes from now on; return its id. Raises ValueError."""
        self._active = [fault for fault in self._active if fault.is_active]
        most = min(ACTIVE_FAULTS_MAX, self._kept_max)
        if len(self._active) >= most:
            raise ValueError(f"{most} faults are active; lift some")
        fault = self._parser.fault(next(self._ids), kind, arguments)
        self._faults[fault.id] = fault
        self._active.append(fault)
        self._forget_oldest()
        return fault.id

    def _forget_oldest(self) -> None:
        """Keep only the newest faults, and those that can still strike."""
        if len(self._faults) > self._kept_max:
            oldest = next(each for each in self._faults.values() if not each.is_active)
            del self._faults[oldest.id]

    def lift(self, fault_id: int) -> None:
        """Lift a fault; requests it holds back go on at once. Ignores ids of an earlier process."""
        fault = self._faults.get(fault_id)
        if fault is not None:
            fault.lifted.set()
        self._active = [fault for fault in self._active if fault.is_active]

    def lift_all(self) -> None:
        for fault in self._faults.values():
            fault.lifted.set()
        self._active.clear()

    def active(self) -> list[int]:
        """Return the ids of faults that can strike, oldest first."""
        return [fault.id for fault in self._active if fault.is_active]

    def describe(self, fault_id: int) -> dict[str, object]:
        """Return a fault's count, state and text. Raises ValueError."""
        fault = self._fault(fault_id)
        return {"count": fault.count, "is_active": fault.is_active, "text": str(fault)}

    def connections(self) -> list[tuple[int, str, str | None]]:
        """Return the open connections: number, client's host:port, client id of its latest request."""
        return sorted((each.number, each.address, each.client_id) for each in self._open_clients())

    def _fault(self, fault_id: int) -> Fault:
        if fault_id not in self._faults:
            raise ValueError(
                f"unknown fault {fault_id!r}: faults end with the broker's process, and the newest"
                f" {self._kept_max} are remembered"
            )
        return self._faults[fault_id]


def of_kind(faults: Sequence[Fault], kind: Kind) -> list[Fault]:
    return [fault for fault in faults if fault.kind is kind]


async def hold(faults: Sequence[Fault], when: When) -> None:
    for fault in of_kind(faults, Kind.DELAY):
        if fault.when is when and fault.strikes():
            await fault.hold()


def disconnect(faults: Sequence[Fault], when: When) -> None:
    """Raises CloseConnectionError if a disconnect strikes."""
    for fault in of_kind(faults, Kind.DISCONNECT):
        if fault.when is when and fault.strikes():
            raise CloseConnectionError(f"a fault of a test: disconnect {when} serving")


def with_wrong_crcs(body: Any, faults: Sequence[Fault]) -> Any:
    """Return the answer with wrong CRCs; a fault does not strike an answer without records."""
    for fault in faults:
        places = [place for place in places_with_records(body) if fault.match.covers(place)]
        if places and fault.strikes():
            body = with_wrong_crc(body, places)
    return body


def sent(encoded: list[Any], faults: Sequence[Fault]) -> Encoded:
    """Return the answer, throttled if `slow` strikes. Raises CloseConnectionError with half of it for a torn frame."""
    for fault in of_kind(faults, Kind.TORN_FRAME):
        if fault.strikes():
            raise CloseConnectionError("a fault of a test: torn frame", first_half(encoded))
    for fault in of_kind(faults, Kind.SLOW):
        if fault.strikes():
            return ThrottledResponse(encoded, fault.bytes_per_second, fault.lifted)
    return encoded
