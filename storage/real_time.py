"""Seconds that pass, for what is measured or paced: no clock that tests turn changes them.

Timeouts and stored times are read from `broker/time/clock.py`. Nothing else in storage or in the broker's core reads a
clock of the system (tests/test_layering.py). A simulation replaces these names.
"""

from __future__ import annotations

import time

perf_counter = time.perf_counter
monotonic = time.monotonic
sleep = time.sleep
time_of_day = time.time  # in nodes of ZooKeeper, which nothing compares
