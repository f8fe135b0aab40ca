"""The health check of the container, docker/health.py: which listener it asks."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

HEALTH = runpy.run_path(str(Path(__file__).parents[2] / "docker" / "health.py"), run_name="health")


@pytest.mark.parametrize(
    ("ready", "asked"),
    [
        ("0.0.0.0:9092\n", ("0.0.0.0:9092", True)),
        ("[::]:9092\nIN://[::]:9092 (PLAINTEXT)\nOUT://[::]:9094 (PLAINTEXT)\n", ("[::]:9092", True)),
        ("h:1\nSSL://h:1\nPLAINTEXT://h:2\n", ("h:2", True)),
        ("h:1\nSASL_SSL://h:1\nOUT://h:2 (SSL)\n", ("h:1", False)),
    ],
)
def test_a_listener_in_plain_text_is_asked_and_others_only_connected_to(ready: str, asked: tuple[str, bool]) -> None:
    assert HEALTH["listener"](ready) == asked
