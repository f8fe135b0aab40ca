"""The schema registry itself: what is registered, found, compared and deleted. As Confluent's KafkaSchemaRegistry.

One change at a time: a change reads what the topic says, decides, and is done when it is read back. Schemas are parsed
and compared in a thread, so that a large one does not hold up the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import trio

from minibroker.broker.upkeep import threads
from minibroker.broker.wings.registry import refusals
from minibroker.broker.wings.registry.records import (
    AVRO,
    CONFIG,
    DELETE_SUBJECT,
    MODE,
    Contents,
    Reference,
    Version,
    as_bytes,
    key_of,
    schema_key,
)
from minibroker.broker.wings.registry.schema_log import SchemaLog
from minibroker.protocol.text import OTHER_FORM
from minibroker.schemas.schema import LEVELS, MODULES, Schema, SchemaError, incompatible, parse

DEFAULT_LEVEL = "BACKWARD"
READWRITE, IMPORT = "READWRITE", "IMPORT"
MODES = (READWRITE, "READONLY", "READONLY_OVERRIDE", IMPORT)
PARSED_MAX = 256
IDENTITIES_MAX = 16_384  # a new schema is compared with that of each stored one
LATEST = "latest"
VERSION_MAX = 2**31 - 1

parsed = lru_cache(PARSED_MAX)(lambda kind, text, references: parse(kind, text, dict(references)))


@lru_cache(IDENTITIES_MAX)
def identity_of(kind: str, text: str, references: tuple[tuple[str, str], ...], normalize: bool) -> str:
    """The text that equal schemas have in common. Raises as `parse`."""
    schema = parsed(kind, text, references)
    return str(schema.normalized() if normalize else schema.identity)


class Given(NamedTuple):
    """A schema that a client sends. `id` and `version` are those of another registry, for the mode IMPORT."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    id: int | None = None
    version: int | None = None


