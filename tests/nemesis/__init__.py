"""Faults at random beside real clients, over and over: `python -m tests.nemesis` (`make nemesis`)."""
