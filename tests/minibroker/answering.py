"""A client without a cluster: it answers by the name of the API."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from minibroker.client.address import Address
from minibroker.client.client import Broker, Client, Question
from minibroker.client.connection import Versions
from minibroker.protocol.api import ApiKey

LAST_VERSION = 7  # of all APIs


class Answers(Client):
    """`answers` are values, or functions of a request's body; an error is raised. `asked` has the questions."""

    def __init__(self, apis: Iterable[int] = tuple(ApiKey), **answers: Any) -> None:
        self.brokers = {0: Broker(0, Address("broker", 9092), None)}
        self.controller_id = 0
        self.asked: list[Question] = []
        self._apis = set(apis) - {ApiKey.DESCRIBE_QUORUM} if set(apis) == set(ApiKey) else set(apis)
        self._answered_by = answers

    @property
    def versions(self) -> Versions:
        return dict.fromkeys(self._apis, (0, LAST_VERSION))

    def answers(self, questions: Mapping[Any, Question]) -> dict[Any, Any]:
        self.asked += questions.values()
        answers = {key: self._answered_by[each.api_key.name.lower()] for key, each in questions.items()}
        return {key: answer(questions[key].body) if callable(answer) else answer for key, answer in answers.items()}


def row(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**({"error_code": 0, "error_message": None} | fields))


def metadata(*topics: SimpleNamespace, brokers: Iterable[int] = (0,), controller_id: int = 0) -> SimpleNamespace:
    shown = [row(node_id=each, host="broker", port=9092, rack=None) for each in brokers]
    return row(brokers=shown, controller_id=controller_id, cluster_id="c", topics=list(topics))


def topic(name: str, *leaders: int) -> SimpleNamespace:
    """A topic of Metadata with these leaders, by partition."""
    partitions = [row(partition=number, leader_id=leader) for number, leader in enumerate(leaders)]
    return row(name=name, is_internal=False, partitions=partitions)
