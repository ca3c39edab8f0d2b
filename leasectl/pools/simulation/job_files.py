"""Files that list arrivals or holds: values separated by commas, as spreadsheets write them.

Some of these write semicolons or tabs instead: the line that names the columns tells.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from leasectl.errors import InvalidRequest
from leasectl.model import HIGHEST_PRIORITY
from leasectl.pools.simulation.jobs import MOST_JOBS, Arrival
from leasectl.pools.simulation.ranges import parse_range
from leasectl.text.durations import parse_duration
from leasectl.text.moments import parse_moment
from leasectl.text.naming import check_name
from leasectl.text.printable import printable
from leasectl.text.suggestions import nearest
from leasectl.text.wording import counted
from leasectl.typed.hints import Callable, TypeVar

COLUMNS = ("at", "hold", "count", "priority", "name")
_SEPARATORS = (",", ";", "\t")
_LONGEST_LINE = 10_000
Value = TypeVar("Value")


def parse_arrivals_file(text: str, where: str) -> list[Arrival]:
    """Read arrivals: a line each.

    Args:
        text: The file's. Its first line names the columns, of which only ``at`` has to be there;
            without such a line there is only that. What separates them there, a comma, a semicolon
            or a tab, does so in all lines. Times are durations since the beginning, or all of them
            dates. Empty lines, and those that begin with ``#``, don't count.
        where: What messages call it, fit to be shown.

    Returns:
        The arrivals in the order of their times; of equal times, of the lines.

    Raises:
        InvalidRequest: A line isn't as it should be, or there are too many or none.
    """
    rows = _rows(text, where)
    first = next(rows, None)
    if first is None:
        raise InvalidRequest(f"{where}: no job is in it")
    line, cells = first
    columns: tuple[str, ...] = ("at",)
    found: list[tuple[float, bool, int, Arrival]] = []
    if _is_number_or_date(cells[0]):
        found.append(_arrival(columns, cells, where, line))
    else:
        columns = _columns(cells, where, line)
    for line, cells in rows:
        found.append(_arrival(columns, cells, where, line))
        if found[-1][1] != found[0][1]:
            raise _refusal(where, line, "times are dates in some lines, and durations in others")
    if not found:
        raise InvalidRequest(f"{where}: no job is in it")
    found.sort(key=lambda each: each[0])
    begin = found[0][0] if found[0][1] else 0.0
    return [arrival._replace(at=at - begin) for at, _, _, arrival in found]


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
            raise _refusal(where, line, "one duration a line is wanted")
        holds.append(_parsed(parse_duration, cells[0], where, line))
    if not holds:
        raise InvalidRequest(f"{where}: no duration is in it")
    return holds


def _rows(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """The lines that count: their numbers, and what stands between the separators."""
    number, separator = 0, ","
    for line, content in enumerate(text.splitlines(), 1):
        if not content.strip() or content.lstrip().startswith("#"):
            continue
        if len(content) > _LONGEST_LINE:
            raise _refusal(where, line, "a line as long as this is none of a list of jobs")
        number += 1
        if number == 1:
            separator = _separator(content)
        if number > MOST_JOBS + 1:
            raise InvalidRequest(f"{where}: more than {MOST_JOBS} jobs are too many")
        try:
            (cells,) = csv.reader([content], delimiter=separator, strict=True)
        except (csv.Error, ValueError):
            raise _refusal(where, line, "no comma-separated values") from None
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
            hint = f'did you mean "{near}"?' if near else f"known are {', '.join(COLUMNS)}"
            raise _refusal(where, line, f'no column "{printable(cell)}" can be there; {hint}')
        if cells.count(cell) > 1:
            raise _refusal(where, line, f'column "{cell}" is there twice')
    if "at" not in cells:
        raise _refusal(where, line, 'column "at" is missing: when each job arrives')
    return tuple(cells)


def _arrival(
    columns: tuple[str, ...], cells: list[str], where: str, line: int
) -> tuple[float, bool, int, Arrival]:
    """One line: its time, whether that is a date, its number, and what else it says."""
    if len(cells) != len(columns):
        wanted, there = (
            f"{counted(len(each), 'value')} {'is' if len(each) == 1 else 'are'}"
            for each in (columns, cells)
        )
        raise _refusal(where, line, f"{wanted} wanted, and {there} there")
    given = {column: cell for column, cell in zip(columns, cells) if cell}
    if "at" not in given:
        raise _refusal(where, line, "it doesn't say when the job arrives")
    date = _date(given["at"])
    at = _parsed(_since_the_beginning, given["at"], where, line) if date is None else date
    arrival = Arrival(at, priority=0)
    if "hold" in given:
        arrival = arrival._replace(hold_seconds=_parsed(_hold, given["hold"], where, line))
    if "count" in given:
        arrival = arrival._replace(count=_parsed(_count, given["count"], where, line))
    if "priority" in given:
        arrival = arrival._replace(priority=_parsed(_priority, given["priority"], where, line))
    if "name" in given:
        arrival = arrival._replace(name=_parsed(check_name, given["name"], where, line))
    if arrival.name is not None and arrival.count not in (None, 1):
        raise _refusal(where, line, f"{arrival.count} of one name can't be had")
    return at, date is not None, line, arrival


def _is_number_or_date(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in ("-", ".", "+")


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
    raise InvalidRequest(f'"{printable(text)}" is no number of resources')


def _priority(text: str) -> int:
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isascii() and digits.isdigit() and len(digits) < 10:
        number = int(text)
        if abs(number) <= HIGHEST_PRIORITY:
            return number
    raise InvalidRequest(
        f'"{printable(text)}" is no priority; one is from {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY}'
    )


def _parsed(parse: Callable[[str], Value], text: str, where: str, line: int) -> Value:
    try:
        return parse(text)
    except InvalidRequest as error:
        raise _refusal(where, line, str(error)) from None


def _refusal(where: str, line: int, what: str) -> InvalidRequest:
    return InvalidRequest(f"{where}:{line}: {what}")
