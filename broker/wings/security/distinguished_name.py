"""The subject of a certificate as Java writes it: `CN=alice,OU=dev,O=Acme\\, Inc.,C=NL`, the name of a TLS principal.

As JDK 17 X500Principal.getName, which is RFC 2253: the most specific part first, no space after a comma. Only the nine
attributes of the RFC have a keyword; another one is its OID with the value's DER in hexadecimal. Reads just enough DER
for that, from a certificate that OpenSSL has verified.
"""

from __future__ import annotations

from typing import NamedTuple

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString; Java reads all of them as UTF-8
STRING_TAGS = {0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E}
EXPLICIT_VERSION_TAG = 0xA0
SUBJECT_INDEX = 4  # behind the serial number: algorithm, issuer, validity, subject
LONG_LENGTH = 0x80
ESCAPED = ',=+<>#;"\\'
STRIPPED = " \r"  # escaped where they begin or end a value


class Element(NamedTuple):
    """One DER element: `content` without, `whole` with its tag and length."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises ValueError if it is not one."""
    try:
        fields = elements(elements(elements(certificate)[0].content)[0].content)
        if fields[0].tag == EXPLICIT_VERSION_TAG:
            fields.pop(0)
        names = elements(fields[SUBJECT_INDEX].content)
        return ",".join("+".join(map(attribute, elements(name.content))) for name in reversed(names))
    except IndexError as error:
        raise ValueError("not a certificate") from error


def attribute(element: Element) -> str:
    """One attribute of a relative name: its keyword or OID, and its value."""
    identifier, value = elements(element.content)
    oid = oid_of(identifier.content)
    if oid not in KEYWORDS or value.tag not in STRING_TAGS:
        return f"{KEYWORDS.get(oid, oid)}=#{value.whole.hex()}"
    return f"{KEYWORDS[oid]}={escaped(value.content.decode('utf-8', 'replace'))}"


def escaped(text: str) -> str:
    inner = text.strip(STRIPPED)
    start = len(text) - len(text.lstrip(STRIPPED)) if inner else len(text)
    head, tail = text[:start], text[start + len(inner) :]
    middle = "".join(f"\\{each}" if each in ESCAPED else each for each in inner).replace("\0", "\\00")
    return "".join(f"\\{each}" for each in head) + middle + "".join(f"\\{each}" for each in tail)


def oid_of(content: bytes) -> str:
    """An object identifier in dots."""
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    root = min(arcs[0] // 40, 2)
    return ".".join(map(str, (root, arcs[0] - 40 * root, *arcs[1:])))


def elements(data: bytes) -> list[Element]:
    """Split the content of a constructed element. Raises IndexError where it ends too early."""
    found = []
    position = 0
    while position < len(data):
        start = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length >= LONG_LENGTH:
            width = length - LONG_LENGTH
            length = int.from_bytes(data[position : position + width], "big")
            position += width
        if position + length > len(data):
            raise IndexError("an element is longer than its container")
        found.append(Element(tag, data[position : position + length], data[start : position + length]))
        position += length
    return found
