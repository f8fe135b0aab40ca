"""Names the form of the package that runs: pure Python, or compiled by mypyc (build_tools/compiled_form.py)."""

from __future__ import annotations


def form() -> str:
    """Return `pure Python` or `compiled`, for people."""
    return "pure Python" if __file__.endswith(".py") else "compiled"
