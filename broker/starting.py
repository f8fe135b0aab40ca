"""The start and the stop of a broker's process: why it cannot start, and which signals stop it."""

from __future__ import annotations

import signal

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a broker in order, as Kafka's; SIGHUP stays ignored under `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return STOP_SIGNALS if is_ignored else (*STOP_SIGNALS, signal.SIGHUP)


class StartError(Exception):
    """The broker cannot start, or not go on; the message has a line for each reason, with the next step."""
