"""Charts in a file: ``--plot FILE.svg|png``.

The file's name is checked first, so that a long calculation isn't lost by a wrong name::

    plot_file = options…, type=parse_plot_file
    ...
    plot(rows, plot_file, title="azure--install, the last 7 days")

Matplotlib draws them; it is an extra (leasectl[plot]), and only this module imports it.
"""

from __future__ import annotations

import io
import logging
import os
import stat
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from leasectl.cli.described import option
from leasectl.cli.extra import require_extra
from leasectl.cli.rendering.charts import Chart, charts_of
from leasectl.errors import InvalidRequest, StateUnwritable
from leasectl.pools.chart_axes import COLOURS, time_ticks
from leasectl.pools.lease_bars import LeaseBar
from leasectl.pools.overview import by_number
from leasectl.pools.statistics import PictureRow, Series, series_of
from leasectl.text.wording import printable

_SUFFIXES = (".svg", ".png")
_STEPS_ALONE, _STEPS_BESIDE = 480, 240
_TICKS_ALONE, _TICKS_BESIDE = 12, 6
# Of rows of the timeline: inches for each, and how many are drawn.
_ROW_INCHES, _MOST_ROWS = 0.18, 100
_WRITTEN_SHARE = 0.04  # of the width, from which on a bar has room for a name
_LONGEST_TITLE = 70
_DOTS_PER_INCH = 120
# As bytes are the same for the same picture: no date, no version, ids of one seed. Text is text.
_SETTINGS = {"svg.hashsalt": "leasectl", "svg.fonttype": "none", "text.parse_math": False}
_METADATA: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".png": {"Software": None}}


class PlotFile(NamedTuple):
    """Where a picture goes.

    Args:
        path: As it was written.
        suffix: What it ends in, which says of what kind the picture is.
    """

    path: str
    suffix: str


def parse_plot_file(text: str) -> PlotFile:
    """Read ``--plot``.

    Raises:
        InvalidRequest: Its name says of no kind that there is, or it is no place for a file.
        NotSupported: There is nothing here to draw with.
    """
    suffix = os.path.splitext(text)[1].lower()
    if suffix not in _SUFFIXES:
        raise InvalidRequest(
            f'--plot "{printable(text)}": give a name that ends in {" or ".join(_SUFFIXES)}'
        )
    require_extra("plot", ("matplotlib",), of="--plot")
    return PlotFile(text, suffix)


plot_option = option(
    "--plot FILE",
    "Also write the chart to FILE.svg or FILE.png; needs matplotlib.",
    to="plot_file",
    type=parse_plot_file,
    group="Output",
)


def plot(
    rows: Sequence[PictureRow],
    to: PlotFile,
    *,
    title: str,
    elapsed: bool = False,
    same_scale: bool = False,
    bars: Sequence[LeaseBar] = (),
) -> None:
    """Draw what was held, who waited and what started, and put it where it is wanted, whole.

    Args:
        rows, elapsed, same_scale: As `leasectl.cli.rendering.charts.picture` has them.
        to: Where it goes; what is there is replaced.
        title: What stands above it.
        bars: Of the only row, who held what.

    Raises:
        StateUnwritable: It can't be written there; what was there is as it was.
    """
    os.environ.pop("MPLBACKEND", None)  # which may name one that isn't there; we need none
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its cache
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that its font hasn't
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = _figure(rows, title, elapsed=elapsed, same_scale=same_scale, bars=bars)
        buffer = io.BytesIO()
        metadata = _METADATA[to.suffix]
        figure.savefig(buffer, format=to.suffix[1:], dpi=_DOTS_PER_INCH, metadata=metadata)
    replace_file(to.path, buffer.getvalue())


def replace_file(path: str, content: bytes) -> None:
    """Write a file as a whole, or leave its earlier content; never write a part.

    Raises:
        StateUnwritable: It can't be written.
    """
    path = os.path.realpath(path)  # of a link, what it points to
    temporary = os.path.join(os.path.dirname(path), f".leasectl-{os.urandom(6).hex()}.tmp")
    try:
        if os.path.lexists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise StateUnwritable(f"can't write {printable(path, longest=200)}: not a regular file")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        shown = printable(path, longest=200)
        raise StateUnwritable(f"can't write {shown}: {error.strerror}") from error


