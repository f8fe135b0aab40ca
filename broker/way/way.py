"""The way of a request: a list of stages. It enters them top down; its answer leaves them bottom up.

    frame -> [stage -> stage -> ... -> handlers]
    chunks <- [stage <- stage <- ... <- ]

A stage may answer in place of those behind it, change the answer of those behind it, or have the request wait. Which
stages a broker has, and in which order, is in one place: `app.way_of`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.pending import Pending
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probes
from minibroker.broker.way.stage import GO_ON, Stage
from minibroker.protocol.errors import KafkaProtocolError

Encoded = list[Any] | None


class Way:
    """Leads each request through `stages`, of which the last one answers; `probes` look on."""

    def __init__(self, stages: Sequence[Stage], probes: Probes) -> None:
        self.stages = stages
        self._probes = probes
        self._enter = [each.enter for each in stages]
        # The way out of each stage that answers: the stages before it that change answers, the last of them first.
        self._out = [
            tuple([each.leave for each in reversed(stages[:place]) if type(each).leave is not Stage.leave])
            for place in range(len(stages))
        ]

    def serve(self, frame: bytearray, client: Client) -> Encoded | Pending[Encoded]:
        """Return the response to a frame in chunks, None for none; a Pending of it if the request waits.

        Raises, or the Pending fails with, KafkaProtocolError and CloseConnectionError, which close the connection.
        """
        exchange = Exchange(frame, client)
        if self._probes.is_looking:
            return self._serve_observed(exchange)
        return self._lead(0, exchange)  # type: ignore[no-any-return]

    def _serve_observed(self, exchange: Exchange) -> Encoded | Pending[Encoded]:
        probes = self._probes
        for began in probes.began:
            began(exchange)
        try:
            answer: Encoded | Pending[Encoded] = self._lead(0, exchange)
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

    def _lead(self, place: int, exchange: Exchange) -> Any:
        """Enter the stages from `place` on, up to one that answers, and return with its answer."""
        while True:
            answer = self._enter[place](exchange)
            if answer is not GO_ON:
                break
            place += 1
        if type(answer) is Pending:
            return answer.then(partial(self._go_on, place, exchange))
        return self._return(self._out[place], exchange, answer)

    def _go_on(self, place: int, exchange: Exchange, answer: Any) -> Any:
        """Go on after a wait in a stage: into the next one, or out with its answer."""
        if answer is GO_ON:
            return self._lead(place + 1, exchange)
        return self._return(self._out[place], exchange, answer)

    def _return(self, out: Sequence[Any], exchange: Exchange, answer: Any) -> Any:
        for index, leave in enumerate(out):
            answer = leave(exchange, answer)
            if type(answer) is Pending:
                return answer.then(partial(self._return, out[index + 1 :], exchange))
        return answer
