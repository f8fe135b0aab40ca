"""The subject of a certificate, compared with what JDK 17 X500Principal.getName gives for the same bytes."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import NameAttribute, ObjectIdentifier, RelativeDistinguishedName
from cryptography.x509.name import _ASN1Type as Kind
from cryptography.x509.oid import NameOID

from minibroker.broker.wings.security.distinguished_name import subject_of

KEY = ec.generate_private_key(ec.SECP256R1())
LONG_AGO = datetime.datetime(2024, 1, 1)
OIDS = {
    "CN": NameOID.COMMON_NAME,
    "C": NameOID.COUNTRY_NAME,
    "L": NameOID.LOCALITY_NAME,
    "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "STREET": NameOID.STREET_ADDRESS,
    "O": NameOID.ORGANIZATION_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "UID": NameOID.USER_ID,
    "DC": NameOID.DOMAIN_COMPONENT,
    "E": NameOID.EMAIL_ADDRESS,
    "SERIAL": NameOID.SERIAL_NUMBER,
    "TITLE": NameOID.TITLE,
    "UNSTRUCTURED": ObjectIdentifier("1.2.840.113549.1.9.2"),
    "ODD": ObjectIdentifier("2.999.3"),
}
Attribute = tuple[str, str] | tuple[str, str, Kind]


def certificate(*names: list[Attribute]) -> bytes:
    """A certificate of relative names, each a list of attributes: OID, value and perhaps its type."""
    subject = x509.Name(
        [RelativeDistinguishedName([NameAttribute(OIDS[oid], *rest) for oid, *rest in name]) for name in names]
    )
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([NameAttribute(OIDS["CN"], "ca")]),
        subject_name=subject,
        public_key=KEY.public_key(),
        serial_number=2**150,
        not_valid_before=LONG_AGO,
        not_valid_after=LONG_AGO.replace(year=2124),
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("names", "subject"),
    [
        (
            [[("C", "NL")], [("ST", "Noord Holland")], [("L", "Delft")], [("O", "Acme, Inc.")], [("CN", "alice")]],
            "CN=alice,O=Acme\\, Inc.,L=Delft,ST=Noord Holland,C=NL",
        ),
        ([[("CN", ' a+b="c"<d>;#e\\f ')]], 'CN=\\ a\\+b\\=\\"c\\"\\<d\\>\\;\\#e\\\\f\\ '),
        ([[("CN", "#x")], [("CN", "   ")], [("CN", "a  b")]], "CN=a  b,CN=\\ \\ \\ ,CN=\\#x"),
        ([[("CN", "é日本😀")]], "CN=é日本😀"),
        ([[("O", "Ünï", Kind.BMPString)]], "O=\\00�\\00n\\00�"),
        ([[("O", "uni", Kind.UniversalString)], [("CN", "tele", Kind.T61String)]],
         "CN=tele,O=#1c0c000000750000006e00000069"),
        (
            [[("E", "a@b.c", Kind.IA5String)], [("SERIAL", "123")], [("TITLE", "Dr")]],
            "2.5.4.12=#0c024472,2.5.4.5=#1303313233,1.2.840.113549.1.9.1=#16056140622e63",
        ),
        ([[("UNSTRUCTURED", "un")], [("ODD", "odd")]], "2.999.3=#0c036f6464,1.2.840.113549.1.9.2=#0c02756e"),
        (
            [[("DC", "org", Kind.IA5String)], [("UID", "u1")], [("STREET", "Main 1")]],
            "STREET=Main 1,UID=u1,DC=org",
        ),
        ([[("OU", "b"), ("CN", "a"), ("UID", "c")], [("CN", "z")]], "CN=z,CN=a+OU=b+UID=c"),
        ([[("CN", "a\tb\nc\rd\0e\x7f")], [("CN", "\rx\r")]], "CN=\\\rx\\\r,CN=a\tb\nc\rd\\00e\x7f"),
        ([], ""),
    ],
)  # fmt: skip
def test_a_subject_is_written_as_java_writes_it(names: list[list[Attribute]], subject: str) -> None:
    assert subject_of(certificate(*names)) == subject


def test_a_certificate_that_is_cut_off_is_refused() -> None:
    whole = certificate([("CN", "alice")])

    for size in range(len(whole)):
        with pytest.raises(ValueError, match="not a certificate"):
            subject_of(whole[:size])
