"""Generate jobs, or read them from files."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple, TypeVar

from leasectl.errors import InvalidRequest, NotFound
from leasectl.model import HIGHEST_PRIORITY
from leasectl.text.durations import (
    format_seconds,
    parse_duration,
    parse_duration_range,
    parse_moment,
)
from leasectl.text.naming import check_name
from leasectl.text.wording import counted, nearest, printable

# More take longer than anybody waits.
MOST_JOBS = 100_000


class Job(NamedTuple):
    """One request, and what becomes of its leases.

    Args:
        at: When it arrives, in seconds since the first arrival, or since any fixed instant.
        holds: How long it holds, in seconds: one for all that it gets, or one for each.
        count: For how many resources it asks.
        priority: As it asks for.
        name: The one resource that will do; None for any.
        wait_seconds: It gives up after so long; None for never.
    """

    at: float
    holds: tuple[float, ...]
    count: int = 1  # type: ignore[assignment]  # as in Request
    priority: int = 0
    name: str | None = None
    wait_seconds: float | None = None

    @property
    def longest_hold(self) -> float:
        return max(self.holds)


class Arrival(NamedTuple):
    """When a job arrives and what a list of arrivals says of it; None where that is silent.

    Args:
        at: In seconds since the first line's time, or since the beginning.
        hold_seconds: How long it holds; from one time to another where chance is to choose.
        count: For how many resources it asks.
        priority: As it asks for.
        name: The one resource that will do.
    """

    at: float
    hold_seconds: float | tuple[float, float] | None = None
    count: int | None = None  # type: ignore[assignment]  # as in Request
    priority: int = 0
    name: str | None = None


# What is meant as a duration, as a pattern; `parse_duration` says whether it is one.
DURATION = r"(?:[0-9.]+[smhd]?)+"
_RANGE = re.compile(rf"{DURATION}-{DURATION}", re.ASCII)
_SPREAD = re.compile(rf"({DURATION})(?:\+-|±)(?:([0-9.]+)%|({DURATION}))", re.ASCII)


def parse_range(text: str) -> tuple[float, float] | None:
    """Read a range of durations, in seconds; None when the text is none.

    Raises:
        InvalidRequest: It is one that can't be.
    """
    if _RANGE.fullmatch(text):
        return parse_duration_range(text)
    spread = _SPREAD.fullmatch(text)
    if not spread:
        return None
    middle = parse_duration(spread[1])
    share = spread[2]
    if share is None and spread[3][-1] not in "smhd":
        raise InvalidRequest(
            f'"{printable(text)}": {spread[3]} of what? Write {printable(text)}% or '
            f"{printable(text)}s"
        )
    try:
        around = parse_duration(spread[3]) if share is None else float(share) / 100 * middle
    except ValueError:
        raise InvalidRequest(f'"{printable(text)}": "{share}" is not a number') from None
    if around > middle:
        raise InvalidRequest(f'"{printable(text)}": some of these times would be negative')
    return middle - around, middle + around


COLUMNS = ("at", "hold", "count", "priority", "name")
_SEPARATORS = (",", ";", "\t")
_LONGEST_LINE = 10_000
Value = TypeVar("Value")


def parse_arrivals_file(text: str, where: str) -> list[Arrival]:
    """Read arrivals: a line each.

    Args:
        text: The file's. Its first line names the columns, and only ``at`` is required; without
            such a line that is the only column. The separator of that line, a comma, a semicolon or
            a tab, separates the other lines too. Times are durations since the beginning, or all of
            them dates. Empty lines, and those that begin with ``#``, don't count.
        where: What messages call it, safe to show.

    Returns:
        The arrivals in the order of their times; with equal times, of the lines.

    Raises:
        InvalidRequest: A line is invalid, or there are too many or none.
    """
    rows = _rows(text, where)
    first = next(rows, None)
    if first is None:
        raise InvalidRequest(f"{where}: no job in it")
    line, cells = first
    columns: tuple[str, ...] = ("at",)
    if cells[0][:1].isdigit() or cells[0][:1] in ("-", ".", "+"):  # a duration or a date
        rows = itertools.chain([first], rows)
    else:
        columns = _columns(cells, where, line)
    found: list[tuple[float, bool, Arrival]] = []
    for line, cells in rows:
        found.append(_arrival(columns, cells, where, line))
        if found[-1][1] != found[0][1]:
            raise _refusal(where, line, "times are dates in some lines, and durations in others")
    if not found:
        raise InvalidRequest(f"{where}: no job in it")
    found.sort(key=lambda each: each[0])
    begin = found[0][0] if found[0][1] else 0.0
    return [arrival._replace(at=at - begin) for at, _, arrival in found]


def parse_holds_file(text: str, where: str) -> list[float]:
    """Read holds, in seconds: a duration in each line.

    Raises:
        InvalidRequest: A line is something else, or there are too many or none.
    """
    holds = []
    for line, cells in _rows(text, where):
        if line == 1 and cells == ["hold"]:
            continue
        if len(cells) != 1:
            raise _refusal(where, line, "write one duration per line")
        holds.append(_parsed(parse_duration, cells[0], where, line))
    if not holds:
        raise InvalidRequest(f"{where}: no hold time in it")
    return holds


def _rows(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that count: their numbers, and what stands between the separators."""
    number, separator = 0, ","
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        if len(content) > _LONGEST_LINE:
            raise _refusal(where, line, "this line is too long for a list of jobs")
        number += 1
        if number == 1:
            separator = _separator(content)
        if number > MOST_JOBS + 1:
            raise InvalidRequest(f"{where}: too many jobs; at most {MOST_JOBS} are allowed")
        try:
            (cells,) = csv.reader([content], delimiter=separator, strict=True)
        except (csv.Error, ValueError):
            raise _refusal(where, line, "these aren't comma-separated values") from None
        yield line, [cell.strip() for cell in cells]


