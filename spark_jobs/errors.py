"""The error that a job ends with, in every module of the jobs."""

from __future__ import annotations


class JobFailed(RuntimeError):
    """A job cannot do what it was asked; the message is one line with the next step."""
