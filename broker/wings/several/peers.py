"""The connections of this broker to the others of its cluster. Tests cut it off from some: as if the network lost them.

A connection that is cut off is closed, with what is under way, and is not made again until `heal`. The broker at its
other end reaches this one still: to cut both directions, each cuts off the other.
"""

from __future__ import annotations

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.wings.several.peer import Address, Network, Peer
from minibroker.broker.wings.several.peer_login import IN_PLAIN_TEXT, PeerLogin


class Peers(Network):
    """Makes peers, which connect when they are first asked."""

    def __init__(self, config: KafkaConfig, metadata_cache: MetadataCache, login: PeerLogin = IN_PLAIN_TEXT) -> None:
        self._config = config
        self._login = login
        self._metadata_cache = metadata_cache
        self._open: set[Peer] = set()
        self._cut_off: dict[int, set[Address]] = {}  # where each broker was known since

    def at(self, host: str, port: int) -> Peer:
        """A connection of this broker as a controller, or to one."""
        return self._made((host, port), str(self._config.broker_id), self._config.controller_socket_timeout_ms)

    def to(self, broker_id: int, client_id: str) -> Peer:
        """A connection to another broker, at the listener for brokers. Raises ConnectionError without its address."""
        listener = self._config.inter_broker_listener
        address = self._metadata_cache.address_of(broker_id, listener)
        if address is None:
            raise ConnectionError(f"broker {broker_id} advertises no listener {listener}")
        return self._made(address, client_id, self._config.replica_socket_timeout_ms)

    def _made(self, address: Address, client_id: str, timeout_ms: int) -> Peer:
        return Peer(*address, client_id=client_id, timeout_ms=timeout_ms, network=self, login=self._login)

    def opened(self, peer: Peer) -> None:
        self._open.add(peer)

    def closed(self, peer: Peer) -> None:
        self._open.discard(peer)

    def cut_off(self, broker_id: int) -> None:
        """Reach a broker no more."""
        self._cut_off.setdefault(broker_id, set())
        for peer in list(self._open):
            if not self.reaches(peer.address):
                peer.close()

    def heal(self) -> None:
        """Reach all brokers again."""
        self._cut_off.clear()

    @property
    def cut_off_brokers(self) -> list[int]:
        """The brokers that are not reached."""
        return sorted(self._cut_off)

    def reaches(self, address: Address) -> bool:
        for broker_id, known in self._cut_off.items():
            broker = self._metadata_cache.brokers.get(broker_id)
            if broker is not None:
                known.update(broker.endpoints.values())
            if address in known:
                return False
        return True
