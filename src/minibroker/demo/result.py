"""Reads the Spark job's result, and compares it with the one computed without Spark.

The rule: only the files that Spark's `_spark_metadata` lists belong to the result; a killed run may leave others. The
folder may have been moved or copied since.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import pandas as pd

KEYS = ["window_start", "origin", "carrier"]
COUNTS = ["flights", "cancelled", "late", "delay_minutes"]


class WrongResult(RuntimeError):
    """The job's result differs from the flights."""


def read(output: Path) -> pd.DataFrame:
    """Return the delays in the committed files, by day, origin and carrier."""
    tables = [pd.read_parquet(path) for path in committed_files(output)]
    delays = pd.concat(tables, ignore_index=True)
    for column in ("window_start", "window_end"):
        delays[column] = pd.to_datetime(delays[column], utc=True)
    return delays.sort_values(KEYS, ignore_index=True)


def committed_files(output: Path) -> list[Path]:
    """Return the files in the output folder that belong to the result."""
    logs = {log.name: log for log in (output / "_spark_metadata").iterdir() if not log.name.startswith(".")}
    compacted = max((int(name.split(".")[0]) for name in logs if name.endswith(".compact")), default=-1)
    files = []
    for name, log in logs.items():
        # A compacted log repeats all earlier logs.
        if int(name.split(".")[0]) < compacted or name == str(compacted):
            continue
        for line in log.read_text().splitlines()[1:]:
            entry = json.loads(line)
            files.append(output / Path(unquote(urlparse(entry["path"]).path)).name)
    return sorted(files)


def remove_uncommitted(output: Path) -> None:
    """Remove the files that do not belong to the result, so that any reader of Parquet finds the result alone."""
    for path in {*output.glob("*.parquet")} - {*committed_files(output)}:
        path.unlink()


def check(delays: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Compare every day, origin and carrier. Raises WrongResult with the first difference."""
    found = delays.assign(delay_minutes=delays["delay_minutes"].fillna(0))[KEYS + COUNTS]
    both = expected.merge(found, on=KEYS, how="outer", suffixes=("_expected", ""), indicator=True)
    wrong = both["_merge"] != "both"
    for column in COUNTS:
        wrong |= both[column] != both[f"{column}_expected"]
    if len(found) != len(expected) or wrong.any():
        raise WrongResult(
            f"{int(wrong.sum()):,} of {len(both):,} rows differ from the flights, first:\n"
            f"{both[wrong].head(1).T.to_string(header=False)}"
        )
