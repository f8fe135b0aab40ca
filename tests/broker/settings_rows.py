"""Settings and what a broker makes of them: it starts, or the errors with which it does not.

`tests/golden/settings/*.txt` have them, each set under a title that states a behaviour. `python -m
tests.broker.settings_rows [FILE...]` judges them again and writes the outcomes down: read the diff of the files.

    == a value has the type of its setting       rows that belong together
    settings listeners=SSL://:0                  what all these rows have beside their own
    > num.partitions=3 | broker.id=x             a row: its settings
    > change 0: log.roll.ms=0                    a change of broker 0 while it runs, "" for all brokers
    > jaas M required a="b";                     a login module; \\n is a new line
    > properties 'a=1\\nb=2'                       a file; also: environment A=1, principal 'RULES', 'NAME'
    > variables A=1 | B=2                        a broker that starts with these variables; `given` are the settings
    < starts                                     the outcome; then values that are read otherwise than they are written,
    < broker.id=0                                warnings and notes, and where the broker listens

`{stores}` stands for a folder of key stores, `{password}` for their password.
"""

from __future__ import annotations

import ast
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig, load_config
from minibroker.broker.config.settings.changeable import SETTINGS, InvalidDynamicConfig
from minibroker.broker.wings.images import other_images
from minibroker.broker.wings.images.environment import settings_of_environment
from minibroker.broker.wings.images.images import Images
from minibroker.broker.wings.security.principal_mapping import InvalidRules, NoMatchingRule, parse_rules, user_of
from minibroker.broker.wings.security.tls import problems_of
from minibroker.protocol.jaas import JaasError, parse_jaas
from minibroker.protocol.java_properties import PropertiesError, read_properties
from tests.books import GOLDEN, Book, Script, as_recorded, record_books, settings_of
from tests.certificates import PASSWORD, Certificates

FOLDER = GOLDEN / "settings"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS_FILES = {
    "users.conf": f"""// of two mechanisms
KafkaServer {{
    {PLAIN} required
        username="admin" password="a"
        user_admin="a" user_ann="b";
    {SCRAM} required username="admin" password="a";
}};
in.KafkaServer {{ {PLAIN} required user_bob="c"; }};
KafkaClient {{ com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; }};
""",
    "in.conf": f"in.KafkaServer {{ {PLAIN} required; }};",
    "unknown.conf": "KafkaServer { no.Such required; };",
    "open.conf": f"KafkaServer {{\n  {PLAIN} required\n  user_ann=hunter2\n}};\n",
    "number.conf": f"\nKafkaServer {{\n  {PLAIN} required\n  user_ann=12;\n}};\n",
    "unclosed.conf": f"KafkaServer {{\n  {PLAIN} required;\n",
    "nameless.conf": f"{PLAIN} required;\n",
}
REASON_OF_OPENSSL = re.compile(r"\(None\)|\(\[SSL\].*?\(_ssl\.c:\d+\)\)")
OF_LISTENERS = {"listeners", "advertised.listeners", "host.name", "port", "advertised.host.name", "advertised.port"}


def judged(text: str, beside: dict[str, str], stores: Path) -> list[str]:
    """The outcome of a row, as the lines of a file."""
    words = {"{stores}": str(stores), "{password}": PASSWORD}
    given = beside
    for word, stands_for in words.items():
        text = text.replace(word, stands_for)
        given = {name: value.replace(word, stands_for) for name, value in given.items()}
    with patch.object(other_images, "SECRETS", stores):
        lines = "\n".join(outcome(text, given)).replace(str(stores), "{stores}")
    return REASON_OF_OPENSSL.sub("(a reason of OpenSSL)", lines).splitlines()


def outcome(text: str, beside: dict[str, str]) -> Iterator[str]:
    kind, _, rest = text.partition(" ")
    try:
        if kind == "jaas":
            module = parse_jaas(rest.replace("\\n", "\n"))
            yield f"{module.name} {module.options}"
        elif kind == "change":
            broker, _, rows = rest.partition(": ")
            DynamicConfig(KafkaConfig(beside)).changed(broker.strip('"'), settings_in(rows))
            yield "changed"
        elif kind == "properties":
            yield str(read_properties(ast.literal_eval(rest)))
        elif kind == "environment":
            yield str(settings_of_environment(settings_of(rest)).settings)
        elif kind == "variables":
            yield from started_by(settings_in(rest))
        elif kind == "principal":
            rules, name = ast.literal_eval(f"[{rest}]")
            yield user_of(name, parse_rules(rules))
        else:
            yield from started(settings_in(text), beside)
    except (ConfigError, InvalidDynamicConfig, JaasError, PropertiesError, InvalidRules, NoMatchingRule) as refused:
        yield str(refused) or type(refused).__name__
        yield from remarks(refused) if isinstance(refused, ConfigError) else ()


AS_USED = "", 0  # the address that a client has used


def settings_in(text: str) -> dict[str, str]:
    rows = (each.partition("=") for each in text.split(" | "))
    return {name: value for name, _, value in rows if name}


def started(given: dict[str, str], beside: dict[str, str]) -> Iterator[str]:
    config = KafkaConfig(beside | given)
    problems = problems_of(config)
    if problems:
        yield from problems
        return
    yield "starts"
    for name, value in given.items():
        if name in SETTINGS and config.text_of(name) not in (value, None):
            yield f"{name}={config.text_of(name)}"
    yield from remarks(config)
    if OF_LISTENERS & given.keys():
        for each in config.endpoints:
            found = config.advertised_endpoints.get(each.name)
            advertised = None if found == AS_USED else found
            yield f"listens {each.name}://{each.host}:{each.port} {each.protocol}, advertised {advertised}"


def started_by(variables: dict[str, str]) -> Iterator[str]:
    """The settings that an environment adds, and the warnings and notes on the others."""
    nothing, config = (environment_config(each) for each in ({"HOME": "/"}, variables))
    for name, value in config.given.items():
        if nothing.given.get(name) != value:
            yield f"given {name}={value}"
    yield from remarks(config)


def environment_config(variables: dict[str, str]) -> KafkaConfig:
    return load_config(None, [], listen=None, data_dir=None, images=Images(variables))


def remarks(found: KafkaConfig | ConfigError) -> Iterator[str]:
    yield from (f"warning: {each}" for each in found.warnings)
    yield from (f"note: {each}" for each in found.notes)


def as_judged(script: Script, stores: Path) -> str:
    """The rows of a title with their outcomes now, as a file has them."""
    return as_recorded(script, (judged(step, script.settings, stores) for step in script.steps))


def make_stores(folder: Path) -> Path:
    """Put the key stores into a folder that rows name, right ones and wrong ones."""
    made = Certificates(folder)
    (folder / "server.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    (folder / "garbage").write_bytes(b"garbage")
    (folder / "keys.json").write_text("{}")
    (folder / "password").write_text("-Dw=1\n")
    (folder / "passwords").write_text("a1,b2\n")
    for name, text in JAAS_FILES.items():
        (folder / name).write_text(text)
    content = made.issued().read_bytes()
    key = load_pem_private_key(content, None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode())
    )
    (folder / "encrypted.pem").write_bytes(key + content[content.index(b"-----BEGIN CERT") :])
    made.key_store, made.trust_store, made.authority  # noqa: B018
    return folder


def judged_again(book: Book) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        stores = make_stores(Path(folder))
        yield from (as_judged(each, stores) for each in book.scripts.values())


if __name__ == "__main__":
    record_books(FOLDER, judged_again)
