"""Answers of more than one piece to clients too old for the records, and what they see of transactions."""

from __future__ import annotations

from tests.conformance.asking import UNLIMITED, batch, create, create_all, delete_records, fetch, produce, produce_old
from tests.conformance.scripts.transactions import add, ended, find, init, write
from tests.conformance.steps import Batch, Script

OLD_VERSIONS = range(4)
PIECE_BYTES = 128 * 1024


def lazy_down_conversion() -> Script:
    """Batches around the size of a piece, in answers of several; conversion that saves much, and that adds much."""
    headers = (("header", b"long" * 500),)
    script: Script = [create_all(("@grows", 1, {}), ("@shrinks", 1, {}), ("@mixed", 1, {}))]
    for number in range(40):
        script.append(produce("@grows", batch(200, -5 - number, "none" if number % 3 else "gzip")))
        script.append(produce("@shrinks", Batch(tuple((-1, None, -300, headers) for _ in range(5)))))
    for size in (PIECE_BYTES - 200, PIECE_BYTES, 10, PIECE_BYTES + 200, 3 * PIECE_BYTES, 10, 10):
        script.append(produce("@mixed", batch(1, -size)))
        script.append(produce_old("@mixed", batch(1, -70, magic=1)))
        script.append(produce("@mixed", batch(5, -size // 5, "gzip")))
    for version in OLD_VERSIONS:
        script.append(fetch(("@grows", 0, 0), ("@shrinks", 0, 0), ("@mixed", 0, 0, UNLIMITED), version=version))
        script += [fetch(("@grows", 0, 7 * offset), version=version) for offset in range(0, 1000, 150)]
        script += [fetch(("@shrinks", 0, offset), version=version) for offset in range(0, 200, 33)]
        script += [fetch(("@mixed", 0, offset, UNLIMITED), version=version) for offset in range(0, 40, 3)]
        script += [fetch(("@mixed", 0, 0, limit), version=version) for limit in (PIECE_BYTES, 2 * PIECE_BYTES + 999)]
    return script


def control_batches_for_old_clients() -> Script:
    """Left out; alone they are twelve bytes, and behind them the first batch comes twice."""
    script: Script = [create("@a"), find(), init()]
    script += [add(), write(0, 3), *ended(), add(), write(3, 3), *ended(False)]
    script += [add(), write(6, 3, codec=1), *ended(), add(), write(9, 2, codec=1), write(11, 4), *ended(False)]
    script += [produce("@a", batch(2)), add(), write(15, 1), *ended()]
    for version in OLD_VERSIONS:
        script += [fetch(("@a", 0, offset), version=version) for offset in range(25)]
        script += [fetch(("@a", 0, offset, limit), version=version) for offset in (3, 7, 8) for limit in (78, 90, 300)]
    return [*script, delete_records(("@a", 0, 7)), *(fetch(("@a", 0, 7), version=version) for version in OLD_VERSIONS)]
