"""A stage of the way of a request: sees it on its way in, and its answer on the way out."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from minibroker.broker.way.exchange import Exchange

Answer = Any  # before the codec the chunks of a response, None for none; behind it the body of an answer, None for none


class GoOn(Enum):
    """The type of GO_ON."""

    GO_ON = 0


GO_ON: Final = GoOn.GO_ON


class Stage:
    """Overrides `enter`, `leave` or both, which raise what closes the connection: KafkaProtocolError and
    CloseConnectionError. A stage that has nothing to do for some time is idle, and overrides `when_changed`."""

    @property
    def is_idle(self) -> bool:
        """Whether requests pass it by."""
        return False

    def when_changed(self, call: Callable[[], None]) -> None:
        """Call `call` when `is_idle` has changed."""

    def enter(self, exchange: Exchange) -> Any:
        """Return GO_ON, or the answer in place of the stages behind; or a Pending of one of them."""
        return GO_ON

    def waits(self, exchange: Exchange) -> None:
        """Note that the stages behind have no answer yet: a Pending follows."""

    def leave(self, exchange: Exchange, answer: Answer) -> Any:
        """Return the answer of the stages behind, changed or not; or a Pending of it."""
        return answer
