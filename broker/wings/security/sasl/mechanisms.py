"""The mechanisms that a listener offers, each with what makes the server's side of a login."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.config.sasl import OAUTHBEARER, PLAIN, accounts
from minibroker.broker.wings.security.sasl.mechanism import SaslServer
from minibroker.broker.wings.security.sasl.oauthbearer import OAuthBearerServer, TokenValidator
from minibroker.broker.wings.security.sasl.plain import PlainAccounts, PlainServer
from minibroker.broker.wings.security.sasl.scram import ScramServer
from minibroker.broker.wings.security.sasl.tokens import SignedTokens, UnsecuredTokens
from minibroker.broker.wings.security.sasl.users import ScramUsers
from minibroker.protocol.scram import BY_NAME

MakeServer = Callable[[], SaslServer]


def mechanisms_of(
    listener: str, config: KafkaConfig, users: ScramUsers, now_ms: Callable[[], int]
) -> Mapping[str, MakeServer]:
    """The enabled mechanisms of a listener in their order; `now_ms` is the wall clock's time."""
    makers: dict[str, MakeServer] = {}
    settings = config.sasl_listeners[listener]
    for mechanism, module in settings.mechanisms.items():
        if mechanism == PLAIN:
            makers[mechanism] = partial(PlainServer, PlainAccounts(accounts(module)))
        elif mechanism == OAUTHBEARER:
            validator: TokenValidator = UnsecuredTokens(module.options, now_ms)
            if settings.keys_file is not None:
                value = partial(config.for_listener, listener)
                validator = SignedTokens(
                    settings.keys_file,
                    now_ms,
                    audiences=value("sasl.oauthbearer.expected.audience"),
                    issuer=value("sasl.oauthbearer.expected.issuer"),
                    skew_ms=value("sasl.oauthbearer.clock.skew.seconds") * 1000,
                    user_claim=value("sasl.oauthbearer.sub.claim.name"),
                )
            makers[mechanism] = partial(OAuthBearerServer, validator)
        else:
            makers[mechanism] = partial(ScramServer, BY_NAME[mechanism], users.credential)
    return makers
