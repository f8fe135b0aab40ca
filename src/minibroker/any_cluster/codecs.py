"""Gives kafka-python the codecs snappy and zstd by cramjam, which the broker needs anyway.

kafka-python refuses them without python-snappy and zstandard; where those are installed, it uses them.
"""

from __future__ import annotations

import io
from typing import Any


def complete(kafka_python_codec: Any) -> None:
    """Add the codecs that this module of kafka-python, `kafka.codec`, has not found."""
    kafka_python_codec.snappy = kafka_python_codec.snappy or Snappy
    kafka_python_codec.zstd = kafka_python_codec.zstd or Zstandard


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
