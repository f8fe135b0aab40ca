"""Refusals with a code of Kafka's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from minibroker.protocol.errors import ErrorCode, KafkaError


def refusal_of(action: Callable[[], object]) -> ErrorCode:
    """Return the code the action is refused with."""
    with pytest.raises(KafkaError) as refusal:
        action()
    return refusal.value.code
