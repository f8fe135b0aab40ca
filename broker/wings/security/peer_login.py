"""How this broker gets into the listener of the others for brokers: TLS, SASL, or both, as that listener has it here.

As kafka 2.0.1 ChannelBuilders.clientChannelBuilder: with the key and trust stores of the listener, and as the user that
its login module names for `sasl.mechanism.inter.broker.protocol`.
"""

from __future__ import annotations

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.wings.several.peer_login import IN_PLAIN_TEXT, PeerLogin


def peer_login(config: KafkaConfig) -> PeerLogin:
    """Raises KeyStoreError and SaslError where this broker cannot get into such a listener."""
    name = config.inter_broker_listener
    endpoint = next(each for each in config.endpoints if each.name == name)
    login = IN_PLAIN_TEXT
    if endpoint.is_encrypted:
        from minibroker.broker.wings.security.tls import TlsListener, TlsSettings, check_own_key, client_context

        check_own_key(TlsSettings.of(config, name))
        login = login._replace(make_context=TlsListener(config, name, client_context).context)
    if name in config.sasl_listeners:
        from minibroker.broker.config.sasl import own_account

        mechanism = config.sasl_mechanism_inter_broker_protocol
        user, password = own_account(name, mechanism, config.sasl_listeners[name])
        login = login._replace(mechanism=mechanism, user=user, password=password)
    return login
