"""The registry's client, without a registry; test_schema_registry_clients.py has one."""

from __future__ import annotations

from minibroker.registry_client import SchemaRegistry


def test_bytes_without_a_schema_stay_as_they_are() -> None:
    registry = SchemaRegistry("127.0.0.1:9")  # where none answers

    for data in (None, b"", b"\0", b"plain", b"{1234567}"):
        assert registry.decoded(data) == data
