"""A wing: something that a broker may lack, such as quotas. A wing knows the core; the core knows no wing.

`app.WINGS` names the wings. A broker without a wing's folder and its line there serves all the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.member import Member
from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import Change, ClusterState, News
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.metric import Found
from minibroker.broker.network.connection import Connection
from minibroker.broker.network.server import Server
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.way.stage import Stage


class Wing:
    """Overrides what it has: each method is a place of the core where a wing may plug in. It gets the `BrokerParts`."""

    sections: Sequence[Section[Any]] = ()  # of the state of the cluster, which it declares

    def __init__(self, parts: Any) -> None: ...

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        """Whether a broker with these settings and options has the wing."""
        return True

    @classmethod
    def problems(cls, config: KafkaConfig, options: ServeOptions) -> Sequence[str]:
        """The reasons why a broker with these settings cannot start."""
        return ()

    @classmethod
    def state_of(
        cls, config: KafkaConfig, options: ServeOptions, sections: Iterable[Section[Any]]
    ) -> ClusterState | None:
        """The state of the cluster where this wing keeps it; None to leave it to the next one."""
        return None

    def member(self, shown: Callable[[], Broker], on_news: Callable[[News], None]) -> Member[Any] | None:
        """This broker as a member of a cluster of several. `shown` is how it shows itself."""
        return None

    def frame_stages(self) -> Sequence[Stage]:
        """Stages before the codec: they see frames."""
        return ()

    def stages(self) -> Sequence[Stage]:
        """Stages between the codec and the handlers: they see requests. Those of the first wing come first."""
        return ()

    def kinds_of_connections(self) -> Mapping[str, Callable[..., Connection]]:
        """The classes of the connections of listeners that are no plain ones, by the listener's name."""
        return {}

    def greet(self, client: Client) -> None:
        """See the client of a new connection, before its first request."""

    def routes(self) -> Routes:
        """Handlers of APIs that the core does not have."""
        return {}

    def on_change(self, change: Change) -> None:
        """Take what another broker of the cluster has changed."""

    def look_at(self, server: Server, compaction: Compaction, address: str) -> None:
        """See the server that is to run. `address` is that of its first listener."""

    def tasks(self) -> Sequence[Callable[[], Awaitable[object]]]:
        """Tasks that run while the broker serves."""
        return ()

    def calls(self) -> Mapping[str, Callable[..., object]]:
        """Calls of the control socket, by name."""
        return {}

    def stop(self) -> None:
        """Hold nothing back: the broker ends."""

    def metrics(self) -> Iterator[Found]:
        """Metrics of its own."""
        return iter(())
