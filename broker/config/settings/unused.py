"""Settings of a Kafka 2.0 broker that are accepted but have no effect here, with the reasons.

One line a setting: name, type, default (- for none, "" for empty), least or allowed values. `ONLY_CHECKED` are rows of
`table.py` that only the rules between settings use. A test checks that no code reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from minibroker.broker.config.settings import types
from minibroker.broker.config.settings.endpoints import base_name
from minibroker.broker.config.settings.types import Setting


class Reason(NamedTuple):
    text: str
    is_warning: bool  # ignoring the setting may hurt


NO_ZOOKEEPER = Reason("this broker needs no ZooKeeper", False)
ONE_LOOP = Reason("one event loop serves all connections, each with one request in hand", False)
ONE_DIRECTORY = Reason("this broker has one log directory", False)
ALWAYS_HANDS_OVER = Reason("a broker of a cluster always has others lead before it stops", False)
BETWEEN_BROKERS = Reason("brokers wait for each other by other settings, with the buffers of the kernel", False)
NO_TOKENS = Reason("this broker has no delegation tokens, and stores no secret that is changed", True)
NO_KERBEROS = Reason("this broker has no Kerberos", True)
NO_LOGIN = Reason("this broker logs in to no other broker", False)
OF_MECHANISMS = Reason(
    "a broker reads the one of a listener and mechanism, listener.name.<listener>.<mechanism>.sasl.jaas.config", True
)
NO_JAVA_SECURITY = Reason("OpenSSL encrypts connections here, and Python checks names", False)
OF_BROKER = Reason("this setting is not one of a listener", True)
NO_PLUGINS = Reason("this broker cannot load Java classes", True)
NO_METRICS = Reason("metrics have no reporters and no samples here: --metrics serves them to Prometheus", False)
ONE_COMPACTION = Reason("this broker compacts one log at a time", False)

# A property of Kafka's JVM, no setting: where the login modules of listeners are that have no setting for them.
JAAS_FILE = "java.security.auth.login.config"

OF_LISTENER = "listener.name."
LISTENERS_OWN = ("ssl.", "sasl.", "connections.max.reauth.ms")  # what one listener may have for itself
# What one mechanism of a listener may have: listener.name.<listener>.<mechanism>.<setting>.
OF_MECHANISM = ("sasl.jaas.config", "sasl.server.callback.handler.class", "connections.max.reauth.ms")

ONLY_CHECKED = {
    "log.cleaner.threads": ONE_COMPACTION,
    "metrics.recording.level": NO_METRICS,
}

UNUSED = {
    NO_ZOOKEEPER: """
        zookeeper.max.in.flight.requests                       int       10 1
        zookeeper.sync.time.ms                                 int       2000
    """,
    ONE_LOOP: """
        background.threads                                     int       10 1
        num.io.threads                                         int       8 1
        num.network.threads                                    int       3 1
        num.recovery.threads.per.data.dir                      int       1 1
        queued.max.requests                                    int       500 1
    """,
    ONE_DIRECTORY: """
        alter.log.dirs.replication.quota.window.num            int       11 1
        alter.log.dirs.replication.quota.window.size.seconds   int       1 1
        num.replica.alter.log.dirs.threads                     int       -
    """,
    ALWAYS_HANDS_OVER: """
        controlled.shutdown.enable                             boolean   true
        controlled.shutdown.max.retries                        int       3
        controlled.shutdown.retry.backoff.ms                   long      5000
    """,
    BETWEEN_BROKERS: """
        replica.socket.receive.buffer.bytes                    int       65536
        request.timeout.ms                                     int       30000
    """,
    NO_TOKENS: """
        delegation.token.expiry.check.interval.ms              long      3600000 1
        delegation.token.expiry.time.ms                        long      86400000 1
        delegation.token.master.key                            password  -
        delegation.token.max.lifetime.ms                       long      604800000 1
        password.encoder.cipher.algorithm                      string    AES/CBC/PKCS5Padding
        password.encoder.iterations                            int       4096 1024
        password.encoder.key.length                            int       128 8
        password.encoder.keyfactory.algorithm                  string    -
        password.encoder.old.secret                            password  -
        password.encoder.secret                                password  -
    """,
    NO_JAVA_SECURITY: """
        ssl.keymanager.algorithm                               string    SunX509
        ssl.protocol                                           string    TLS
        ssl.provider                                           string    -
        ssl.secure.random.implementation                       string    -
        ssl.trustmanager.algorithm                             string    PKIX
    """,
    NO_KERBEROS: """
        sasl.kerberos.kinit.cmd                                string    /usr/bin/kinit
        sasl.kerberos.min.time.before.relogin                  long      60000
        sasl.kerberos.principal.to.local.rules                 list      DEFAULT
        sasl.kerberos.service.name                             string    -
        sasl.kerberos.ticket.renew.jitter                      double    0.05
        sasl.kerberos.ticket.renew.window.factor               double    0.8
    """,
    NO_LOGIN: """
        sasl.client.callback.handler.class                     class     -
        sasl.login.callback.handler.class                      class     -
        sasl.login.class                                       class     -
        sasl.login.refresh.buffer.seconds                      short     300
        sasl.login.refresh.min.period.seconds                  short     60
        sasl.login.refresh.window.factor                       double    0.8
        sasl.login.refresh.window.jitter                       double    0.05
    """,
    OF_MECHANISMS: """
        sasl.jaas.config                                       password  -
        sasl.server.callback.handler.class                     class     -
    """,
    NO_PLUGINS: """
        alter.config.policy.class.name                         class     -
        client.quota.callback.class                            class     -
        create.topic.policy.class.name                         class     -
        principal.builder.class                                class     -
    """,
    NO_METRICS: """
        metric.reporters                                       list      ""
        metrics.num.samples                                    int       2 1
        metrics.sample.window.ms                               long      30000 1
    """,
}

TYPES = {
    kind.name.lower(): kind
    for kind in (
        types.INT,
        types.LONG,
        types.SHORT,
        types.DOUBLE,
        types.BOOLEAN,
        types.STRING,
        types.LIST,
        types.CLASS,
        types.PASSWORD,
    )
}


def reason_unused(name: str) -> Reason | None:
    """Why setting `name` has no effect; None if it has one, or is unknown."""
    if name in UNUSED_SETTINGS:
        return UNUSED_SETTINGS[name][1]
    if name.startswith(OF_LISTENER):
        own = base_name(name)
        if own.partition(".")[2] in OF_MECHANISM:
            return None
        return reason_unused(own) if own.startswith(LISTENERS_OWN) else OF_BROKER
    return ONLY_CHECKED.get(name)


def own_name(name: str) -> str:
    """The setting that `listener.name.<listener>.<setting>` or `listener.name.<listener>.<mechanism>.<setting>` is."""
    own = base_name(name)
    of_mechanism = own.partition(".")[2]
    return of_mechanism if of_mechanism in OF_MECHANISM else own


def _row(name: str, type_name: str, default: str, allowed: str = "") -> Setting[Any]:
    kind: Any = TYPES[type_name]
    check: Any = types.ANY
    if allowed.isdecimal():
        check = types.at_least(int(allowed))
    elif allowed:
        check = types.one_of(*allowed.split(","))
    row = Setting(kind, None if default == "-" else kind.parse(default.strip('"')), check, "")
    row.name = name
    return row


UNUSED_SETTINGS = {
    fields[0]: (_row(*fields), reason)
    for reason, rows in UNUSED.items()
    for fields in map(str.split, rows.strip().splitlines())
}
