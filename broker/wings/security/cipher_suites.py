"""Translates cipher suites from the names of Java and the IANA, which Kafka's settings have, to those of OpenSSL."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from functools import cache

TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
NAME = re.compile(r"(?:TLS|SSL)_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+?)(?P<hash>_SHA(?:256|384)?)?")


class UnknownCipherSuite(ValueError):
    """A name of a suite that this broker cannot use."""


def openssl_names(names: Iterable[str]) -> tuple[list[str], bool]:
    """OpenSSL's names of the suites of TLS 1.2, and whether there are suites of TLS 1.3. Raises UnknownCipherSuite.

    OpenSSL chooses the suites of TLS 1.3 itself: all of them, or none.
    """
    names = list(names)
    older = [name for name in names if name not in TLS_1_3]
    translated = {name: _translated(name) for name in older}
    unknown = [name for name, found in translated.items() if found not in usable()]
    if unknown:
        raise UnknownCipherSuite(f"ssl.cipher.suites: this broker has no suite {', '.join(unknown)}")
    return list(translated.values()), len(older) < len(names)


def _translated(name: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256` is ECDHE-RSA-AES128-SHA256; empty for another form."""
    match = NAME.fullmatch(name)
    if match is None:
        return ""
    exchange = match["exchange"].replace("_", "-")
    cipher = (
        re.sub(r"^AES_(128|256)", r"AES\1", match["cipher"])
        .replace("_CBC", "")
        .replace("_CCM_8", "_CCM8")
        .replace("_", "-")
    )
    digest = (match["hash"] or "").replace("_", "-")
    if cipher == "CHACHA20-POLY1305" or cipher.endswith(("-CCM", "-CCM8")):
        digest = ""
    return f"{cipher}{digest}" if exchange == "RSA" else f"{exchange}-{cipher}{digest}"


@cache
def usable() -> frozenset[str]:
    """OpenSSL's names of the suites of TLS 1.2 that authenticate and encrypt."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:!aNULL:!eNULL")
    return frozenset(each["name"] for each in context.get_ciphers() if not each["name"].startswith("TLS_"))