def _separator(first_line: str) -> str:
    """What separates the columns: that which makes most names of columns out of their line."""

    def known(separator: str) -> int:
        return sum(cell.strip(' "') in COLUMNS for cell in first_line.split(separator))

    return max(_SEPARATORS, key=known)


def _columns(cells: list[str], where: str, line: int) -> tuple[str, ...]:
    for cell in cells:
        if cell not in COLUMNS:
            near = nearest(cell, COLUMNS)
            hint = f'did you mean "{near}"?' if near else f"known: {', '.join(COLUMNS)}"
            raise _refusal(where, line, f'unknown column "{printable(cell)}"; {hint}')
        if cells.count(cell) > 1:
            raise _refusal(where, line, f'column "{cell}" is given twice')
    if "at" not in cells:
        raise _refusal(where, line, 'column "at" is missing: when each job arrives')
    return tuple(cells)


def _arrival(
    columns: tuple[str, ...], cells: list[str], where: str, line: int
) -> tuple[float, bool, Arrival]:
    """One line: its time, whether that is a date, and what else it says."""
    if len(cells) != len(columns):
        values = counted(len(cells), "value")
        raise _refusal(where, line, f"{values} for {counted(len(columns), 'column')}")
    given = {column: cell for column, cell in zip(columns, cells) if cell}
    if "at" not in given:
        raise _refusal(where, line, 'no value in column "at": when the job arrives')
    date = _date(given["at"])
    at = _parsed(_since_the_beginning, given["at"], where, line) if date is None else date
    more: dict[str, Any] = {
        field: _parsed(parse, given[column], where, line)
        for column, (field, parse) in _FIELDS.items()
        if column in given
    }
    arrival = Arrival(at, **more)
    if arrival.name is not None and arrival.count not in (None, 1):
        raise _refusal(where, line, f"count {arrival.count} with a name can't be granted")
    return at, date is not None, arrival


def _date(text: str) -> float | None:
    """A date, in seconds since the epoch; None for anything else."""
    try:
        return parse_moment(text, 0.0) if text[4:5] == "-" else None
    except InvalidRequest:
        return None


def _since_the_beginning(text: str) -> float:
    try:
        return parse_duration(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}, or as a date like 2026-11-21T08:00") from None


def _hold(text: str) -> float | tuple[float, float]:
    limits = parse_range(text)
    return parse_duration(text) if limits is None else limits


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text):
        return int(text)
    raise InvalidRequest(f'invalid number of resources "{printable(text)}"')


def _priority(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit() and len(digits) < 10:
        number = int(text)
        if abs(number) <= HIGHEST_PRIORITY:
            return number
    raise InvalidRequest(
        f'invalid priority "{printable(text)}"; use {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}'
    )


# The fields of an arrival, by the columns that give them.
_FIELDS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "hold": ("hold_seconds", _hold),
    "count": ("count", _count),
    "priority": ("priority", _priority),
    "name": ("name", check_name),
}


def _parsed(parse: Callable[[str], Value], text: str, where: str, line: int) -> Value:
    try:
        return parse(text)
    except InvalidRequest as error:
        raise _refusal(where, line, str(error)) from None


def _refusal(where: str, line: int, what: str) -> InvalidRequest:
    return InvalidRequest(f"{where}:{line}: {what}")


ARRIVAL_FORMS = "500, 20x50/15m, 2/m:8h or the name of a file"
_COUNT = re.compile(r"[0-9]{1,12}", re.ASCII)
_BURSTS = re.compile(r"([0-9]{1,12})x([0-9]{1,12})/([0-9.smhd]+)", re.ASCII)
_RATE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)/([smhd]):([0-9.smhd]+)", re.ASCII)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Arrivals(NamedTuple):
    """A way in which jobs arrive.

    Args:
        text: The same for people.
        draw: Makes the arrivals, in the order of their times.
    """

    text: str
    draw: Callable[[Random], list[Arrival]]


