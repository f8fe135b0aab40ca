"""minibroker: a Kafka broker that installs with pip.

From Python, a broker is a process of its own, started and stopped by `Broker`:

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minibroker.process import Broker, BrokerError

__all__ = ["Broker", "BrokerError"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # Imported when asked for: `minibroker serve` passes through this file too, and starts in a tenth of a second.
    if name in __all__:
        from minibroker import process

        return getattr(process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
