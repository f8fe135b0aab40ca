"""The stages of the faults of tests; a broker without `--control` has none.

A request that no fault matches passes straight through. Faults strike a matching request in this order: delays, a
disconnect before it is served, errors and wrong CRCs in its answer, then delays and a disconnect after serving, a torn
frame, a slow answer. One background task does all of it; only the request's own connection waits for it, which keeps
the order of answers. A fault strikes requests that arrive after it was made; it does not wake a waiting fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from random import Random
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.config.profiles import Profile
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import unchanged
from minibroker.broker.replica.fetch_session import FetchSessionCache
from minibroker.broker.upkeep.background import Background
from minibroker.broker.way.codec import describe
from minibroker.broker.way.exchange import Body, Exchange
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.broker.way.way import Encoded
from minibroker.broker.wings.testing.faults.corruption import first_half, places_with_records, with_wrong_crc
from minibroker.broker.wings.testing.faults.error_faults import ErrorFaults, Finish
from minibroker.broker.wings.testing.faults.fault import Fault, Kind, RequestFacts, When
from minibroker.broker.wings.testing.faults.parsing import FaultParser
from minibroker.protocol.api import Api
from minibroker.protocol.errors import KafkaProtocolError

logger = logging.getLogger(__name__)

ACTIVE_FAULTS_MAX = 1000
ID_BITS = 48


class Strike:
    """The faults that match a request, and what its answer gets in the end."""

    __slots__ = ("faults", "finish")

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = faults
        self.finish: Finish = unchanged


class FaultInjector(Stage):
    """Stands behind the codec: requests wait, fail, or are served in part. `calls` has the control calls by name.

    `frames` is the stage before the codec: there answers wait, are torn, or leave slowly.
    """

    def __init__(
        self,
        apis: Mapping[int, Api],
        profile: Profile,
        fetch_sessions: FetchSessionCache,
        open_clients: Callable[[], Iterable[Client]],
        background: Background,
        *,
        kept_max: int,
    ) -> None:
        self._background = background
        self._open_clients = open_clients
        self._parser = FaultParser(apis, profile)
        self._error_faults = ErrorFaults(fetch_sessions)
        self._ids = count(Random().getrandbits(ID_BITS))  # other ids than those of an earlier process
        self._kept_max = kept_max
        self._faults: dict[int, Fault] = {}  # the newest ever made: tests may ask for their counts
        self._active: list[Fault] = []
        self.frames = FaultyFrames(background)
        self.calls: dict[str, Callable[..., object]] = {
            "faults.add": self.add,
            "faults.lift": self.lift,
            "faults.lift_all": self.lift_all,
            "faults.active": self.active,
            "faults.describe": self.describe,
            "faults.connections": self.connections,
        }

    # -- requests ---------------------------------------------------------------------------------------------

    def enter(self, exchange: Exchange) -> Any:
        if not self._active:
            return GO_ON
        faults = self._matching(exchange)
        if not faults:
            return GO_ON
        exchange.strike = Strike(faults)
        return self._background.promise(partial(self._strike, exchange))

    def _matching(self, exchange: Exchange) -> list[Fault]:
        self._active = [fault for fault in self._active if fault.is_active]
        request, client = exchange.request, exchange.client
        assert request is not None
        places = self._error_faults.places(request)
        facts = RequestFacts(request.api_key, client.number, client.address, request.client_id, places)
        return [fault for fault in self._active if fault.match.fits(facts)]

    async def _strike(self, exchange: Exchange) -> Any:
        faults = exchange.strike.faults
        await hold(faults, When.BEFORE)
        disconnect(faults, When.BEFORE)
        with injecting(exchange):
            answer, exchange.strike.finish = self._error_faults.strike(exchange, of_kind(faults, Kind.ERROR))
            return answer if answer is GO_ON else self.leave(exchange, answer)

    def leave(self, exchange: Exchange, answer: Body) -> Body:
        strike = exchange.strike
        if strike is None:
            return answer
        with injecting(exchange):
            return with_wrong_crcs(strike.finish(answer), of_kind(strike.faults, Kind.WRONG_CRC))

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
        """Keep only the newest faults, and the active ones."""
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


class FaultyFrames(Stage):
    """Stands before the codec."""

    def __init__(self, background: Background) -> None:
        self._background = background

    def leave(self, exchange: Exchange, answer: Encoded) -> Any:
        strike = exchange.strike
        return answer if strike is None else self._background.promise(partial(strike_response, answer, strike.faults))


async def strike_response(answer: Encoded, faults: Sequence[Fault]) -> Encoded:
    await hold(faults, When.AFTER)
    disconnect(faults, When.AFTER)
    return None if answer is None else sent(answer, faults)


@contextmanager
def injecting(exchange: Exchange) -> Iterator[None]:
    """Raises CloseConnectionError for what fails otherwise."""
    try:
        yield
    except (KafkaProtocolError, CloseConnectionError):
        raise
    except Exception as error:
        logger.error("%s: cannot inject a fault of a test", describe(exchange), exc_info=error)
        raise CloseConnectionError("cannot inject a fault of a test") from error


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
