"""Versions of clients beside those that all other tests use: each writes, reads, and works in a group."""

from __future__ import annotations

import pytest

from tests.integration.clients import EARLIER
from tests.integration.conftest import GetClient, Group, NewTopic
from tests.integration.members import wait_until_read, wait_until_shared
from tests.integration.records import CODECS_OF_TODAY, numbered

pytestmark = pytest.mark.nightly

REFERENCE = "kafka-python-3.0"
OTHERS = (*EARLIER, "java-4.4")
IDEMPOTENT = [name for name in OTHERS if name != "kafka-python-2.0"]  # it has no such producer


@pytest.mark.ability("records")
@pytest.mark.parametrize("codec", CODECS_OF_TODAY)
@pytest.mark.parametrize("name", OTHERS)
def test_records_are_exchanged_with_another_client(
    client: GetClient, new_topic: NewTopic, name: str, codec: str
) -> None:
    topic = new_topic("other", partitions=2)
    one, other = client(name), client(REFERENCE)

    written = one.produce(topic, one.kind.shapes(), codec=codec)
    written_by_other = other.produce(topic, other.kind.shapes(), partition=1, codec=codec)

    read = other.consume(topic, len(written))
    assert [(row.offset, row.key, row.value, row.headers) for row in read] == [
        (row.offset, row.key, row.value, row.headers) for row in written
    ]
    assert one.consume(topic, len(written_by_other), partitions=[1]) == written_by_other


@pytest.mark.ability("idempotence")
@pytest.mark.parametrize("name", IDEMPOTENT)
def test_an_idempotent_producer_keeps_its_order(client: GetClient, new_topic: NewTopic, name: str) -> None:
    topic, records = new_topic("other"), numbered(2000, size_bytes=200)

    acked = client(name).produce(topic, records, enable_idempotence=True)

    assert [record.offset for record in acked] == list(range(2000))
    assert [row.value for row in client(REFERENCE).consume(topic, 2000)] == [record.value for record in records]


@pytest.mark.ability("groups")
@pytest.mark.parametrize("library", OTHERS)
def test_members_share_a_group_and_go_on_where_it_committed(library: str, group: Group) -> None:
    one, two = group.join(library), group.join(library)
    wait_until_shared([one, two], 4)
    wait_until_read(group.write(3), one, two)
    one.commit()
    two.commit()
    one.kill()
    two.kill()

    written = group.write(2)
    wait_until_read(written, group.join(library))
