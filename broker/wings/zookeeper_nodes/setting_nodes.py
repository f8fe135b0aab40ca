"""The nodes of settings in ZooKeeper, as sections of a ClusterState: configs of brokers, quotas and SCRAM credentials,
ACLs, and the blocks of producer ids.

A change of configs or ACLs comes with a notification, a node in a sequence, which names what has changed: all brokers
watch for these, and read the nodes that they name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from minibroker.broker.cluster.sections import NEXT_PRODUCER_ID, OLD_OFFSETS, Configs
from minibroker.broker.cluster.state import Change
from minibroker.broker.wings.zookeeper_nodes import entities, nodes
from minibroker.broker.wings.zookeeper_nodes.nodes import NO_NODE
from minibroker.broker.wings.zookeeper_nodes.old_offsets import OffsetNodes
from minibroker.zookeeper.messages import (
    SEQUENTIAL,
    Create,
    Delete,
    GetChildren,
    SetData,
    Write,
)
from minibroker.zookeeper.session import ZooKeeperClient

CHANGE_EXPIRATION_MS: Final = 15 * 60 * 1000
ACL_RULES: Final = "acls"  # the section of an authorizer
RESOURCE_TYPES: Final = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken")


class SettingNodes:
    """`take` is called with the JSON of sections as it was read, `read_topics` with the names of topics that have other
    configs. All methods raise ConnectionLost and ZooKeeperError.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        take: Callable[[Mapping[str, Any]], None],
        *,
        broker_id: int,
        has_acls: bool,
        read_topics: Callable[[Sequence[str]], None],
    ) -> None:
        self._client = client
        self._take = take
        self._broker_id = broker_id
        self._has_acls = has_acls
        self._read_topics = read_topics
        self._next_producer_id = 0
        self._acls: Sequence[Mapping[str, str]] = []
        self._entities: dict[str, Configs] = {}
        self._entity_versions: dict[str, int] = {}
        self._acl_versions: dict[tuple[str, str, str], int] = {}
        self._config_changes: set[str] | None = None  # the notifications that were read
        self._producer_ids_version = NO_NODE

    @property
    def persistent_paths(self) -> list[str]:
        """The paths of ACLs, which are there with an authorizer."""
        if not self._has_acls:
            return []
        types = [f"{root}/{each}" for root in (entities.ACLS, entities.PREFIXED_ACLS) for each in RESOURCE_TYPES]
        return [nodes.ACL_CHANGES, nodes.EXTENDED_ACL_CHANGES, *types]

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all settings, and watch for notifications."""
        self._read_config_changes()
        self._read_everybody()
        self._read_producer_ids()
        if self._has_acls:
            self._read_acls()

    read_again = read

    def refresh(self, paths: Collection[str]) -> None:
        """Read what watches of these paths have shown."""
        if nodes.CONFIG_CHANGES in paths:
            self._read_config_changes()
        if nodes.ACL_CHANGES in paths or nodes.EXTENDED_ACL_CHANGES in paths:
            self._read_acls()

    def versions(self) -> object:
        """The versions by which a change may be stale."""
        return self._producer_ids_version, dict(self._entity_versions), dict(self._acl_versions)

    def _read_producer_ids(self) -> None:
        node = self._client.data(nodes.PRODUCER_IDS)
        self._producer_ids_version = node.stat.version
        self._next_producer_id = nodes.PRODUCERS.decode(node.data).end + 1 if node.data else 0
        self._take({NEXT_PRODUCER_ID.name: self._next_producer_id})

    def _read_everybody(self) -> None:
        """Read the configs of brokers, users and client ids."""
        users = self._client.children("/config/users")
        clients = self._client.ask_all([GetChildren(f"/config/users/{user}/clients") for user in users])
        paths = [
            f"{kind}/{name}" for kind in ("brokers", "clients") for name in self._client.children(f"/config/{kind}")
        ]
        for user, answer in zip(users, clients, strict=True):
            paths.append(f"users/{user}")
            if isinstance(answer, list):
                paths += [f"users/{user}/clients/{client_id}" for client_id in answer]
        self._read_entities(paths)

    def _read_entities(self, paths: Sequence[str]) -> None:
        for path, node in zip(paths, self._client.data_of(map(nodes.config_path, paths)), strict=True):
            if node is None:
                self._entities.pop(path, None)
                self._entity_versions.pop(path, None)
            else:
                self._entities[path], self._entity_versions[path] = nodes.configs_of(node)
        self._take({name: each.of(self._entities) for name, each in entities.IN_ENTITIES.items()})

    def _read_config_changes(self) -> None:
        """Read what the new notifications name; remove old ones, which all brokers have read.

        As kafka 2.0.1 ZkNodeChangeNotificationListener.
        """
        names = self._client.children(nodes.CONFIG_CHANGES, watch=True)
        new = [] if self._config_changes is None else sorted(set(names) - self._config_changes)
        self._config_changes = set(names)
        answers = self._client.data_of(f"{nodes.CONFIG_CHANGES}/{name}" for name in sorted(names))
        found = {name: node for name, node in zip(sorted(names), answers, strict=True) if node is not None}
        if found:
            newest_ms = max(each.stat.ctime_ms for each in found.values())
            old = [name for name, each in found.items() if newest_ms - each.stat.ctime_ms > CHANGE_EXPIRATION_MS]
            self._client.ask_all([Delete(f"{nodes.CONFIG_CHANGES}/{name}") for name in old])
        paths = [nodes.CONFIG_CHANGE.decode(found[name].data) for name in new if name in found]
        topics = [name for path in paths if (name := path.removeprefix("topics/")) != path]
        self._read_topics(list(dict.fromkeys(topics)))
        self._read_entities([path for path in dict.fromkeys(paths) if not path.startswith("topics/")])

    def _read_acls(self) -> None:
        for path in (nodes.ACL_CHANGES, nodes.EXTENDED_ACL_CHANGES):
            self._client.children(path, watch=True)
        resources = [
            (pattern, resource_type, name)
            for pattern in (entities.LITERAL, entities.PREFIXED)
            for resource_type in RESOURCE_TYPES
            for name in sorted(self._client.children_if_any(entities.acls_path(pattern, resource_type, "")[:-1]))
        ]
        answers = self._client.data_of(entities.acls_path(*each) for each in resources)
        rows: list[Mapping[str, str]] = []
        self._acl_versions.clear()
        for resource, node in zip(resources, answers, strict=True):
            if node is not None:
                self._acl_versions[resource] = node.stat.version
                rows += entities.rows_of_resource(*resource, node.data)
        self._acls = rows
        self._take({ACL_RULES: rows})

    # -- writing ----------------------------------------------------------------------------------------------

    def writes(self, change: Change) -> Iterator[Write]:
        """The writes that store a change."""
        documents = documents_of(change)
        if NEXT_PRODUCER_ID.name in documents:
            block = nodes.ProducerIdsNode(self._broker_id, self._next_producer_id, documents[NEXT_PRODUCER_ID.name] - 1)
            yield SetData(nodes.PRODUCER_IDS, nodes.PRODUCERS.encode(block), self._producer_ids_version)
        yield from self._writes_of_entities(documents)
        if ACL_RULES in documents:
            yield from self._writes_of_acls(documents[ACL_RULES])
        if (old_offsets := change.get(OLD_OFFSETS)) is not None:
            yield from OffsetNodes(self._client).writes(old_offsets)

    def _writes_of_entities(self, documents: Mapping[str, Any]) -> Iterator[Write]:
        wanted: dict[str, Configs] = {}
        for name, each in entities.IN_ENTITIES.items():
            if name in documents:
                wanted |= each.written({**self._entities, **wanted}, documents[name])
        changed = {path: configs for path, configs in wanted.items() if configs != self._entities.get(path, {})}
        new = [path for path in sorted(changed) if path not in self._entity_versions]
        users = dict.fromkeys(path.partition("/clients/")[0] for path in new if "/clients/" in path)
        above = [path for user in users for path in (user, f"{user}/clients") if path not in changed]
        missing = self._client.missing(map(nodes.config_path, above))
        for path in sorted((*above, *changed)):  # those above before those below
            if path in changed:
                yield from entity_writes(path, changed[path], self._entity_versions.get(path, NO_NODE))
            elif (config := nodes.config_path(path)) in missing:
                yield Create(config)

    def _writes_of_acls(self, wanted: Sequence[Mapping[str, str]]) -> Iterator[Write]:
        before, after = entities.by_resource(self._acls), entities.by_resource(wanted)
        for resource in dict.fromkeys((*before, *after)):
            if before.get(resource) == after.get(resource):
                continue
            path, version = entities.acls_path(*resource), self._acl_versions.get(resource, NO_NODE)
            if resource not in after:
                yield Delete(path, version)
            else:
                yield nodes.written(path, entities.acls_data(after[resource]), version)
            changes = nodes.ACL_CHANGES if resource[0] == entities.LITERAL else nodes.EXTENDED_ACL_CHANGES
            yield Create(f"{changes}/acl_changes_", entities.acl_change_data(*resource), SEQUENTIAL)

    def install(self, change: Change) -> None:
        """Take what was stored: it is read, for its versions."""
        names = {section.name for section in change.sections}
        if NEXT_PRODUCER_ID.name in names:
            self._read_producer_ids()
        if names & entities.IN_ENTITIES.keys():
            self._read_everybody()
        if ACL_RULES in names:
            self._read_acls()


def entity_writes(path: str, configs: Configs, version: int) -> Iterator[Write]:
    """Store an entity's configs, and have all brokers read them. As kafka 2.0.1 AdminZkClient.changeEntityConfig."""
    yield nodes.written(nodes.config_path(path), nodes.CONFIG.encode(configs), version)
    yield Create(f"{nodes.CONFIG_CHANGES}/config_change_", nodes.CONFIG_CHANGE.encode(path), SEQUENTIAL)


def documents_of(change: Change) -> dict[str, Any]:
    """The JSON of a change's sections that are nodes of settings."""
    names = {NEXT_PRODUCER_ID.name, ACL_RULES, *entities.IN_ENTITIES}
    return {section.name: section.to_json(value) for section, value in change.sections.items() if section.name in names}
