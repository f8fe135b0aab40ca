"""How much of a frame is kept."""

from __future__ import annotations

from minibroker.transcript.recorder import kept


def test_the_records_of_a_frame_share_what_is_kept_of_them() -> None:
    chunks = [b"h", b"x" * 6, b"m", b"y" * 6, b"t"]

    frame = kept(chunks, 8)

    assert frame.kept == b"hxxxxxxmyyt"
    assert [tuple(gap) for gap in frame.gaps] == [(10, 4)]
    assert frame.filled() == b"hxxxxxxmyy\0\0\0\0t"
