"""The scripted conversations, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.scripts.administering import ADMINISTERING
from tests.conformance.scripts.producing import PRODUCING
from tests.conformance.scripts.reading import READING
from tests.conformance.steps import Script

ALL: dict[str, Callable[[], Script]] = {**PRODUCING, **READING, **ADMINISTERING}
