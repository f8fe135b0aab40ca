"""The requests of `minibroker quotas`, and how it reads the answers, without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minibroker.any_cluster import quota_admin
from minibroker.any_cluster.quota_admin import CLIENT_ID, USER, Entity, QuotaAdmin
from minibroker.cli.quotas import limit_of, names_of
from minibroker.errors import CommandFailed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that were sent, each answered by a cluster in which ann has two quotas."""
    requests: list[Any] = []
    values = [SimpleNamespace(key=key, value=1.0) for key in ("producer_byte_rate", "consumer_byte_rate")]
    entry = SimpleNamespace(entity=[SimpleNamespace(entity_type=USER, entity_name="ann")], values=values)

    def answer(client: object, request: Any) -> Any:
        requests.append(request)
        if hasattr(request, "components"):
            return SimpleNamespace(error_code=0, error_message="", entries=[entry])
        return SimpleNamespace(entries=[SimpleNamespace(error_code=0, error_message=None)])

    monkeypatch.setattr(quota_admin, "answer_to", answer)
    return requests


def test_all_quotas_of_an_entity_are_removed_unless_some_are_named(asked: list[Any]) -> None:
    admin, ann = QuotaAdmin(None), Entity({USER: "ann"})

    assert admin.remove(ann, []) == ["consumer_byte_rate", "producer_byte_rate"]
    assert admin.remove(ann, ["producer_byte_rate"]) == ["producer_byte_rate"]

    entity = [(USER, "ann")]
    assert [request.entries for request in asked[1::2]] == [
        [(entity, [("consumer_byte_rate", 0.0, True), ("producer_byte_rate", 0.0, True)])],
        [(entity, [("producer_byte_rate", 0.0, True)])],
    ]


def test_quotas_of_other_entities_are_not_removed(asked: list[Any]) -> None:
    with pytest.raises(CommandFailed, match="user ann, the default client-id has no quotas"):
        QuotaAdmin(None).remove(Entity({USER: "ann", CLIENT_ID: None}), [])


def test_a_filter_asks_for_names_and_for_defaults(asked: list[Any]) -> None:
    QuotaAdmin(None).quotas({USER: None, CLIENT_ID: "c"})

    assert asked[0].components == [(USER, 1, None), (CLIENT_ID, 0, "c")]


def test_a_name_and_a_default_are_two_entities() -> None:
    assert names_of("ann", False, None, True) == {USER: "ann", CLIENT_ID: None}
    assert names_of(None, False, None, False) == {}
    assert limit_of("request_percentage", "12.5") == 12.5
