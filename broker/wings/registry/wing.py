"""The schema registry: Confluent's REST interface in the broker's process, with its schemas in `_schemas`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wing import Wing


class RegistryWing(Wing):
    """Serves the registry on the socket of the options, which is bound before the broker starts."""

    def __init__(self, parts: BrokerParts) -> None:
        from minibroker.broker.wings.registry.serving import Serving

        assert parts.options.schema_registry is not None
        self._ended = trio.Event()
        self._serving = Serving(parts, parts.options.schema_registry, self._ended)

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.schema_registry is not None

    @classmethod
    def problems(cls, config: KafkaConfig, options: ServeOptions) -> Sequence[str]:
        if options.schema_registry_address is None:
            return ()
        if options.zookeeper is not None:
            return [
                "--schema-registry is of a broker that is alone, or of `serve --brokers`, and this one is of a cluster"
                " with Apache Kafka; leave it away"
            ]
        if options.cluster_dir is not None and config.endpoints[0].is_encrypted:
            return [
                "--schema-registry passes requests on to the leader's in plaintext, and the first listener has TLS; "
                "name another listener first"
            ]
        from minibroker.broker.wings.registry.access import problems_of

        return problems_of(config)

    def tasks(self) -> Sequence[Callable[[], Awaitable[object]]]:
        return [self._serving.run]

    def stop(self) -> None:
        self._ended.set()
