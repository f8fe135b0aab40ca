"""Puts a world in the place of the system, at each module by which the broker reaches it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import trio
from trio._core import _run as loop

from minibroker.broker import app
from minibroker.broker.network import sockets
from minibroker.broker.upkeep import threads, upkeep
from minibroker.broker.wings.several import directory_watch, shared_state
from minibroker.simulation.memory_disk import FIRST_DESCRIPTOR, MemoryDisk, stand_ins
from minibroker.simulation.memory_network import Arrivals, MemoryNetwork
from minibroker.simulation.world import EPOCH_MS, Chance, OrderOfTasks, World
from minibroker.storage import chance, real_time
from minibroker.storage.data_dir import log_manager
from minibroker.storage.files import disk
from minibroker.zookeeper import waiting


@contextmanager
def replaced(module: Any, name: str, value: object) -> Iterator[None]:
    real = getattr(module, name)
    vars(module)[name] = value
    try:
        yield
    finally:
        vars(module)[name] = real


@contextmanager
def collected_at_end() -> Iterator[None]:
    """Garbage is collected after a run, never during it: a file that closes then would be an event.

    No caller may hold the world of the run at the end: else nothing of it would be found, and it would stay for ever.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what was there before need not be looked through again
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def close(fd: int) -> None:
    """Close a file of the system. One of a disk in memory may be freed after its simulation."""
    if fd < FIRST_DESCRIPTOR:
        os.close(fd)


@contextmanager
def in_place_of_the_system(
    world: World, memory: MemoryDisk, network: MemoryNetwork, thread_delay: Callable[[], float]
) -> Iterator[None]:
    """Nothing reaches the system from here on."""

    async def run_sync(work: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        """The work of a thread takes a time, and happens at one moment of it."""
        await trio.sleep(thread_delay())
        result = work(*arguments)
        await trio.sleep(thread_delay())
        return result

    replacements: list[tuple[Any, str, object]] = [
        *((disk, name, stand_in) for name, stand_in in stand_ins(memory)),
        (directory_watch, "DirectoryWatch", memory.watch),
        (sockets, "new_arrivals", lambda: Arrivals(world)),
        (sockets, "wait_readable", lambda sock: sock.wait_readable()),
        (sockets, "wait_writable", lambda sock: sock.wait_writable()),
        (sockets, "open_stream", network.open_stream),
        (sockets, "open_socket", network.open_socket),
        (sockets, "send_file", network.send_file),
        (waiting, "create_connection", network.create_connection),
        (waiting, "wait_readable", network.wait_for_piece),
        (waiting, "monotonic", world.own_seconds),
        (waiting, "sleep", lambda seconds: world.block(world.own_seconds() + seconds)),
        (threads, "run_sync", run_sync),
        (trio, "sleep", world.clock.sleep),
        (loop, "_r", OrderOfTasks(world)),
        (log_manager, "in_threads", lambda work, logs: [work(each) for each in logs]),
        (app, "settle_memory", lambda: None),  # would keep all garbage of the process for ever
        (shared_state, "COMPACTED_BYTES", 4096),  # so that journals are written anew in a short life
        (upkeep, "EXPIRED_PRODUCERS_INTERVAL_MS", 1000),  # likewise
        (real_time, "perf_counter", world.seconds),
        (real_time, "monotonic", world.seconds),
        (real_time, "sleep", lambda seconds: None),
        (real_time, "time_of_day", lambda: EPOCH_MS / 1000 + world.seconds()),
    ]
    with ExitStack() as at_end:
        vars(disk)["close"] = close
        at_end.callback(chance.follow, None)
        chance.follow(Chance(world))
        for module, name, value in replacements:
            at_end.enter_context(replaced(module, name, value))
        yield