def parse_arrivals(text: str, read: Callable[[str], str]) -> Arrivals:
    """Read how jobs arrive.

    Args:
        text: ``500`` for so many at once; ``20x50/15m`` for 20 bursts of 50, one every 15 minutes;
            ``2/m:8h`` for two a minute on average, at random times (Poisson), for 8 hours; else
            the name of a file.
        read: Reads a file as text.

    Raises:
        InvalidRequest: It is none of these, or there are too many.
        LeaseError: The file can't be read.
    """
    if _COUNT.fullmatch(text):
        return _at_once(int(text))
    bursts = _BURSTS.fullmatch(text)
    if bursts:
        return _in_bursts(int(bursts[1]), int(bursts[2]), parse_duration(bursts[3]))
    rate = _RATE.fullmatch(text)
    if rate:
        return _at_rate(text, float(rate[1]) / _UNIT_SECONDS[rate[2]], parse_duration(rate[3]))
    content, where = read_file("arrivals", text, read, ARRIVAL_FORMS)
    arrivals = parse_arrivals_file(content, where)
    said = f"{counted(_checked(len(arrivals), text), 'job')} of {where}"
    return Arrivals(said, lambda _: arrivals)


def read_file(what: str, name: str, read: Callable[[str], str], forms: str) -> tuple[str, str]:
    """Read a file; if it is missing, name the other forms of the option in the error.

    Args:
        what: What it is about.
        name: Its name.
        read: Reads it.
        forms: What else the option takes.

    Returns:
        Its content, and what messages call it.

    Raises:
        InvalidRequest: There is none.
        LeaseError: See `read`.
    """
    if name.startswith("-") and name != "-":
        raise InvalidRequest(f'{what} "{printable(name)}" must not be negative')
    try:
        return read(name), "stdin" if name == "-" else printable(name, longest=500)
    except NotFound:
        said = f'{what} "{printable(name)}": no such file, and not a valid value'
        raise InvalidRequest(f"{said}; write {forms}") from None


def _at_once(number: int) -> Arrivals:
    times = [0.0] * _checked(number, str(number))
    return Arrivals(f"{counted(number, 'job')} at once", lambda _: list(map(Arrival, times)))


def _in_bursts(bursts: int, number: int, every: float) -> Arrivals:
    _checked(bursts * number, f"{bursts}x{number}")
    times = [n * every for n in range(bursts) for _ in range(number)]
    text = f"{counted(bursts, 'burst')} of {number}, one every {format_seconds(every)}"
    return Arrivals(text, lambda _: list(map(Arrival, times)))


def _at_rate(text: str, a_second: float, seconds: float) -> Arrivals:
    if not a_second:
        raise InvalidRequest(f'arrivals "{text}": at that rate no job ever comes')
    if a_second * seconds > MOST_JOBS:
        _checked(int(a_second * seconds), text)

    def draw(chance: Random) -> list[Arrival]:
        arrivals, at = [], chance.expovariate(a_second)
        while at < seconds:
            arrivals.append(Arrival(at))
            at += chance.expovariate(a_second)
        if not arrivals:
            raise InvalidRequest(f'arrivals "{text}": by chance no job came; try a longer time')
        return arrivals

    rate = text.partition(":")[0]
    return Arrivals(f"jobs at random, {rate} for {format_seconds(seconds)}", draw)


def _checked(number: int, text: str) -> int:
    if not number:
        raise InvalidRequest(f'arrivals "{printable(text)}" have no job')
    if number > MOST_JOBS:
        raise InvalidRequest(
            f'arrivals "{printable(text)}": {number} jobs are too many; at most {MOST_JOBS}'
        )
    return number


HOLD_FORMS = "20m, 16m-24m, 20m+-20% or the name of a file"
_FIXED = re.compile(DURATION, re.ASCII)


class Holds(NamedTuple):
    """How long jobs hold.

    Args:
        text: The same for people.
        mean_seconds: How long on average.
        draw: Makes times without end, in seconds.
    """

    text: str
    mean_seconds: float
    draw: Callable[[Random], Iterator[float]]


def parse_holds(text: str, read: Callable[[str], str]) -> Holds:
    """Read how long jobs hold.

    Args:
        text: ``20m`` for all; ``16m-24m`` or ``20m+-20%`` for a time out of a range, each as likely
            as the others; else the name of a file that lists them, to be used in order, again and
            again.
        read: Reads a file as text.

    Raises:
        InvalidRequest: It is none of these.
        LeaseError: The file can't be read.
    """
    try:
        seconds = parse_duration(text) if _FIXED.fullmatch(text) else None
        limits = parse_range(text)
    except InvalidRequest as error:
        raise InvalidRequest(f"hold {error}") from None
    if seconds is not None:
        return Holds(format_seconds(seconds), seconds, lambda _: itertools.repeat(seconds))
    if limits is not None:
        low, high = limits
        shown = f"{format_seconds(low)}-{format_seconds(high)}"
        return Holds(shown, (low + high) / 2, lambda chance: _uniform(chance, low, high))
    content, where = read_file("hold", text, read, HOLD_FORMS)
    listed = parse_holds_file(content, where)
    mean = sum(listed) / len(listed)
    return Holds(f"as in {where}", mean, lambda _: itertools.cycle(listed))


def _uniform(chance: Random, low: float, high: float) -> Iterator[float]:
    while True:
        yield chance.uniform(low, high)
