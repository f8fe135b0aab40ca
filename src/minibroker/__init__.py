"""minibroker: a Kafka broker that installs with pip.

From Python, a broker is a process of its own, started and stopped by `Broker`:

    with Broker() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

`running_broker` puts one around a test, and the pytest plugin has the fixture `minibroker`. docs/reference/ describes
all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minibroker.acl import Acl
    from minibroker.aws.msk import Msk, msk
    from minibroker.broker_clock import BrokerClock
    from minibroker.cluster import Cluster
    from minibroker.cluster_clock import ClusterClock
    from minibroker.cluster_verbs import Replica
    from minibroker.decorator import running_broker
    from minibroker.errors import BrokerError, SettingWarning
    from minibroker.explain import Explained, Explanation
    from minibroker.faults import ClientConnection, Fault, Faults
    from minibroker.process import Broker
    from minibroker.records import Record
    from minibroker.transcript.exchanges import Event, Exchange, Transcript
    from minibroker.waiting import WaitError

__all__ = [
    "Acl",
    "Broker",
    "BrokerClock",
    "BrokerError",
    "ClientConnection",
    "Cluster",
    "ClusterClock",
    "Event",
    "Exchange",
    "Explained",
    "Explanation",
    "Fault",
    "Faults",
    "Msk",
    "Record",
    "Replica",
    "SettingWarning",
    "Transcript",
    "WaitError",
    "msk",
    "running_broker",
]
__version__ = "0.1.0"

MODULES = {
    "acl": ("Acl",),
    "aws.msk": ("Msk", "msk"),
    "process": ("Broker",),
    "cluster": ("Cluster",),
    "cluster_clock": ("ClusterClock",),
    "cluster_verbs": ("Replica",),
    "errors": ("BrokerError", "SettingWarning"),
    "records": ("Record",),
    "waiting": ("WaitError",),
    "decorator": ("running_broker",),
    "broker_clock": ("BrokerClock",),
    "explain": ("Explained", "Explanation"),
    "faults": ("ClientConnection", "Fault", "Faults"),
    "transcript.exchanges": ("Event", "Exchange", "Transcript"),
}


def __getattr__(name: str) -> Any:
    # Imported when asked for: `minibroker serve` passes through this file too, and starts in a tenth of a second.
    if name in __all__:
        from importlib import import_module

        (module,) = (module for module, names in MODULES.items() if name in names)
        return getattr(import_module(f"minibroker.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
