"""XXH3, the hash of 64 bits by which Kafka's group coordinator notices that a topic has changed; of at least 4 bytes.

Pure Python is fast enough: a topic is hashed when a group begins to use it, and when it changes.
"""

from __future__ import annotations

import struct

MASK = (1 << 64) - 1
MASK_32 = (1 << 32) - 1
PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1, PRIME64_2, PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME64_4, PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PRIME_MX1, PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
# The secret that the algorithm takes if it is given none.
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
SHORT, MIDDLE = 128, 240  # bytes that each way of hashing takes at most
STRIPE_BYTES, LANES = 64, 8
STRIPES = (len(SECRET) - STRIPE_BYTES) // 8  # of a block, each with the secret from 8 bytes further on
LEAST_SECRET_BYTES = 136

_int64 = struct.Struct("<Q").unpack_from
_int32 = struct.Struct("<I").unpack_from
_lanes = struct.Struct("<8Q").unpack_from


def xxh3_64(data: bytes) -> int:
    """The hash as a signed number, as Java has it."""
    size = len(data)
    if size <= 8:
        value = _upto_8(data)
    elif size <= 16:
        value = _upto_16(data)
    elif size <= SHORT:
        value = _upto_128(data)
    elif size <= MIDDLE:
        value = _upto_240(data)
    else:
        value = _long(data)
    return value - (1 << 64) if value >> 63 else value


def _word(data: bytes, position: int) -> int:
    word: int = _int64(data, position)[0]
    return word


def _folded(left: int, right: int) -> int:
    product = left * right
    return (product & MASK) ^ (product >> 64)


def _avalanched(value: int) -> int:
    value ^= value >> 37
    value = value * PRIME_MX1 & MASK
    return value ^ (value >> 32)


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & MASK


def _mixed(data: bytes, position: int, secret_position: int) -> int:
    """Sixteen bytes with sixteen of the secret."""
    return _folded(
        _word(data, position) ^ _word(SECRET, secret_position),
        _word(data, position + 8) ^ _word(SECRET, secret_position + 8),
    )


def _upto_8(data: bytes) -> int:
    size = len(data)
    first, last = _int32(data, 0)[0], _int32(data, size - 4)[0]
    value: int = (last + (first << 32)) ^ _word(SECRET, 8) ^ _word(SECRET, 16)
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = value * PRIME_MX2 & MASK
    value ^= (value >> 35) + size
    value = value * PRIME_MX2 & MASK
    return value ^ (value >> 28)


def _upto_16(data: bytes) -> int:
    size = len(data)
    low = _word(data, 0) ^ _word(SECRET, 24) ^ _word(SECRET, 32)
    high = _word(data, size - 8) ^ _word(SECRET, 40) ^ _word(SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanched((size + swapped + high + _folded(low, high)) & MASK)


def _upto_128(data: bytes) -> int:
    size = len(data)
    total = size * PRIME64_1
    for step in range((size - 1) // 32, -1, -1):
        total += _mixed(data, 16 * step, 32 * step) + _mixed(data, size - 16 * (step + 1), 32 * step + 16)
    return _avalanched(total & MASK)


def _upto_240(data: bytes) -> int:
    size = len(data)
    total = size * PRIME64_1 + sum(_mixed(data, 16 * step, 16 * step) for step in range(8))
    total = _avalanched(total & MASK)
    total += sum(_mixed(data, 16 * step, 16 * (step - 8) + 3) for step in range(8, size // 16))
    return _avalanched((total + _mixed(data, size - 16, LEAST_SECRET_BYTES - 17)) & MASK)


def _long(data: bytes) -> int:
    size = len(data)
    lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    stripe_count = (size - 1) // STRIPE_BYTES
    for number in range(stripe_count):
        _accumulate(lanes, data, number * STRIPE_BYTES, number % STRIPES * 8)
        if number % STRIPES == STRIPES - 1:
            _scramble(lanes)
    _accumulate(lanes, data, size - STRIPE_BYTES, len(SECRET) - STRIPE_BYTES - 7)
    total = size * PRIME64_1
    for pair in range(0, LANES, 2):
        total += _folded(lanes[pair] ^ _word(SECRET, 11 + 8 * pair), lanes[pair + 1] ^ _word(SECRET, 19 + 8 * pair))
    return _avalanched(total & MASK)


def _accumulate(lanes: list[int], data: bytes, position: int, secret_position: int) -> None:
    values, keys = _lanes(data, position), _lanes(SECRET, secret_position)
    for lane in range(LANES):
        keyed = values[lane] ^ keys[lane]
        lanes[lane ^ 1] = (lanes[lane ^ 1] + values[lane]) & MASK
        lanes[lane] = (lanes[lane] + (keyed & MASK_32) * (keyed >> 32)) & MASK


def _scramble(lanes: list[int]) -> None:
    keys = _lanes(SECRET, len(SECRET) - STRIPE_BYTES)
    for lane in range(LANES):
        value = lanes[lane]
        lanes[lane] = (value ^ (value >> 47) ^ keys[lane]) * PRIME32_1 & MASK
