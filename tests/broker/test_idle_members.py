"""Members of groups that do nothing cost a few objects each: no task, no timer that runs, less than a connection."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
import trio

from tests.broker.conftest import MakeBroker
from tests.broker.group_clients import GroupClient

MEMBERS = 300
MOST_BYTES_EACH = 4096  # an idle connection takes 4.5 KiB (`make bench`, parked.idle_kib_each)


@pytest.mark.slow
@pytest.mark.trio
async def test_a_member_of_its_own_group_takes_less_than_its_connection(make_broker: MakeBroker) -> None:
    broker = make_broker(group_initial_rebalance_delay_ms=0)
    await GroupClient(broker, "first").stable()
    tasks, timeouts = trio.lowlevel.current_statistics().tasks_living, len(broker.timers.timer)
    gc.collect()
    tracemalloc.start()

    for number in range(MEMBERS):
        await GroupClient(broker, f"group-{number}").stable()
    gc.collect()
    bytes_each = tracemalloc.get_traced_memory()[0] / MEMBERS
    tracemalloc.stop()

    assert bytes_each < MOST_BYTES_EACH
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert len(broker.timers.timer) - timeouts == MEMBERS