class Registry:
    """`log` has the records; each question reads them first."""

    def __init__(self, log: SchemaLog) -> None:
        self._log = log
        self._changing = trio.Lock()

    def contents(self) -> Contents:
        return self._log.read()

    # -- questions --------------------------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Raises Refusal for a subject without any."""
        found = self.contents().versions(subject, deleted=deleted)
        if not found:
            raise refusals.SUBJECT_NOT_FOUND(subject)
        return found

    def version(self, subject: str, text: str, *, deleted: bool = False) -> Version:
        """The version that a text names: a number, `latest`, or -1 for that. Raises Refusal."""
        number = number_of(text)
        found = self.versions(subject, deleted=deleted)
        if number is None:
            return found[-1]
        for each in found:
            if each.version == number:
                return each
        raise refusals.VERSION_NOT_FOUND(number)

    def by_id(self, number: int) -> list[Version]:
        """The versions with this id, hidden ones too. Raises Refusal."""
        found = [each for each in self.contents().all(deleted=True) if each.id == number]
        if not found:
            raise refusals.ID_NOT_FOUND(number)
        return found

    def level(self, subject: str) -> str:
        """The level by which new versions of a subject are judged."""
        return str(self.config(subject).get("compatibilityLevel") or DEFAULT_LEVEL)

    def config(self, subject: str | None) -> Mapping[str, Any]:
        """The settings of a subject, else those of all."""
        configs = self.contents().configs
        return {"compatibilityLevel": DEFAULT_LEVEL, **configs.get(None, {}), **configs.get(subject, {})}

    def mode(self, subject: str | None) -> str:
        modes = self.contents().modes
        return modes.get(subject) or modes.get(None, READWRITE)

    async def schema(self, given: Given | Version) -> Schema:
        """Parse a schema, and the schemas to which it refers. Raises Refusal."""
        if given.kind not in MODULES:
            raise refusals.INVALID_SCHEMA(f"Invalid schema type {given.kind}; it is one of {', '.join(MODULES)}")
        references = tuple(self._referred(given.references, set()).items())
        try:
            return await threads.run_sync(parsed, given.kind, given.text, references)
        except (SchemaError, ModuleNotFoundError) as error:
            raise refusals.INVALID_SCHEMA(f"Invalid schema of type {given.kind}, details: {error}") from error

    def _referred(self, references: Sequence[Reference], begun: set[Reference]) -> dict[str, str]:
        """Find the texts of the referred schemas by their names, the deepest first; what refers to itself, once."""
        found: dict[str, str] = {}
        for each in [each for each in references if each not in begun]:
            begun.add(each)
            try:
                version = self.version(each.subject, str(each.version), deleted=True)
            except refusals.Refusal as error:
                raise refusals.INVALID_SCHEMA(
                    f'No schema reference found for subject "{each.subject}" and version {each.version}'
                ) from error
            found |= self._referred(version.references, begun)
            found[each.name] = version.text
        return found

    async def lookup(self, subject: str, given: Given, *, normalize: bool, deleted: bool) -> Version:
        """The version of a subject that has this schema. Raises Refusal."""
        versions = self.versions(subject, deleted=deleted)
        found = await self._same(reversed(versions), given, normalize)
        if found is None:
            raise refusals.SCHEMA_NOT_FOUND()
        return found

    async def _same(self, versions: Iterable[Version], given: Given, normalize: bool) -> Version | None:
        """The first of these versions that has this schema, whatever registry has written its text. Raises Refusal."""
        await self.schema(given)
        alike = [each for each in versions if (each.kind, each.references) == (given.kind, given.references)]
        references = tuple(self._referred(given.references, set()).items())
        return await threads.run_sync(first_same, alike, given, references, normalize)

    async def unlike(
        self, level: str, given: Given, previous: Sequence[Version], *, normalize: bool = False
    ) -> Sequence[str]:
        """Why a schema is not compatible with the previous versions, each as Confluent's registry writes it.

        Raises Refusal, also for schemas that cannot be compared: with a `$ref` to nothing, or nested too deeply.
        """
        new, old = await self.schema(given), [await self.schema(each) for each in previous]
        try:
            found = await threads.run_sync(incompatible, level, new, old)
        except (SchemaError, RecursionError) as error:
            raise refusals.INVALID_SCHEMA(f"Invalid schema of type {given.kind}, details: {error}") from error
        if found is None:
            return []
        place, reasons = found
        version = previous[place]
        return [
            *map(str, reasons),
            f"{{oldSchemaVersion: {version.version}}}",
            f"{{oldSchema: '{version.text}'}}",
            f"{{compatibility: '{level}'}}",
        ]

    # -- changes ----------------------------------------------------------------------------------------------

    async def register(self, subject: str, given: Given, *, normalize: bool) -> Version:
        """Return the version with the schema, a new one if none has it. Raises Refusal."""
        if not subject or any(ord(each) < 0x20 for each in subject):
            raise refusals.INVALID_SUBJECT(subject)
        async with self._changing:
            mode = self._writable(subject)
            normalize = normalize or bool(self.config(subject).get("normalize"))
            schema = await self.schema(given)
            text = await threads.run_sync(schema.normalized) if normalize else schema.text
            contents = self.contents()
            versions = contents.versions(subject, deleted=True)
            shown = [each for each in versions if not each.is_deleted]
            if given.id is not None or given.version is not None:
                if mode != IMPORT:
                    raise refusals.NOT_IMPORTING(subject)
            elif (known := await self._same(reversed(shown), given, normalize)) is not None:
                return known
            if mode != IMPORT and (reasons := await self.unlike(self.level(subject), given, shown)):
                raise refusals.INCOMPATIBLE(subject, ", ".join(reasons))
            number = given.version or max((each.version for each in versions), default=0) + 1
            same = await self._same(contents.all(deleted=True), given, normalize)
            schema_id = given.id or (contents.highest_id + 1 if same is None else same.id)
            if given.id is not None and any(each.id == given.id and each.text != text for each in contents.all()):
                raise refusals.ID_IS_TAKEN(given.id)
            made = Version(subject, number, schema_id, given.kind, text, given.references)
            older = [each for each in versions if each.is_deleted and each.id == schema_id and each.version < number]
            await self._log.write(dict([made.record()]) | {schema_key(subject, each.version): None for each in older})
            return made

    async def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Hide all versions of a subject, or remove the hidden ones for ever; return their numbers. Raises Refusal."""
        async with self._changing:
            self._writable(subject)
            versions = self.versions(subject, deleted=True)
            shown = [each for each in versions if not each.is_deleted]
            if not permanent and not shown:
                raise refusals.SUBJECT_IS_DELETED(subject)
            if permanent and shown:
                raise refusals.SUBJECT_IS_NOT_DELETED(subject)
            for each in versions:
                self._check_alone(each)
            if permanent:
                await self._log.write({schema_key(subject, each.version): None for each in versions})
                return [each.version for each in versions]
            value = as_bytes({"subject": subject, "version": shown[-1].version})
            await self._log.write({key_of(DELETE_SUBJECT, subject): value} | self._settings_of(subject))
            return [each.version for each in shown]

    async def delete_version(self, subject: str, text: str, *, permanent: bool) -> int:
        """Hide a version, or remove a hidden one for ever; return its number. Raises Refusal."""
        async with self._changing:
            self._writable(subject)
            shown = self.contents().versions(subject)
            version = self.version(subject, text, deleted=permanent or number_of(text) is not None)
            if not permanent and version.is_deleted:
                raise refusals.VERSION_IS_DELETED(subject, version.version)
            if permanent and not version.is_deleted:
                raise refusals.VERSION_IS_NOT_DELETED(subject, version.version)
            self._check_alone(version)
            if permanent:
                await self._log.write({schema_key(subject, version.version): None})
                return version.version
            settings = self._settings_of(subject) if shown == [version] else {}
            await self._log.write(dict([version._replace(is_deleted=True).record()]) | settings)
            return version.version

    def _writable(self, subject: str) -> str:
        """The mode of a subject that can be changed. Raises Refusal."""
        mode = self.mode(subject)
        if mode.startswith("READONLY"):
            raise refusals.READ_ONLY(subject)
        return mode

    def _check_alone(self, version: Version) -> None:
        if self.contents().referring(version.subject, version.version):
            raise refusals.IS_REFERENCED(version.subject, version.version)

    def _settings_of(self, subject: str) -> dict[bytes, bytes | None]:
        """The records that remove a subject's level and mode."""
        contents = self.contents()
        kinds = {CONFIG: subject in contents.configs, MODE: subject in contents.modes}
        return {key_of(kind, subject): None for kind, is_set in kinds.items() if is_set}

    async def set_config(self, subject: str | None, changes: Mapping[str, Any]) -> None:
        """Change the level, and whether schemas are normalized. Raises Refusal."""
        level = changes.get("compatibility")
        if level is not None and str(level).upper() not in LEVELS:
            raise refusals.INVALID_LEVEL()
        async with self._changing:
            named = {} if level is None else {"compatibilityLevel": str(level).upper()}
            if "normalize" in changes:
                named["normalize"] = changes["normalize"]
            value = as_bytes({**self.contents().configs.get(subject, {}), **named})
            await self._log.write({key_of(CONFIG, subject): value})

    async def delete_config(self, subject: str | None) -> Mapping[str, Any]:
        """Return the settings that were removed. Raises Refusal for a subject without any."""
        async with self._changing:
            found = self.contents().configs.get(subject)
            if subject is not None and found is None:
                raise refusals.SUBJECT_NOT_FOUND(subject)
            await self._log.write({key_of(CONFIG, subject): None})
            return found or {"compatibilityLevel": DEFAULT_LEVEL}

    async def set_mode(self, subject: str | None, mode: str, *, force: bool) -> None:
        """Raises Refusal."""
        if mode not in MODES:
            raise refusals.INVALID_MODE(", ".join(MODES))
        async with self._changing:
            contents = self.contents()
            existing = list(contents.all()) if subject is None else contents.versions(subject)
            if mode == IMPORT and existing and not force:
                raise refusals.NOT_EMPTY()
            await self._log.write({key_of(MODE, subject): as_bytes({"mode": mode})})

    async def delete_mode(self, subject: str | None) -> str:
        """Return the mode that was removed. Raises Refusal for a subject without one."""
        async with self._changing:
            found = self.contents().modes.get(subject)
            if found is None and subject is not None:
                raise refusals.SUBJECT_NOT_FOUND(subject)
            await self._log.write({key_of(MODE, subject): None})
            return found or READWRITE


