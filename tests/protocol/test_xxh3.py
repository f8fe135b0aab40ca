"""XXH3, against values of the library that Kafka uses (hash4j), one on either side of each way of hashing."""

from __future__ import annotations

import pytest

from minibroker.protocol.xxh3 import xxh3_64

HASHES = {
    8: 0xB88DEE77F6BF6980,
    16: 0x9DA23836ADF2BE1E,
    24: 0x25DA37B787C3B790,
    40: 0x1BDCD3399CC64D80,
    100: 0x6DBB812CF19D012E,
    128: 0x65F3C2C00FA93185,
    129: 0x28065C6EC25F5B25,
    200: 0x7C64F3B17285E96A,
    240: 0x4917A75C0EF8EED7,
    241: 0x541B19226F0052E8,
    500: 0x7D2C2BBD2291462B,
    1024: 0xDC5ACF0B043C445B,
    1025: 0xE1D9CD946277AE26,
    5000: 0x6ABE8BE5ABCB2760,
}


@pytest.mark.parametrize("size", HASHES)
def test_a_hash_is_that_of_the_reference(size: int) -> None:
    data = bytes(number * 7 & 0xFF for number in range(size))

    assert xxh3_64(data) & (1 << 64) - 1 == HASHES[size]
    assert -(1 << 63) <= xxh3_64(data) < 1 << 63
