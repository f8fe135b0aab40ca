"""How fast compaction goes: its bytes per second, and its end when the broker stops."""

from __future__ import annotations

import threading

import pytest

from minibroker.storage import real_time
from minibroker.storage.compaction.cleaner_pace import CleanerPace, LogCleaningAbortedError


def test_compaction_waits_as_long_as_it_is_ahead_of_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    waits: list[float | None] = []
    monkeypatch.setattr(real_time, "monotonic", lambda: now[0])
    monkeypatch.setattr(threading.Event, "wait", lambda _, seconds=None: waits.append(seconds))
    pace = CleanerPace(max_bytes_per_second=1000.0)
    pace.begin()
    now[0] += 1.0

    pace.on_bytes(5000)
    now[0] += 1.0
    pace.on_bytes(1000)

    assert waits == [4.0]


def test_a_broker_that_stops_ends_compaction() -> None:
    pace = CleanerPace()
    pace.begin()
    pace.yield_gil()

    pace.stop()

    with pytest.raises(LogCleaningAbortedError):
        pace.yield_gil()
