"""One connection of a minibroker: its requests by API, the faults on it, and its transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.console.answers import Refused, get, in_path, in_query, number_of
from minibroker.console.console import Console
from minibroker.console.inside_watch import InsideWatch
from minibroker.console.transcripts import SHOWN, TranscriptIndex, lines_of, summary_of
from minibroker.transcript.file import TranscriptError

CONNECTION_MAX = 2**32 - 1
FAULTS_MAX = 50  # that are looked through


def routes(console: Console, watch: InsideWatch) -> list[BaseRoute]:
    transcripts = Transcripts(console)

    async def one(request: Request) -> Any:
        """`connection` is None for one that has ended; its requests are counted while a page looks."""
        number = connection_in(request)
        await watch.look()
        found = await console.call("inside.connections", after=number - 1, budget=1)
        row = next((each for each in found["connections"] if each["connection"] == number), None)
        active = (await console.call("faults.active"))[:FAULTS_MAX]
        faults = [await console.call("faults.describe", fault_id=each) for each in active]
        return {"connection": row, "faults": [each for each in faults if each.get("connection") == number]}

    return [
        get("/api/clients/{connection}", one),
        get("/api/clients/{connection}/transcript", transcripts.listed),
        get("/api/clients/{connection}/transcript/{at}", transcripts.one),
    ]


class Transcripts:
    """The handlers of transcripts: one index of the broker's file, for all pages."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._index: TranscriptIndex | None = None
        self._lock = trio.Lock()

    async def listed(self, request: Request) -> Any:
        """The newest exchanges of a connection; `read` and `size` are bytes, and differ until all is read."""
        number = connection_in(request)
        where = await self._console.call("inside.transcript")
        if where["path"] is None:
            return {"path": None, "is_recording": False, "read": 0, "size": 0, "rows": []}

        def listing(index: TranscriptIndex) -> Any:
            index.read_on()
            rows = [summary_of(place, index.exchange(place)) for place in reversed(index.of(number)[-SHOWN:])]
            return {"read": index.position, "size": index.size_bytes, "rows": rows}

        return {"path": where["path"], "is_recording": where["is_recording"]} | await self._with(where, listing)

    async def one(self, request: Request) -> Any:
        """The exchange whose request is at that place, as `minibroker transcript` prints it."""
        number, at = connection_in(request), number_of(in_path(request, "at"), "at")
        is_full = in_query(request, "full") == "1"

        def printed(index: TranscriptIndex) -> Any:
            index.read_on()
            place = next((each for each in index.of(number) if each.request == at), None)
            if place is None:
                raise Refused(404, f"connection {number} has no exchange there now; choose one from the list")
            return lines_of(index.exchange(place), index.begin_ns or 0, is_full=is_full)

        return await self._with(await self._console.call("inside.transcript"), printed)

    async def _with(self, where: dict[str, Any], work: Any) -> Any:
        """Run `work` on the index of that file. Raises Refused."""

        def run() -> Any:
            if where["path"] is None:
                raise Refused(409, "the broker records no transcript; start it with --transcript FILE")
            index = self._index
            if index is None or str(index.path) != where["path"]:
                if index is not None:
                    index.close()
                index = self._index = TranscriptIndex(Path(where["path"]))
            return work(index)

        async with self._lock:
            try:
                return await self._console.kafka.in_thread(run)
            except OSError as error:
                raise Refused(
                    502,
                    f"the console cannot read {where['path']} ({error.strerror}); start it as the broker's own user, "
                    "on the same machine",
                ) from error
            except TranscriptError as error:
                raise Refused(502, f"{error}; record a new transcript") from error


def connection_in(request: Request) -> int:
    """Raises Refused."""
    number = number_of(in_path(request, "connection"), "connection", most=CONNECTION_MAX)
    if number == 0:
        raise Refused(400, "connections are numbered from 1; correct it")
    return number
