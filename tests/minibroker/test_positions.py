"""Places in a partition as a person writes them."""

from __future__ import annotations

import pytest
import typer

from minibroker.cli.positions import Position, parse_position


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
    ],
)
def test_a_position_is_read_as_kcat_and_rpk_write_it(text: str, position: Position) -> None:
    assert parse_position(text) == position
    assert parse_position(position) == position


@pytest.mark.parametrize(
    "text", ["", "soon", "4.2", "--5", "@", "@yesterday", "@1950-01-01T00:00:00Z", str(2**63), "٤"]
)
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="beginning, end, an offset"):
        parse_position(text)
