"""A stage of the way of a request: sees it on its way in, and its answer on the way out."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from minibroker.broker.way.exchange import Exchange

Answer = Any  # before the codec the chunks of a response, None for none; behind it the body of an answer, None for none


class GoOn(Enum):
    """The one value of GO_ON."""

    GO_ON = 0


GO_ON: Final = GoOn.GO_ON


class Stage:
    """Overrides `enter`, `leave` or both.

    Both raise KafkaProtocolError and CloseConnectionError, which close the connection.
    """

    def enter(self, exchange: Exchange) -> Any:
        """Return GO_ON, or the answer in place of the stages behind; or a Pending of one of them."""
        return GO_ON

    def leave(self, exchange: Exchange, answer: Answer) -> Any:
        """Return the answer of the stages behind, changed or not; or a Pending of it."""
        return answer
