"""An exchange of the inside view by its fields."""

from __future__ import annotations

from typing import Any

# The values that it has in tests most often.
ROW: dict[str, Any] = {
    "seq": 0, "connection": 0, "client": "", "api": "", "version": 0, "correlation": 0, "arrived": 0, "handled": 90,
    "woken": -1, "answered": 95, "sent": 125, "bytes_in": 97, "bytes_out": 140, "outcome": "at once", "case": "",
    "woken_by": -1, "error": "", "max_wait": -1, "woke": [], "topics": ["orders"], "records": 0,
}  # fmt: skip
