"""Reads the settings that hold addresses: listeners, their protocols, limits by address.

As kafka 2.0.1 EndPoint: a listener is NAME://host:port; its name stands for a protocol by
`listener.security.protocol.map`. An empty host is every interface, an IPv6 address stands in brackets.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

ENDPOINT = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)")
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OF_LISTENER = re.compile(r"listener\.name\.[^.]*\.(.*)")
PORT_MAX = 65_535
HINT = ", NAME://host:port"


class EndpointError(ValueError):
    """Text that is not a valid or usable address; `kafka_message` is Kafka's message, if it is of a list of them."""

    def __init__(self, message: str, of_list: str | None = None) -> None:
        super().__init__(message)
        self.kafka_message = message
        if of_list is not None:
            self.kafka_message = f"Error creating broker listeners from '{of_list}': {message.removesuffix(HINT)}"


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    protocol: str

    @property
    def is_encrypted(self) -> bool:
        return self.protocol.endswith("SSL")


def listener_prefix(listener: str) -> str:
    """The prefix of a listener's own settings."""
    return f"listener.name.{listener.lower()}."


def base_name(name: str) -> str:
    """The name without a listener's prefix: `ssl.keystore.type` for `listener.name.x.ssl.keystore.type`."""
    match = OF_LISTENER.fullmatch(name)
    return name if match is None else match[1]


def split_list(text: str) -> list[str]:
    """The non-empty elements of a comma separated list."""
    return [element for element in re.split(r"\s*,\s*", text.strip()) if element]


def split_pairs(text: str) -> list[tuple[str, str]]:
    """The pairs of a comma separated list of key:value; a key may hold colons. Raises EndpointError."""
    pairs = []
    for element in split_list(text):
        key, colon, value = element.rpartition(":")
        if not colon:
            raise EndpointError(f"{element} is not of the form key:value")
        pairs.append((key.strip(), value.strip()))
    return pairs


def protocols_by_listener(protocol_map: str) -> dict[str, str]:
    """Parse `listener.security.protocol.map`; the names in upper case. Raises EndpointError."""
    return {name.upper(): protocol.upper() for name, protocol in split_pairs(protocol_map)}


def parse_endpoints(text: str, protocol_map: str) -> list[Endpoint]:
    """Parse a list of listeners, at least one. Raises EndpointError."""
    protocols = protocols_by_listener(protocol_map)
    for _, protocol in split_pairs(protocol_map):
        if protocol.upper() not in PROTOCOLS:
            raise EndpointError(f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map")
    try:
        endpoints = [_parse_endpoint(element, protocols) for element in split_list(text)]
    except EndpointError as error:
        raise EndpointError(str(error), text) from error
    if not endpoints:
        raise EndpointError("no listener is given; at least one is needed")
    if len({endpoint.name for endpoint in endpoints}) < len(endpoints):
        raise EndpointError(f"Each listener must have a different name, listeners: {text}")
    return endpoints


def parse_listeners(text: str, protocol_map: str) -> list[Endpoint]:
    """Parse the addresses to listen on. Raises EndpointError."""
    endpoints = parse_endpoints(text, protocol_map)
    ports = [endpoint.port for endpoint in endpoints if endpoint.port != 0]
    if len(set(ports)) < len(ports):
        raise EndpointError(f"Each listener must have a different port, listeners: {text}")
    return endpoints


def parse_advertised(text: str, protocol_map: str) -> list[Endpoint]:
    """Parse the addresses that clients get in Metadata. Raises EndpointError."""
    endpoints = parse_endpoints(text, protocol_map)
    for endpoint in endpoints:
        if endpoint.host in ("0.0.0.0", "::", ""):
            raise EndpointError(
                f"advertised.listeners cannot use the nonroutable meta-address {endpoint.host or '(empty)'}."
                " Use a routable IP address."
            )
    return endpoints


def parse_connection_limits(text: str) -> dict[str, int]:
    """Parse `address:count,...` to limits by IP address; resolve names now. Raises EndpointError."""
    limits: dict[str, int] = {}
    for host, count in split_pairs(text):
        if not count.isdecimal():
            raise EndpointError(f"{count} is not a number of connections")
        try:
            found = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise EndpointError(f"{host} is not an address: {error.strerror}") from error
        limits |= {str(address[0]): int(count) for *_, address in found}
    return limits


def _parse_endpoint(text: str, protocols: dict[str, str]) -> Endpoint:
    match = ENDPOINT.fullmatch(text)
    if match is None or not 0 <= int(match[3]) <= PORT_MAX:
        raise EndpointError(f"Unable to parse {text} to a broker endpoint{HINT}")
    name = match[1].upper()
    if name not in protocols:
        raise EndpointError(f"No security protocol defined for listener {name}")
    return Endpoint(name, match[2], int(match[3]), protocols[name])