def first_same(
    versions: Iterable[Version], given: Given, references: tuple[tuple[str, str], ...], normalize: bool
) -> Version | None:
    """The first of these versions, of a schema with the type and the references of `given`, that is the same."""
    identity = identity_of(given.kind, given.text, references, normalize)
    for each in versions:
        try:
            if each.text == given.text or identity_of(each.kind, each.text, references, normalize) == identity:
                return each
        except (SchemaError, ModuleNotFoundError):  # stored by a registry that takes more than this one
            continue
    return None


def number_of(text: str) -> int | None:
    """The number of a version, None for the latest. Raises Refusal."""
    if text in (LATEST, "-1"):
        return None
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= VERSION_MAX):
        raise refusals.INVALID_VERSION(text)
    return int(text)


def given_of(body: Mapping[str, Any]) -> Given:
    """The schema in the body of a request. Raises Refusal."""
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise refusals.INVALID_SCHEMA("Empty schema")
    rows = body.get("references")
    try:
        if not isinstance(rows, list | None):
            raise TypeError("references are a list")
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"])) for each in rows or ()
        )
        version, number = (found if (found := int(body.get(name) or 0)) > 0 else None for name in ("version", "id"))
    except OTHER_FORM as error:
        raise refusals.NOT_THE_FORM(error) from error
    kind = body.get("schemaType") or AVRO
    return Given(str(kind).upper(), text, references, number, version)
