"""What a request sets off and its answer does not wait for, such as the markers of a transaction that was decided."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

Action = Callable[[], None]


class Afterwards:
    """Calls actions after the answers of a pass over connections were sent, before the next requests are read.

    So a client that has its answer, and whoever it tells, finds the actions done. Outside a pass nobody would call
    them later: they are called at once.
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
            except Exception:
                logger.exception("what follows a request failed: a defect of minibroker")
