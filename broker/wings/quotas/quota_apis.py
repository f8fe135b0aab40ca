"""DescribeClientQuotas and AlterClientQuotas: the quotas of users and client ids.

Both v0-v1 (v1 flexible). They came with Kafka 2.6 (KIP-546); the checks, their order and their messages are those of
kafka 3.9.1, with the keys and the types of entities of 2.6. An entry changes whole or not at all. A change is stored
before it is answered, and holds from then on, also for what clients have used already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from minibroker.broker.apis.client import Client
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import Change, ClusterState, store
from minibroker.broker.wings.quotas.client_quotas import KEYS, REQUEST_PERCENTAGE, ClientQuotas, Quotas
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity, Name
from minibroker.protocol.api import ApiKey, Request
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import EXACT, IS_DEFAULT, SPECIFIED
from minibroker.protocol.messages.quotas import AlterClientQuotasResponse, DescribeClientQuotasResponse

MATCH_NAMES = {EXACT: "MATCH_TYPE_EXACT", IS_DEFAULT: "MATCH_TYPE_DEFAULT", SPECIFIED: "MATCH_TYPE_SPECIFIED"}
BYTE_RATE_MAX = 2.0**63
LARGEST_FRACTION = 1e-6
NAMES_MAX_BYTES = 1 << 20  # of all entities: each change writes the file

USER, CLIENT_ID = NOUNS = "user", "client-id"

# An entity as it is sent: types with names, None for the default, in the order in which Kafka answers them.
Sent = tuple[tuple[str, str | None], ...]
Body = Any


def quotas_document(quotas: Mapping[Entity, Quotas]) -> list[dict[str, Any]]:
    """The default of a user or client id is null; one that the entity does not name is missing."""
    named = [(zip(NOUNS, entity, strict=True), limits) for entity, limits in quotas.items()]
    return [
        {
            "entity": {noun: None if name is DEFAULT else name for noun, name in names if name is not None},
            "quotas": dict(limits),
        }
        for names, limits in named
    ]


def parse_quotas(document: Sequence[Mapping[str, Any]]) -> dict[Entity, Quotas]:
    found: dict[Entity, Quotas] = {}
    for each in document:
        named = each["entity"]
        names = [None if noun not in named else DEFAULT if named[noun] is None else str(named[noun]) for noun in NOUNS]
        found[Entity(*names)] = {str(key): float(value) for key, value in each["quotas"].items()}
    return found


CLIENT_QUOTAS: Section[Mapping[Entity, Quotas]] = Section(
    "client_quotas", {}, to_json=quotas_document, from_json=parse_quotas
)


class ClientQuotaApis:
    """The handlers of both. `state` keeps the quotas, `quotas` enforces them."""

    def __init__(self, state: ClusterState, quotas: ClientQuotas) -> None:
        self._state = state
        self._quotas = quotas

    def routes(self) -> Routes:
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe_client_quotas,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter_client_quotas,
        }

    # -- DescribeClientQuotas ---------------------------------------------------------------------------------

    def describe_client_quotas(self, request: Request, client: Client) -> Body:
        components = checked_components(request.body.components)
        is_strict = request.body.strict
        return DescribeClientQuotasResponse(
            error_message="",
            entries=[
                (sent_entity(entity), sorted(quotas.items()))
                for entity, quotas in self._quotas.by_entity.items()
                if matches(entity, components, is_strict=is_strict)
            ],
        )

    # -- AlterClientQuotas ------------------------------------------------------------------------------------

    def alter_client_quotas(self, request: Request, client: Client) -> Body:
        entries = [(sent_in_order(entry.entity), entry.ops) for entry in request.body.entries]
        counts = Counter(sent for sent, _ in entries)
        outcomes: dict[Sent, KafkaError | None] = {}
        changed: dict[Entity, Quotas] = {}
        for sent, ops in entries:
            try:
                if counts[sent] > 1:
                    raise duplicate(sent)
                entity = checked_entity(sent)
                changed[entity] = self._altered(entity, sent, ops)
                outcomes[sent] = None
            except KafkaError as error:
                outcomes[sent] = error
        if not request.body.validate_only:
            self._apply(changed)
        return AlterClientQuotasResponse(
            entries=[
                (ErrorCode.NONE, None, sent) if error is None else (error.code, error.message, sent)
                for sent, error in outcomes.items()
            ]
        )

    def _altered(self, entity: Entity, sent: Sent, ops: Sequence[Any]) -> Quotas:
        """Return the quotas of an entity after the operations. Raises KafkaError."""
        quotas = dict(self._quotas.by_entity.get(entity, {}))
        if len({op.key for op in ops}) < len(ops):
            raise duplicate(sent)
        for op in ops:
            if op.remove:
                quotas.pop(op.key, None)
            else:
                check_quota(op.key, op.value)
                quotas[op.key] = op.value
        return quotas

    def _apply(self, changed: dict[Entity, Quotas]) -> None:
        """Store the changes together, then let them hold. Raises KafkaError, and changes nothing."""

        def after() -> dict[Entity, Quotas]:
            before = self._state.get(CLIENT_QUOTAS)
            return {entity: quotas for entity, quotas in {**before, **changed}.items() if quotas}

        if after() == self._state.get(CLIENT_QUOTAS):
            return
        check_names_fit(after())
        store(self._state, "the quotas", lambda: Change(sections={CLIENT_QUOTAS: after()}))
        for entity, quotas in changed.items():
            self._quotas.set(entity, quotas)


# -- entities -------------------------------------------------------------------------------------------------


def sent_in_order(components: Sequence[Any]) -> Sent:
    """The entity of a request: the last name of each type, in Kafka's order."""
    named = {component.entity_type: component.entity_name for component in components}
    known = [(kind, named[kind]) for kind in (CLIENT_ID, USER) if kind in named]
    return (*known, *((kind, name) for kind, name in named.items() if kind not in NOUNS))


