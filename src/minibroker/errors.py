"""The errors of the toolkit, and the exit statuses of its commands."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


class BrokerError(RuntimeError):
    """The broker's process did not start, has ended, or refused; the message has the reason or the last log lines.

    `code` is that of a refusal which has one: a word for programs, where the message is for people.
    """

    def __init__(self, message: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class CallRefused(BrokerError):
    """The broker refused a call over its control socket, for `reason`."""

    def __init__(self, call: str, reason: str, code: str | None = None) -> None:
        super().__init__(f"the broker refused {call}: {reason}", code)
        self.reason = reason


class SettingWarning(UserWarning):
    """A name in `settings` that Kafka does not have, of a broker that was made with `unknown_settings=True`."""


class CommandFailed(Exception):
    """A command or a page failed for this reason: one line, with the next step. The exit status is EXIT_FAILED."""


class BadValue(ValueError):
    """An option, a property or a field has a value that it cannot have. The exit status is EXIT_USAGE."""
