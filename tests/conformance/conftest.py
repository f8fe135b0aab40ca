"""The broker without a process, for recorded conversations."""

from __future__ import annotations

from tests.broker.conftest import make_broker as make_broker
