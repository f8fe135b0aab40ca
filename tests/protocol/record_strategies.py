"""Records to put into batches: a few, and any that could be."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from minibroker.protocol.compression import Codec
from minibroker.protocol.record import Record

# Machines that build this are shared: no example fails for being slow, and few are enough each time.
PROPERTY = settings(max_examples=30, deadline=None)

CODECS = list(Codec)
LIMIT = 1 << 20
RECORDS = [
    Record(20, 1_700_000_000_000, b"key", b"value", (("trace", b"abc"), ("none", None))),
    Record(21, 1_700_000_000_900, None, b"no key"),
    Record(24, 1_700_000_000_100, b"no value", None),
]

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMESTAMPS = st.one_of(st.just(-1), st.integers(0, 2**41), st.integers(0, 2**62))
FIELDS = st.one_of(st.none(), st.binary(max_size=40), st.just(b"\x00" * 300))
HEADERS = st.lists(
    st.tuples(st.text(max_size=8).filter(lambda text: text.isascii() or text.isprintable()), FIELDS), max_size=3
)


@st.composite
def record_lists(draw: st.DrawFn, *, headers: bool, dense: bool = False) -> list[Record]:
    """Records whose offsets rise from anywhere, with gaps unless `dense`."""
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 6))):
        fields = tuple(draw(HEADERS)) if headers else ()
        records.append(Record(offset, draw(TIMESTAMPS), draw(FIELDS), draw(FIELDS), fields))
        offset += 1 if dense else draw(st.integers(1, 1000))
    return records