def _figure(
    rows: Sequence[PictureRow],
    title: str,
    *,
    elapsed: bool,
    same_scale: bool,
    bars: Sequence[LeaseBar],
) -> Any:
    """One row has its pictures below each other; of several each has them side by side."""
    from matplotlib.figure import Figure

    alone = len(rows) == 1
    names = sorted({each.name for each in bars}, key=by_number)[:_MOST_ROWS]
    lanes_inches = 0.6 + _ROW_INCHES * len(names) if names else 0.0
    size = (10.0, 7.5 + lanes_inches) if alone else (14.0, 0.8 + 2.2 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(printable(title, longest=_LONGEST_TITLE))
    shape = (3 + bool(names), 1) if alone else (len(rows), 3)
    heights = [2.2] * 3 + [lanes_inches] * bool(names) if alone else None
    share = "col" if same_scale and not alone else False
    axes = figure.subplots(*shape, squeeze=False, sharey=share, height_ratios=heights)
    for n, row in enumerate(rows):
        series = series_of(row.timeline, row.window, steps=_STEPS_ALONE if alone else _STEPS_BESIDE)
        places = axes[:, 0] if alone else axes[n]
        for place, chart, colour in zip(places, charts_of(series), COLOURS.values()):
            _draw(place, chart, series, colour)
            _label_time(place, series, _TICKS_ALONE if alone else _TICKS_BESIDE, elapsed=elapsed)
        if series.capacity is not None:
            _draw_capacity(places[0], series)
        if names:
            _draw_lanes(places[3], bars, names, series)
            _label_time(places[3], series, _TICKS_ALONE, elapsed=elapsed)
        if not alone:
            places[0].set_title(
                printable(row.title, longest=_LONGEST_TITLE), loc="left", fontweight="bold"
            )
    figure.supxlabel("since the start" if elapsed else "time in UTC", fontsize="small")
    return figure


def _draw(place: Any, chart: Chart, series: Series, colour: str) -> None:
    edges = [n * series.step_seconds for n in range(len(chart.values) + 1)]
    place.stairs(chart.values, edges, fill=True, color=colour)
    place.set_ylabel(chart.title)
    place.set_ylim(0, max(chart.top * 1.05, place.get_ylim()[1]))
    place.yaxis.get_major_locator().set_params(integer=True)
    place.set_xlim(0, max(edges[-1], 1e-3))
    _draw_grid(place, "both")


def _draw_grid(place: Any, axis: str) -> None:
    place.spines[["top", "right"]].set_visible(False)
    place.grid(color="#dde1e7", linewidth=0.6, axis=axis)
    place.set_axisbelow(True)


def _draw_capacity(place: Any, series: Series) -> None:
    """Draw how many resources there were, from when on there were any."""
    known = series.capacity_once_made
    if known:
        times, values = [n * series.step_seconds for n in known], list(known.values())
        place.step(times, values, where="post", color="#1c2128", linewidth=1.2, linestyle="--")
        place.set_ylim(0, max(values) * 1.08)


def _draw_lanes(place: Any, bars: Sequence[LeaseBar], names: Sequence[str], series: Series) -> None:
    """Draw a bar for each lease with its job, and below it the wait before."""
    span = max(series.until - series.since, 1e-3)
    rows = {name: n for n, name in enumerate(names)}
    for bar in bars:
        row = rows.get(bar.name)
        if row is None:
            continue
        begin = max(0.0, bar.begin - series.since)
        width = min(bar.end, series.until) - series.since - begin
        waited = max(0.0, bar.queued - series.since), bar.begin - max(bar.queued, series.since)
        place.broken_barh([waited], (row + 0.3, 0.14), color=COLOURS["waiting"], linewidth=0)
        if width > 0:
            place.broken_barh(
                [(begin, width)], (row - 0.4, 0.62), facecolor=COLOURS["held"], edgecolor="white"
            )
        if width > _WRITTEN_SHARE * span:
            who = printable(bar.who, longest=int(120 * width / span))
            place.text(
                begin, row - 0.09, f" {who}", color="white", va="center", size=5, clip_on=True
            )
    place.set_yticks(range(len(names)), names, fontsize=6)
    place.set_ylim(len(names) - 0.4, -0.6)
    place.set_xlim(0, span)
    _draw_grid(place, "x")
    place.set_title("who held which resource, and waited for it", loc="left", fontsize="medium")


def _label_time(place: Any, series: Series, at_most: int, *, elapsed: bool) -> None:
    ticks = time_ticks(series.since, series.until, at_most=at_most, elapsed=elapsed)
    place.set_xticks([tick.at_seconds for tick in ticks], [tick.label for tick in ticks])
