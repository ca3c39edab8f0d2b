"""Charts on a terminal."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from leasectl.cli.rendering.table import (
    BOLD,
    FAINT,
    GREEN,
    YELLOW,
    Colour,
    output_width,
    painted,
    shows_colour,
)
from leasectl.pools.chart_axes import Tick, time_ticks
from leasectl.pools.statistics import PictureRow, Series, series_of
from leasectl.text.durations import format_seconds
from leasectl.text.wording import cells, printable, shorten

_WIDEST = 7  # cells of a label, with a space


def room_for_ticks(width: int) -> int:
    """How many ticks an axis of some cells has room for."""
    return max(1, width // _WIDEST)


USUAL_WIDTH = 80
_BLUE: Colour = "94"  # the bright one, which can be read on a dark ground
_GAP = 2
_LABEL = 4  # cells for a number at the side
_FRAME = _LABEL + 1
_LEAST_BESIDE = 60  # cells, for three pictures side by side
_LEAST_BARS = 8
_HEIGHT_ALONE, _HEIGHT_BESIDE = 5, 4
_LEAST_SHOWN = 0.02  # who is granted at once has waited, too, for an instant

Span = tuple[str, "Colour | None"]
Line = tuple[Span, ...]


class Charset(NamedTuple):
    """What a picture is made of.

    Args:
        bars: A cell of a bar, from the least to a full one.
        side: Left of the bars.
        corner: Below that.
        axis: Below the bars.
        tick: The same, where the axis has a tick.
    """

    bars: str
    side: str
    corner: str
    axis: str
    tick: str


BLOCKS = Charset("▁▂▃▄▅▆▇█", "│", "└", "─", "┬")
ASCII = Charset(".:#", "|", "+", "-", "+")


class PictureLook(NamedTuple):
    """How charts look: their characters, and whether they have colours."""

    charset: Charset = BLOCKS
    colour: bool = False


class Chart(NamedTuple):
    """One picture.

    Args:
        title: What stands above it.
        values: One for each column.
        top: The value of a full column.
        colour: Of the columns.
    """

    title: str
    values: Sequence[float]
    top: int
    colour: Colour


def look_of_pictures() -> PictureLook:
    """The look for whatever stdout goes to: plain ASCII where no more is sure to be shown."""
    return PictureLook(BLOCKS if _shows_blocks() else ASCII, shows_colour())


def width_of_pictures() -> int:
    """How wide pictures are: as the terminal, else as most are."""
    return output_width() or USUAL_WIDTH


def picture(
    rows: Sequence[PictureRow],
    *,
    width: int,
    look: PictureLook,
    elapsed: bool = False,
    same_scale: bool = False,
) -> str:
    """Draw what was held, who waited and what started.

    Args:
        rows: What to show, one below the other.
        width: Cells that a line may take.
        look: Characters and colours.
        elapsed: Time counts from the beginning of the window; else it is the time of day in UTC.
        same_scale: The rows are to be compared: bars of all are of one scale.

    Returns:
        Lines, each with its newline; the last says how long a column lasts.
    """
    alone = len(rows) == 1
    beside = not alone and width >= _LEAST_BESIDE
    room = (width - 2 * _GAP) // 3 if beside else width
    frame = _Frame(
        max(_LEAST_BARS, room - _FRAME),
        _HEIGHT_ALONE if alone else _HEIGHT_BESIDE,
        look.charset,
        elapsed=elapsed,
    )
    drawn = [series_of(row.timeline, row.window, steps=frame.bars) for row in rows]
    charts = [charts_of(series, peaks=alone) for series in drawn]
    if same_scale:
        charts = on_one_scale(charts)
    lines: list[Line] = []
    for row, series, each in zip(rows, drawn, charts):
        if not alone:
            lines.append(((printable(row.title, longest=width), BOLD),))
        panels = [list(frame.lines(chart, series)) for chart in each]
        lines += _side_by_side(panels, room) if beside else [line for one in panels for line in one]
        lines.append(())
    lines += [((_caption(drawn[0], elapsed=elapsed), FAINT),)] if drawn else []
    return "".join(_written(line, width, colour=look.colour) for line in lines)


def charts_of(series: Series, *, peaks: bool = False) -> tuple[Chart, ...]:
    """The pictures of a row.

    Args:
        series: How things went.
        peaks: Titles say what was most at any instant: a column is an average.
    """
    capacity = max(series.capacity or (0,))
    held = f"held, of {math.ceil(capacity)}" if capacity else "held"
    waiting = "waiting"
    if peaks:
        held, waiting = (
            f"{held}, peak {series.peak_held}",
            f"{waiting}, peak {series.peak_waiting}",
        )
    return (
        Chart(held, series.held, _top((*series.held, capacity)), _BLUE),
        Chart(waiting, series.waiting, _top(series.waiting), YELLOW),
        Chart("starts in a minute", series.starts, _top(series.starts), GREEN),
    )


def on_one_scale(rows: Sequence[Sequence[Chart]]) -> list[tuple[Chart, ...]]:
    """The same pictures, those of one kind with one scale."""
    tops = [max(chart.top for chart in column) for column in zip(*rows)]
    return [tuple(chart._replace(top=top) for chart, top in zip(row, tops)) for row in rows]


class _Frame(NamedTuple):
    bars: int
    height: int
    charset: Charset
    elapsed: bool

    def lines(self, chart: Chart, series: Series) -> Iterator[Line]:
        yield ((" " * _FRAME, None), (chart.title, None))
        for level in range(self.height - 1, -1, -1):
            label = _short(chart.top) if level == self.height - 1 else "0" if level == 0 else ""
            bars = "".join(self._cell(value, chart.top, level) for value in chart.values)
            yield ((f"{label:>{_LABEL}}{self.charset.side}", None), (bars, chart.colour))
        ticks = time_ticks(
            series.since,
            series.until,
            at_most=room_for_ticks(self.bars),
            elapsed=self.elapsed,
        )
        yield from self._axis([(self._column(tick, series), tick.label) for tick in ticks])

    def _cell(self, value: float, top: int, level: int) -> str:
        """What a column shows at one height."""
        steps = len(self.charset.bars)
        share = value / top if value >= _LEAST_SHOWN else 0.0
        here = min(steps, math.ceil(share * self.height * steps - 1e-9) - level * steps)
        return self.charset.bars[here - 1] if here > 0 else " "

    def _column(self, tick: Tick, series: Series) -> int:
        return round(tick.at_seconds / series.step_seconds) if series.step_seconds else 0

    def _axis(self, ticks: Sequence[tuple[int, str]]) -> Iterator[Line]:
        axis, labels = [self.charset.axis] * self.bars, ""
        for column, label in ticks:
            begins = column - len(labels)
            if column + len(label) <= self.bars and (begins > 0 or not column):
                axis[column] = self.charset.tick
                labels += " " * begins + label
        yield ((" " * _LABEL + self.charset.corner + "".join(axis), None),)
        if labels:
            yield ((" " * _FRAME + labels, None),)


def _top(values: Sequence[float]) -> int:
    return max(1, math.ceil(max(values) - 1e-9))


def _short(number: int) -> str:
    """A number in four cells."""
    if number < 10_000:
        return str(number)
    return f"{number // 1000}k" if number < 1_000_000 else f"{number // 1_000_000}M"


def _side_by_side(panels: Sequence[Sequence[Line]], room: int) -> list[Line]:
    found = []
    for lines in zip_longest(*panels, fillvalue=()):
        joined: list[Span] = []
        for n, line in enumerate(lines):
            taken = sum(cells(text) for text, _ in line)
            gap = _GAP if n < len(panels) - 1 else 0
            joined += [*line, (" " * (max(0, room - taken) + gap), None)]
        found.append(tuple(joined))
    return found


def _caption(series: Series, *, elapsed: bool) -> str:
    clock = "since the start" if elapsed else "in UTC"
    step = format_seconds(series.step_seconds)
    return f"time {clock}; each column is {step}: average held and waiting, maximum of starts"


def _written(line: Line, width: int, *, colour: bool) -> str:
    """A line as it is shown, no wider than there is room, and without spaces at its end."""
    left = min(width, cells("".join(text for text, _ in line).rstrip()))
    found = []
    for text, shade in line:
        shown = shorten(text, left, cut="end") if cells(text.rstrip()) > left else text[:left]
        found.append(painted(shown, shade if colour else None))
        left -= cells(shown)
    return "".join(found) + "\n"


def _shows_blocks() -> bool:
    """Tell whether stdout's reader shows more than ASCII, as locale(7) and the terminal say.

    Where no locale is set at all, as in containers, Python takes the terminal to know UTF-8
    (PEP 538), and says so in LC_CTYPE; so that tells nothing against a LANG that says otherwise.
    """
    if os.environ.get("TERM", "dumb" if os.isatty(1) else "") == "dumb":
        return False
    chosen = os.environ.get("LC_ALL") or os.environ.get("LC_CTYPE") or ""
    if chosen in ("", "C.UTF-8") and not os.environ.get("LC_ALL"):
        chosen = os.environ.get("LANG") or "C.UTF-8"
    return "utf8" in chosen.lower().replace("-", "")
