"""Options for a stretch of the past, of commands that tell what happened."""

from __future__ import annotations

import time

from leasectl.cli.described import WHAT, option
from leasectl.errors import InvalidRequest
from leasectl.text.moments import parse_moment


def _moment(text: str) -> float:
    return parse_moment(text, time.time())


since = option(
    "--since",
    group=WHAT,
    type=_moment,
    metavar="TIME",
    help="Only what happened since then: how long ago, like 2h or 7d, or a date in UTC, like "
    "2026-11-21 or 2026-11-21T14:00. Default: from the first event on that is still kept.",
)
until = option(
    "--until",
    group=WHAT,
    type=_moment,
    metavar="TIME",
    help="Only what happened until then, likewise. Default: until now.",
)


def check_stretch(since: float | None, until: float | None) -> None:
    """Refuse a stretch of time that has nothing in it.

    Args:
        since: Its beginning, wall clock; None for the beginning of all.
        until: Its end; None for now.

    Raises:
        InvalidRequest: It ends before it begins.
    """
    end = time.time() if until is None else until
    if since is not None and since > end:
        which = "now" if until is None else "--until"
        raise InvalidRequest(f"--since is later than {which}: there is nothing between them")