def sent_entity(entity: Entity) -> Sent:
    named = ((CLIENT_ID, entity.client_id), (USER, entity.user))
    return tuple((kind, None if name is DEFAULT else name) for kind, name in named if name is not None)


def checked_entity(sent: Sent) -> Entity:
    """Raises KafkaError(INVALID_REQUEST)."""
    if not sent:
        raise invalid("Invalid empty client quota entity")
    names: dict[str, Name] = {}
    for kind, name in sent:
        if kind not in NOUNS:
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    return Entity(names.get(USER), names.get(CLIENT_ID))


def check_quota(key: str, value: float) -> None:
    """Raises KafkaError(INVALID_REQUEST) unless `key` is one of a quota, and `value` can be its limit."""
    if key not in KEYS:
        raise invalid(f"Invalid configuration key {key}")
    if not value > 0:  # nor NaN, which kafka 3.9.1 accepts
        raise invalid(f"Quota {key} must be greater than 0")
    if key == REQUEST_PERCENTAGE:
        return
    if value > BYTE_RATE_MAX:
        raise invalid(f"Proposed value for {key} is too large for a LONG.")
    if abs(value - int(value + LARGEST_FRACTION)) > LARGEST_FRACTION:
        raise invalid(f"{key} cannot be a fractional value.")


def check_names_fit(quotas: Mapping[Entity, Quotas]) -> None:
    """Raises KafkaError(INVALID_REQUEST) if the names of all entities are too long to be stored with each change."""
    size_bytes = sum(len(name.encode()) for entity in quotas for name in entity if isinstance(name, str))
    if size_bytes > NAMES_MAX_BYTES:
        raise invalid(f"The names of all entities with quotas have more than {NAMES_MAX_BYTES} bytes")


def duplicate(sent: Sent) -> KafkaError:
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in sent)
    return invalid(f"Ignoring duplicate entity ClientQuotaEntity(entries={{{named}}})")


def invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


# -- filters --------------------------------------------------------------------------------------------------


def checked_components(components: Sequence[Any]) -> dict[str, Any]:
    """The components of a filter by their type. Raises KafkaError."""
    found: dict[str, Any] = {}
    for component in components:
        kind, match_type = component.entity_type, component.match_type
        if not kind:
            raise invalid("Invalid empty entity type.")
        if kind in found:
            raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in NOUNS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in MATCH_NAMES:
            raise invalid(f"Unknown match type {match_type}")
        if match_type == EXACT and component.match is None:
            raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if match_type != EXACT and component.match is not None:
            raise invalid(f"Request specified {MATCH_NAMES[match_type]}, but also specified a match string.")
        found[kind] = component
    return found


def matches(entity: Entity, components: Mapping[str, Any], *, is_strict: bool) -> bool:
    """Whether an entity has a name for each component, and, if strict, no others."""
    for kind, name in ((USER, entity.user), (CLIENT_ID, entity.client_id)):
        component = components.get(kind)
        if component is None:
            if is_strict and name is not None:
                return False
        elif component.match_type == EXACT:
            if name != component.match:
                return False
        elif name is None or (component.match_type == IS_DEFAULT and name is not DEFAULT):
            return False
    return True
