"""A broker around a test: a decorator and a context manager in one, as moto's users know them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, overload

from minibroker.process import Broker

ARGUMENT = "broker"
TEST_PREFIX = "test"

C = TypeVar("C")
R = TypeVar("R")


class RunningBroker:
    """The value of `running_broker(...)`: each use of it is a new broker, which ends with the block or the call."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._running: list[Broker] = []  # in nested blocks

    def __enter__(self) -> Broker:
        broker = Broker(**self._arguments)
        try:
            broker.start()
        except BaseException:
            broker.close()
            raise
        self._running.append(broker)
        return broker

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._running.pop().close()

    @overload
    def __call__(self, decorated: type[C]) -> type[C]: ...
    @overload
    def __call__(self, decorated: Callable[..., R]) -> Callable[..., R]: ...
    def __call__(self, decorated: Any) -> Any:
        """Decorate a function, a coroutine function, or the test methods of a class. Raises TypeError."""
        return self._class(decorated) if inspect.isclass(decorated) else self._function(decorated)

    def _class(self, decorated: type) -> type:
        tests = [
            name
            for name, member in vars(decorated).items()
            if name.startswith(TEST_PREFIX) and inspect.isfunction(member) and takes_broker(member)
        ]
        if not tests:
            raise TypeError(f"no method of {decorated.__name__} is a test with the argument `{ARGUMENT}`")
        for name in tests:
            setattr(decorated, name, self._function(getattr(decorated, name)))
        return decorated

    def _function(self, decorated: Callable[..., Any]) -> Callable[..., Any]:
        if not takes_broker(decorated):
            raise TypeError(f"{decorated.__name__} has no argument `{ARGUMENT}`, by which it gets the broker")
        if inspect.iscoroutinefunction(decorated):

            @functools.wraps(decorated)
            async def called(*args: Any, **kwargs: Any) -> Any:
                with self as broker:
                    return await decorated(*args, **kwargs, broker=broker)
        else:

            @functools.wraps(decorated)
            def called(*args: Any, **kwargs: Any) -> Any:
                with self as broker:
                    return decorated(*args, **kwargs, broker=broker)

        # Without the argument: pytest takes the others for fixtures.
        signature = inspect.signature(decorated)
        others = [each for name, each in signature.parameters.items() if name != ARGUMENT]
        called.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return called


def takes_broker(function: Callable[..., Any]) -> bool:
    return ARGUMENT in inspect.signature(function).parameters


@overload
def running_broker(decorated: type[C], /) -> type[C]: ...
@overload
def running_broker(decorated: Callable[..., R], /) -> Callable[..., R]: ...
@overload
def running_broker(**arguments: Any) -> RunningBroker: ...
def running_broker(decorated: Any = None, /, **arguments: Any) -> Any:
    """Start a broker for a test or a block, and close it at the end.

        @running_broker                                  # or @running_broker(settings={"num.partitions": 3})
        def test_orders(broker): ...

        with running_broker(act_as="1.1") as broker: ...

    Takes the arguments of `Broker`. The decorated function gets the broker by its argument `broker`; it may be a
    coroutine function, and of a class each test method with that argument is decorated. Each call has a new broker.
    """
    made = RunningBroker(arguments)
    return made if decorated is None else made(decorated)
