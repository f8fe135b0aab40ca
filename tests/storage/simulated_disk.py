"""The simulation's disk, which loses power, in the place of the system's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from minibroker.simulation.memory_disk import MemoryDisk, stand_ins
from minibroker.simulation.stand_in import close
from minibroker.simulation.world import World
from minibroker.storage.files import disk


@contextmanager
def simulated_disk(seed: int) -> Iterator[tuple[World, MemoryDisk]]:
    world = World(seed)
    memory = MemoryDisk(world)
    vars(disk)["close"] = close  # for good: a file may be freed later
    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in stand_ins(memory):
            patch.setattr(disk, name, stand_in)
        patch.setattr("minibroker.storage.data_dir.log_manager.in_threads", lambda work, logs: [*map(work, logs)])
        yield world, memory
