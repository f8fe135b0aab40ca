"""Gives kafka-python the codecs snappy, lz4 and zstd, which the broker needs anyway.

kafka-python refuses them without python-snappy, lz4 and zstandard; where those are installed, it uses them.
"""

from __future__ import annotations

import io
from typing import Any

from minibroker.protocol.compression import Codec, compress, decompress

LARGEST_BATCH_BYTES = 1 << 30  # decompressed: more than any broker takes


def complete(kafka_python_codec: Any, *record_formats: Any) -> None:
    """Add the codecs that this module of kafka-python, `kafka.codec`, has not found.

    Its modules of record formats have taken the functions of lz4 from it already.
    """
    kafka_python_codec.snappy = kafka_python_codec.snappy or Snappy
    kafka_python_codec.zstd = kafka_python_codec.zstd or Zstandard
    if not kafka_python_codec.has_lz4():
        kafka_python_codec.lz4 = True
        for module in (kafka_python_codec, *record_formats):
            module.lz4_encode, module.lz4_decode = lz4_encode, lz4_decode


def lz4_encode(data: bytes) -> bytes:
    return compress(Codec.LZ4, data)


def lz4_decode(data: bytes) -> bytes:
    return decompress(Codec.LZ4, data, max_size=LARGEST_BATCH_BYTES)


class Snappy:
    """The functions of python-snappy that kafka-python calls."""

    @staticmethod
    def compress(data: bytes) -> bytes:
        from cramjam import snappy

        return bytes(snappy.compress_raw(data))

    @staticmethod
    def decompress(data: bytes) -> bytes:
        from cramjam import snappy

        return bytes(snappy.decompress_raw(data))


class Zstandard:
    """The classes of zstandard that kafka-python uses."""

    class ZstdCompressor:
        def compress(self, data: bytes) -> bytes:
            from cramjam import zstd

            return bytes(zstd.compress(data))

    class ZstdDecompressor:
        def stream_reader(self, source: Any, *, read_across_frames: bool) -> io.BytesIO:
            from cramjam import zstd

            return io.BytesIO(bytes(zstd.decompress(source.read())))
