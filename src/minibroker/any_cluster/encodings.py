"""How keys and values are written in lines: as text, in hex or in base64."""

from __future__ import annotations

import base64
from typing import Literal

Encoding = Literal["text", "hex", "base64"]


def decode(data: bytes, encoding: Encoding) -> bytes:
    """The bytes that are written so. Raises ValueError."""
    if encoding == "hex":
        return bytes.fromhex(data.decode("ascii"))
    return base64.b64decode(data, validate=True) if encoding == "base64" else data
