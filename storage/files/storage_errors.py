"""The errors of storage, and the only places that turn the system's errors into them.

    CorruptFileError     an index, snapshot or checkpoint with impossible content: rebuilt, or ignored
    LogFlushError        a failed fsync: what the disk holds is unknown
    HalfDoneError        a change of several files, of which some are changed: a start completes it or makes it anew
    LogDirectoryError    a data directory that the broker cannot start with
    KafkaError           what a client gets: KAFKA_STORAGE_ERROR, by `map_storage_errors`; in a row of a Fetch, which
                         needs no exception, by `Partitions.failed_read`

A passing error (a full disk, no free descriptor) refuses one operation. Any other, every failed fsync and everything
half done take the log directory offline until the next start.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol

from minibroker.protocol.errors import ErrorCode, KafkaError

# No space, no descriptors, no memory: the content of the disk is intact, and the error may pass.
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
_PASSING_ERRORS = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, *_NO_DESCRIPTOR, errno.ENOMEM, errno.EAGAIN, errno.EINTR)
)


class CorruptFileError(Exception):
    """An index, snapshot or checkpoint has content that cannot be right; it can be rebuilt or ignored."""


class LogFlushError(OSError):
    """An fsync failed: what the disk holds is unknown, and nothing may be acknowledged from then on."""


class HalfDoneError(OSError):
    """A change of several files failed after some were changed: the log in memory is no longer that on the disk."""


class LogDirectoryError(Exception):
    """A data directory cannot be used; the message is one line for the operator."""


class StorageErrorListener(Protocol):
    """The owner of a log directory."""

    def on_storage_error(self, error: OSError) -> None:
        """Take the directory offline if the error will not pass."""


class StorageErrorMap:
    """The context of one operation on the disk: see `map_storage_errors`."""

    __slots__ = ("_listener",)

    def __init__(self, listener: StorageErrorListener | None) -> None:
        self._listener = listener

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            if self._listener is not None:
                self._listener.on_storage_error(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def map_storage_errors(listener: StorageErrorListener | None = None) -> StorageErrorMap:
    """Turn an OSError into KafkaError(KAFKA_STORAGE_ERROR), after the listener (a LogManager) has seen it."""
    return StorageErrorMap(listener)


def is_passing(error: OSError) -> bool:
    """Return whether the directory can stay online after this error."""
    return error.errno in _PASSING_ERRORS and not isinstance(error, LogFlushError | HalfDoneError)


def is_out_of_descriptors(error: BaseException | None) -> bool:
    """Return whether this process or the machine had no free descriptor."""
    return isinstance(error, OSError) and error.errno in _NO_DESCRIPTOR


@contextmanager
def map_flush_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError into LogFlushError, unless it is for want of a descriptor: nothing was forced or lost then."""
    try:
        yield
    except OSError as error:
        if is_out_of_descriptors(error):
            raise
        raise LogFlushError(error.errno, f"fsync of {directory}: {error.strerror}") from error


@contextmanager
def map_half_done_errors(what: str) -> Iterator[None]:
    """Turn an OSError into HalfDoneError: `<what> failed half way`."""
    try:
        yield
    except OSError as error:
        raise HalfDoneError(error.errno, f"{what} failed half way: {error.strerror}") from error


@contextmanager
def map_directory_errors(action: str, directory: Path) -> Iterator[None]:
    """Turn an OSError into LogDirectoryError: `cannot <action> data directory ...`."""
    try:
        yield
    except OSError as error:
        file = "" if error.filename in (None, directory, str(directory)) else f": {error.filename}"
        reason = "not a directory" if isinstance(error, FileExistsError) else error.strerror
        raise LogDirectoryError(f"cannot {action} data directory {directory}: {reason}{file}") from error


@contextmanager
def map_parse_errors(path: Path) -> Iterator[None]:
    """Turn a ValueError (a word in place of a number, bytes that are not UTF-8) into CorruptFileError."""
    try:
        yield
    except ValueError as error:
        raise CorruptFileError(f"{path}: {error}") from error
