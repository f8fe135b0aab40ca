"""The way of a request: a list of stages. It enters them top down; its answer leaves them bottom up.

    frame -> [stage -> stage -> ... -> handlers]
    chunks <- [stage <- stage <- ... <- ]

A stage may answer in place of those behind it, change the answer of those behind it, or have the request wait. Which
stages a broker has, and in which order, is in one place: `app.way_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.pending import Pending
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probes
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.protocol.errors import KafkaProtocolError

Encoded = list[Any] | None
Leave = Callable[[Exchange, Any], Any]


class Course:
    """The stages that are at work now. A request that has entered one goes its course to the end."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._enter = tuple([each.enter for each in stages])
        # The way out of each stage that answers: the stages before it that change answers, the last of them first.
        self._out = tuple(
            [
                tuple([each.leave for each in reversed(stages[:place]) if type(each).leave is not Stage.leave])
                for place in range(len(stages))
            ]
        )
        # The stages before each one that note a wait.
        self._waits = tuple(
            [
                tuple([each.waits for each in stages[:place] if type(each).waits is not Stage.waits])
                for place in range(len(stages))
            ]
        )

    def lead(self, exchange: Exchange, place: int) -> Any:
        """Enter the stages from `place` on, up to one that answers, and return with its answer."""
        for enter in self._enter[place:]:
            answer = enter(exchange)
            if answer is not GO_ON:
                break
            place += 1
        if type(answer) is Pending:
            for waits in self._waits[place]:
                waits(exchange)
            return answer.then(partial(self._go_on, exchange, place))
        out = self._out[place]
        if len(out) == 1:  # as most often: the codec alone
            return out[0](exchange, answer)
        return self._leave(exchange, out, answer)

    def _go_on(self, exchange: Exchange, place: int, answer: Any) -> Any:
        """Go on after a wait in a stage: into the next one, or out with its answer."""
        if answer is GO_ON:
            return self.lead(exchange, place + 1)
        return self._leave(exchange, self._out[place], answer)

    def _leave(self, exchange: Exchange, out: Sequence[Leave], answer: Any) -> Any:
        for place, leave in enumerate(out):
            answer = leave(exchange, answer)
            if type(answer) is Pending:
                return answer.then(partial(self._leave, exchange, out[place + 1 :]))
        return answer


class Way:
    """Leads each request through `stages`, whose last one answers; `probes` look on.

    A stage that is idle is passed by: it costs nothing.
    """

    def __init__(self, stages: Sequence[Stage], probes: Probes) -> None:
        self._stages = stages
        self._probes = probes
        for each in stages:
            each.when_changed(self._find_course)
        self._find_course()

    def _find_course(self) -> None:
        self._course = Course([each for each in self._stages if not each.is_idle])

    def serve(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Return the response to a frame in chunks, None for none; a Pending of it if the request waits.

        Raises, or the Pending fails with, KafkaProtocolError and CloseConnectionError, which close the connection.
        """
        exchange = Exchange(frame, client)
        if self._probes.is_looking:
            return self._serve_observed(exchange)
        return self._course.lead(exchange, 0)  # type: ignore[no-any-return]

    def _serve_observed(self, exchange: Exchange) -> Encoded | Pending[Encoded]:
        probes = self._probes
        for began in probes.began:
            began(exchange)
        try:
            answer: Encoded | Pending[Encoded] = self._course.lead(exchange, 0)
        except (KafkaProtocolError, CloseConnectionError) as error:
            for refused in probes.refused:
                refused(exchange, error)
            raise
        if type(answer) is Pending:
            for waits in probes.waits:
                waits(exchange, answer.source)
            return answer.then(partial(self._hand_over, exchange), partial(self._refuse, exchange))
        return self._hand_over(exchange, answer)  # type: ignore[arg-type]

    def _hand_over(self, exchange: Exchange, answer: Encoded) -> Encoded:
        for handed in self._probes.handed:
            handed(exchange, answer)
        return answer

    def _refuse(self, exchange: Exchange, error: Exception) -> Encoded:
        for refused in self._probes.refused:
            refused(exchange, error)
        raise error
