"""The fixtures of `tests/broker`: a broker without a process, on a temporary directory."""

from __future__ import annotations

from tests.broker.conftest import broker, in_cluster, make_broker

__all__ = ["broker", "in_cluster", "make_broker"]
