"""aiokafka without its event loop: what it makes has its methods, and a call of a coroutine returns when that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutine
from typing import Any


class Stepped:
    """A producer or consumer of aiokafka, started on a loop that runs only while it is asked for something."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make: Callable[..., Any], **settings: Any) -> None:
        self._loop = loop
        self._made = loop.run_until_complete(started(make, **settings))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._made, name)

        async def called(*arguments: Any, **named: Any) -> Any:
            """Also what is not a coroutine makes futures of the loop that runs."""
            result = method(*arguments, **named)
            return await result if iscoroutine(result) else result

        return lambda *arguments, **named: self._loop.run_until_complete(called(*arguments, **named))


async def started(make: Callable[..., Any], **settings: Any) -> Any:
    made = make(**settings)
    await made.start()
    return made


def new_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop
