"""Faults on purpose: errors for their topics and partitions alone, time and connections; the logs are as they were."""

from __future__ import annotations

import pytest

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker
from tests.broker.faulty import Faulty


@pytest.fixture
async def faulty(broker: InMemoryBroker) -> Faulty:
    await broker.create_topic("orders", 2)
    await broker.create_topic("payments", 2)
    return Faulty(broker)


async def test_an_unsupported_version_is_answered_in_version_0(faulty: Faulty) -> None:
    faulty.add("error", error="UNSUPPORTED_VERSION", api="api_versions")

    answer = await faulty.broker.answer(faulty.broker.frame(ApiKey.API_VERSIONS, 3))

    assert answer is not None
    assert decode_response(ApiKey.API_VERSIONS, 0, answer)[1].error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [2, 3, 8, 12])
async def test_a_wrong_crc_is_in_a_copy_of_the_records(faulty: Faulty, version: int) -> None:
    await faulty.broker.produce("orders", [b"a", b"b"])
    await faulty.broker.produce("orders", [b"c"])
    right = await faulty.broker.fetch(("orders", 0, 0), version=version)
    fault = faulty.add("wrong_crc", topic="orders")

    wrong = await faulty.broker.fetch(("orders", 0, 0), version=version)
    faulty.injector.lift(fault.id)
    again = await faulty.broker.fetch(("orders", 0, 0), version=version)

    records = [bytes(each.topics[0].partitions[0].records) for each in (right, wrong, again)]
    changed = [at for at, (ours, theirs) in enumerate(zip(records[0], records[1], strict=True)) if ours != theirs]
    crc_at = 17 if version > 3 else 12
    assert changed[:4] == list(range(crc_at, crc_at + 4))
    assert len(changed) == (8 if version > 3 else 12), "of every batch, or message"
    assert records[0] == records[2]
    assert fault.count == 1


async def test_a_torn_frame_is_the_first_half_of_the_answer(faulty: Faulty) -> None:
    whole = await faulty.broker.call(ApiKey.METADATA, 1, topics=None)
    faulty.add("torn_frame", api="metadata")

    with pytest.raises(CloseConnectionError) as torn:
        await faulty.broker.call(ApiKey.METADATA, 1, topics=None)

    size = int.from_bytes(torn.value.last_bytes[:4], "big")
    assert len(torn.value.last_bytes) == (4 + size) // 2
    assert whole.topics


async def test_a_fault_of_an_earlier_process_is_unknown_and_lifted(faulty: Faulty) -> None:
    faulty.injector.lift(3)  # of the process before: it is lifted already
    with pytest.raises(ValueError, match="unknown fault 3: faults end with the broker's process"):
        faulty.injector.describe(3)


async def test_the_newest_faults_are_remembered_and_those_that_can_strike(broker: InMemoryBroker) -> None:
    faulty = Faulty(broker, kept_max=3)
    struck = [faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce") for _ in range(2)]
    faulty.injector.lift(struck[1].id)

    later = [faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce") for _ in range(2)]

    assert faulty.injector.active() == [struck[0].id, *(each.id for each in later)]
    assert list(faulty.injector._faults) == faulty.injector.active()
    said = {"count": 0, "is_active": True, "text": str(struck[0])}
    assert faulty.injector.describe(struck[0].id) == said
    with pytest.raises(ValueError, match="the newest 3 are remembered"):
        faulty.injector.describe(struck[1].id)
    with pytest.raises(ValueError, match="3 faults are active; lift some"):
        faulty.add("error", error="NOT_LEADER_FOR_PARTITION", api="produce")
