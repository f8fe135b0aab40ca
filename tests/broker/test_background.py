"""Work that a task of its own brings."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from minibroker.broker.upkeep.background import Background


async def test_work_whose_value_is_abandoned_is_cancelled(nursery: trio.Nursery) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await trio.sleep_forever()
        finally:
            ended.append("cancelled")

    background = Background()
    nursery.start_soon(background.run)
    pending = background.promise(work)
    await wait_all_tasks_blocked()
    assert ended == []

    pending.abandon()
    await wait_all_tasks_blocked()

    assert ended == ["cancelled"]
    nursery.cancel_scope.cancel()
