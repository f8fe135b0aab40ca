"""The changes that the page Inside may ask for; the rest of the routes is tested with a broker."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.console.answers import Refused
from minibroker.console.inside_routes import SECONDS_MAX, seconds_in


@pytest.mark.parametrize("seconds", [0, 30, 0.5, SECONDS_MAX])
def test_the_clock_is_turned_by_seconds(seconds: float) -> None:
    assert seconds_in({"seconds": seconds}) == seconds


@pytest.mark.parametrize("seconds", [None, "30", True, -1, float("nan"), float("inf"), SECONDS_MAX * 2, [30]])
def test_a_time_that_cannot_pass_is_refused(seconds: Any) -> None:
    with pytest.raises(Refused, match="no time that can pass"):
        seconds_in({"seconds": seconds})
