"""The requests of `minibroker quotas`, and how it reads the answers, without a cluster."""

from __future__ import annotations

import pytest

from minibroker.admin.quotas import Entity
from minibroker.any_cluster import quota_admin
from minibroker.any_cluster.quota_admin import CLIENT_ID, USER
from minibroker.cli.quotas import Entities, limit_of
from minibroker.errors import CommandFailed
from minibroker.protocol.messages.quotas import AlterClientQuotasResponse
from tests.minibroker.answering import Answers, row


@pytest.fixture
def client() -> Answers:
    """A cluster in which ann has two quotas."""
    values = [row(key=key, value=1.0) for key in ("producer_byte_rate", "consumer_byte_rate")]
    entry = row(entity=[row(entity_type=USER, entity_name="ann")], values=values)
    return Answers(
        describe_client_quotas=row(entries=[entry]),
        alter_client_quotas=AlterClientQuotasResponse(entries=[AlterClientQuotasResponse.row("entries")()]),
    )


def test_all_quotas_of_an_entity_are_removed_unless_some_are_named(client: Answers) -> None:
    ann = Entity({USER: "ann"})

    assert quota_admin.remove(client, ann, []) == ["consumer_byte_rate", "producer_byte_rate"]
    assert quota_admin.remove(client, ann, ["producer_byte_rate"]) == ["producer_byte_rate"]

    entity = [(USER, "ann")]
    assert [each.body["entries"] for each in client.asked[1::2]] == [
        [(entity, [("consumer_byte_rate", 0.0, True), ("producer_byte_rate", 0.0, True)])],
        [(entity, [("producer_byte_rate", 0.0, True)])],
    ]


def test_quotas_of_other_entities_are_not_removed(client: Answers) -> None:
    with pytest.raises(CommandFailed, match="user ann, the default client-id has no quotas"):
        quota_admin.remove(client, Entity({USER: "ann", CLIENT_ID: None}), [])


def test_a_filter_asks_for_names_and_for_defaults(client: Answers) -> None:
    quota_admin.quotas(client, {USER: None, CLIENT_ID: "c"})

    assert client.asked[0].body["components"] == [(USER, 1, None), (CLIENT_ID, 0, "c")]


def test_a_name_and_a_default_are_two_entities() -> None:
    assert Entities("ann", default_client_id=True).names() == {USER: "ann", CLIENT_ID: None}
    assert Entities().names() == {}
    assert limit_of("request_percentage", "12.5") == 12.5
