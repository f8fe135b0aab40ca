"""The refusals of a schema registry: Confluent's codes and messages. The first three digits are the HTTP status."""

from __future__ import annotations

from collections.abc import Callable


class Refusal(Exception):
    """A request is not served."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return int(str(self.code)[:3])


def refusal(code: int, message: str) -> Callable[..., Refusal]:
    """Make a function that makes refusals of one kind, with the names for its message."""
    return lambda *names: Refusal(code, message.format(*names))


SUBJECT_NOT_FOUND = refusal(40401, "Subject '{}' not found.")
VERSION_NOT_FOUND = refusal(40402, "Version {} not found.")
SCHEMA_NOT_FOUND = refusal(40403, "Schema not found")
ID_NOT_FOUND = refusal(40403, "Schema {} not found")
SUBJECT_IS_DELETED = refusal(40404, "Subject '{}' was soft deleted.Set permanent=true to delete permanently")
SUBJECT_IS_NOT_DELETED = refusal(40405, "Subject '{}' was not deleted first before being permanently deleted")
VERSION_IS_DELETED = refusal(40406, "Subject '{}' Version {} was soft deleted.Set permanent=true to delete permanently")
VERSION_IS_NOT_DELETED = refusal(
    40407, "Subject '{}' Version {} was not deleted first before being permanently deleted"
)
NO_CONFIG = refusal(40408, "Subject '{}' does not have subject-level compatibility configured")
NO_MODE = refusal(40409, "Subject '{}' does not have subject-level mode configured")
INCOMPATIBLE = refusal(
    409, 'Schema being registered is incompatible with an earlier schema for subject "{}", details: [{}]'
)
NOT_THE_FORM = refusal(400, "references, version and id are not what they must be: {!r}; correct it")
INVALID_SCHEMA = refusal(42201, "{}")
INVALID_VERSION = refusal(
    42202,
    "The specified version '{}' is not a valid version id. Allowed values are between [1, 2^31-1] and the string "
    '"latest"',
)
INVALID_LEVEL = refusal(
    42203,
    "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
    "forward_transitive, and full_transitive",
)
INVALID_MODE = refusal(42204, "Invalid mode. Valid values are {}")
READ_ONLY = refusal(42205, "Subject {} is in read-only mode")
NOT_IMPORTING = refusal(42205, "Subject {} is not in import mode")
NOT_EMPTY = refusal(42205, "Cannot import since found existing subjects")
IS_REFERENCED = refusal(
    42206, "One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={},version={}}}"
)
ID_IS_TAKEN = refusal(42207, "Overwrite new schema with id {} is not permitted.")
INVALID_SUBJECT = refusal(42208, "The specified subject '{}' is not a valid subject.")
STORE_FAILED = refusal(50001, "Error in the backend data store: {}")
STORE_TIMED_OUT = refusal(50002, "Operation timed out: {}")
NOT_PASSED_ON = refusal(50003, "Error while forwarding the request to broker {}, the leader of _schemas: {}")
NO_LEADER = refusal(50004, "Unknown leader while forwarding the request: _schemas has none at the moment")
