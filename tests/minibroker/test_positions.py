"""Places in a partition as a person writes them."""

from __future__ import annotations

import time

import pytest

from minibroker.admin.positions import Position, parse_position
from minibroker.cli.options import Partitions, numbers_of, parse_partitions
from minibroker.errors import BadValue
from minibroker.protocol.text import ranges

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position("beginning")),
        ("start", Position("beginning")),
        ("earliest", Position("beginning")),
        ("end", Position("end")),
        ("latest", Position("end")),
        ("42", Position("offset", 42)),
        ("-5", Position("end", -5)),
        ("+5", Position("beginning", 5)),
        ("@1357020000000", Position("time", 1_357_020_000_000)),
        ("s@1357020000000", Position("time", 1_357_020_000_000)),
        ("@2013-01-01T06:00:00Z", Position("time", 1_357_020_000_000)),
        ("@2013-01-01T07:00:00.250+01:00", Position("time", 1_357_020_000_250)),
        ("@-1h", Position("time", NOW_MS - 3_600_000)),
        ("@-1h30m15s250ms", Position("time", NOW_MS - 5_415_250)),
        ("@-2d", Position("time", NOW_MS - 172_800_000)),
        ("@-9999w", Position("time", 0)),
    ],
)
def test_a_position_is_read_as_kcat_and_rpk_write_it(
    text: str, position: Position, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_MS / 1000)

    assert parse_position(text) == position
    assert parse_position(position) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "4.2",
        "--5",
        "@",
        "@yesterday",
        "@-1",
        "@-h",
        "@-1y",
        "@-1h ago",
        "@--1h",
        "@+1h",
        "@1950-01-01T00:00:00Z",
        str(2**63),
        "٤",
    ],
)
def test_another_position_is_refused_with_the_forms_that_there_are(text: str) -> None:
    with pytest.raises(BadValue, match="beginning, end, an offset"):
        parse_position(text)


@pytest.mark.parametrize(
    ("texts", "numbers", "printed"),
    [
        (["0"], [0], "0"),
        (["0,2"], [0, 2], "0,2"),
        (["2-4", "0, 3"], [0, 2, 3, 4], "0,2-4"),
        (["1-2", "4-5,7"], [1, 2, 4, 5, 7], "1-2,4-5,7"),
        ([], [], ""),
    ],
)
def test_partitions_are_read_as_they_are_printed(texts: list[str], numbers: list[int], printed: str) -> None:
    assert numbers_of([parse_partitions(text) for text in texts]) == numbers
    assert ranges(numbers) == printed
    assert parse_partitions("7") == Partitions((7,))


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "0,,1", "4-2", "0-99999999", "1.5", "٤"])
def test_other_partitions_are_refused(text: str) -> None:
    with pytest.raises(BadValue, match=r"is not a partition|has a range"):
        parse_partitions(text)
