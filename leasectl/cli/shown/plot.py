"""Charts in a file: ``--plot FILE.svg|png``.

The file's name is checked before anything is worked out, so that no long run is for nothing::

    plot_file = options…, type=parse_plot_file
    ...
    plot(rows, plot_file, title="azure--install, the last 7 days")

Matplotlib draws them; it is an extra (leasectl[plot]) and is imported by nobody else.
"""

from __future__ import annotations

import io
import logging
import os
import stat
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from leasectl.cli.described import OUTPUT, option
from leasectl.cli.extra import require_extra
from leasectl.cli.shown.charts import Chart, charts_of, time_ticks
from leasectl.errors import InvalidRequest, StateUnwritable
from leasectl.pools.statistics import PictureRow, Series, series_of
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SUFFIXES = (".svg", ".png")
_STEPS_ALONE, _STEPS_BESIDE = 480, 240
_TICKS_ALONE, _TICKS_BESIDE = 12, 6
_COLOURS = ("#2a9d55", "#d08a00", "#2f6fb5")
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


def _complete_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Let the shell look for files."""
    return [CompletionItem(incomplete, type="file")]


plot_option = option(
    "--plot",
    "plot_file",
    group=OUTPUT,
    type=parse_plot_file,
    metavar="FILE",
    shell_complete=_complete_files,
    help="Also write the chart to FILE.svg or FILE.png; needs matplotlib.",
)


def plot(
    rows: Sequence[PictureRow],
    to: PlotFile,
    *,
    title: str,
    elapsed: bool = False,
    same_scale: bool = False,
) -> None:
    """Draw what was held, who waited and what started, and put it where it is wanted, whole.

    Args:
        rows: What to show, as `leasectl.cli.shown.charts.picture` does.
        to: Where it goes; what is there is replaced.
        title: What stands above it.
        elapsed: Time counts from the beginning of the window; else it is the time of day in UTC.
        same_scale: The rows are to be compared: all are of one scale.

    Raises:
        StateUnwritable: It can't be written there; what was there is as it was.
    """
    replace_file(to.path, _drawn(rows, to, title, elapsed=elapsed, same_scale=same_scale))


def replace_file(path: str, content: bytes) -> None:
    """Have a file hold that, or what it held before; never a part.

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


def _drawn(
    rows: Sequence[PictureRow], to: PlotFile, title: str, *, elapsed: bool, same_scale: bool
) -> bytes:
    os.environ.pop("MPLBACKEND", None)  # which may name one that isn't there; we need none

    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its cache
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that its font hasn't
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = _figure(rows, title, elapsed=elapsed, same_scale=same_scale)
        buffer = io.BytesIO()
        figure.savefig(
            buffer, format=to.suffix[1:], dpi=_DOTS_PER_INCH, metadata=_METADATA[to.suffix]
        )
    return buffer.getvalue()


def _figure(rows: Sequence[PictureRow], title: str, *, elapsed: bool, same_scale: bool) -> Any:
    """One row has its pictures below each other; of several each has them side by side."""
    from matplotlib.figure import Figure

    alone = len(rows) == 1
    size = (10.0, 7.5) if alone else (14.0, 0.8 + 2.2 * len(rows))
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(printable(title, longest=_LONGEST_TITLE))
    shape = (3, 1) if alone else (len(rows), 3)
    share = "col" if same_scale and not alone else False
    axes = figure.subplots(*shape, squeeze=False, sharey=share)
    for n, row in enumerate(rows):
        series = series_of(row.timeline, row.window, steps=_STEPS_ALONE if alone else _STEPS_BESIDE)
        places = axes[:, 0] if alone else axes[n]
        for place, chart, colour in zip(places, charts_of(series), _COLOURS):
            _draw(place, chart, series, colour)
            _label_time(place, series, _TICKS_ALONE if alone else _TICKS_BESIDE, elapsed=elapsed)
        if not alone:
            places[0].set_title(
                printable(row.title, longest=_LONGEST_TITLE), loc="left", fontweight="bold"
            )
    figure.supxlabel("since the beginning" if elapsed else "time in UTC", fontsize="small")
    return figure


def _draw(place: Any, chart: Chart, series: Series, colour: str) -> None:
    edges = [n * series.step_seconds for n in range(len(chart.values) + 1)]
    place.stairs(chart.values, edges, fill=True, color=colour)
    place.set_ylabel(chart.title)
    place.set_ylim(0, max(chart.top * 1.05, place.get_ylim()[1]))
    place.set_xlim(0, max(edges[-1], 1e-3))
    place.spines[["top", "right"]].set_visible(False)


def _label_time(place: Any, series: Series, at_most: int, *, elapsed: bool) -> None:
    ticks = time_ticks(series.since, series.until, at_most=at_most, elapsed=elapsed)
    place.set_xticks([tick.at_seconds for tick in ticks], [tick.label for tick in ticks])
