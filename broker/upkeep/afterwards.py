"""Actions that a request sets off and its answer does not wait for, such as the markers of a decided transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

Action = Callable[[], None]


class Afterwards:
    """Calls actions after the poller has sent the answers of a pass, before it reads the next connections.

    A client that has its answer finds the actions done, and so does a client that it notifies. Outside a pass, `call`
    calls the action at once.
    """

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._is_in_pass = False

    def call(self, action: Action) -> None:
        """Call `action`, which must not wait, at the end of the pass, or at once."""
        if self._is_in_pass:
            self._actions.append(action)
        else:
            action()

    def begin_pass(self) -> None:
        self._is_in_pass = True

    def end_pass(self) -> None:
        """Call the actions. Never raises: the exception of an action is logged, others are called."""
        self._is_in_pass = False
        if not self._actions:
            return
        actions, self._actions = self._actions, []
        for action in actions:
            try:
                action()
            except Exception:  # the request was answered, and the poller must go on
                logger.exception("what follows a request failed: a defect of minibroker")
