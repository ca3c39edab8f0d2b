"""When jobs arrive: at once, in bursts, at a rate, or as a file lists them."""

from __future__ import annotations

import re
from random import Random

from leasectl.errors import InvalidRequest, NotFound
from leasectl.pools.simulation.job_files import parse_arrivals_file
from leasectl.pools.simulation.jobs import MOST_JOBS, Arrival
from leasectl.text.durations import format_seconds, parse_duration
from leasectl.text.printable import printable
from leasectl.text.wording import counted
from leasectl.typed.hints import Callable
from leasectl.typed.tuples import NamedTuple

FORMS = "500, 20x50/15m, 2/m:8h or the name of a file"
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
    content, where = read_file("arrivals", text, read, FORMS)
    arrivals = parse_arrivals_file(content, where)
    said = f"{counted(_checked(len(arrivals), text), 'job')} of {where}"
    return Arrivals(said, lambda _: arrivals)


def read_file(what: str, name: str, read: Callable[[str], str], forms: str) -> tuple[str, str]:
    """Read a file; where there is none, somebody may have meant something else.

    Args:
        what: What it is about.
        name: Its name.
        read: Reads it.
        forms: What would do instead.

    Returns:
        What it holds, and what messages call it.

    Raises:
        InvalidRequest: There is none.
        LeaseError: As `read`.
    """
    if name.startswith("-") and name != "-":
        raise InvalidRequest(f'{what} "{printable(name)}": nothing here can be negative')
    try:
        return read(name), "stdin" if name == "-" else printable(name, longest=500)
    except NotFound:
        said = f'{what} "{printable(name)}": neither a form that is known nor a file that is there'
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
        raise InvalidRequest(f'arrivals "{printable(text)}": that is no job at all')
    if number > MOST_JOBS:
        raise InvalidRequest(
            f'arrivals "{printable(text)}": {number} jobs are too many; at most {MOST_JOBS}'
        )
    return number
