"""``leasectl events``: what happened to leases and pools, and what is happening."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import Between, option
from leasectl.cli.rendering.output import note, output_interrupts, show
from leasectl.cli.rendering.stats_table import DATE, NO_EVENTS_OF_DRY_RUN, WHEN_RECORDED, EventLines
from leasectl.cli.rendering.table import output_width, shows_colour
from leasectl.engines.pool_admin import EventLog
from leasectl.errors import Interrupted, InvalidRequest, NotSupported
from leasectl.leases.service import Service
from leasectl.pools.history import encode_event, follow, in_pieces, put_right, so_far
from leasectl.state.event import Event, EventFilter, Missed
from leasectl.system.poll import sleep
from leasectl.system.signals import SignalTrap
from leasectl.text.naming import check_key, check_name, escape_name, is_resource_name
from leasectl.text.wording import counted, followed_by

_NONE_LIKE_THAT = "no event matches; show all with: leasectl events"
_SHOWN_BEFORE_FOLLOWING = 10


def _parse_name(text: str) -> str:
    """Return a resource name, or the key of a work as events hold it."""
    if is_resource_name(text) or text.startswith("--"):
        return check_name(text)
    return escape_name(check_key(text))


@new_command(options_metavar="[POOL] [OPTIONS]")
@options.one_type("Only this pool; -t itself may be omitted.", group="Filters")
@option(
    "--handle H",
    "Only this handle: the path that acquire printed, or its last part.",
    group="Filters",
)
@option(
    "--name NAME",
    "Only this resource, or the work with this key.",
    type=_parse_name,
    group="Filters",
)
@option(
    "--holder TEXT",
    "Only holders with this text in <job>/<build>/<host>/<handle>.",
    group="Filters",
)
@options.since
@options.until
@option(
    "-n, --lines N",
    "Show the last N events. Default: all; on a terminal without --since, a screenful; with "
    "-f, 10.",
    to="last",
    type=Between(0),
    group="Output",
)
@option(
    "-f, --follow",
    "Show new events as they happen, until interrupted.",
    to="follows",
    group="Output",
)
@options.json_output
@options.backend
def command(
    *,
    pool_type: str | None,
    handle: str | None,
    name: str | None,
    holder: str | None,
    since: float | None,
    until: float | None,
    last: int | None,
    follows: bool,
    as_json: bool,
    backend: str | None,
) -> None:
    """Show and follow the event log of leases and pools.

    Shows requests being queued, granted, released, lost or abandoned, with the wait or hold time,
    the cause and the reason; reclaims with their answers; and changes of pools. One line per
    event, oldest first, times in UTC. --json prints one object per line, with all fields.

    At most 100,000 events are kept, none older than 30 days; change that with LEASECTL_KEEP_EVENTS,
    like 7d,10000, or 0 to keep none. On a lease proxy, only events of this state directory are
    shown. On Kubernetes, events of other machines are kept for an hour only; stderr says from which
    time on they are shown.

    \b
    Examples:
      leasectl events
      leasectl events -t azure--install --since 2h
      leasectl events -n 20 --json
    """
    options.check_stretch(since, until)
    if follows and until is not None:
        raise InvalidRequest("-f has no end; leave out --until, or -f")
    wanted = EventFilter(pool_type, _handle_id(handle), name, holder, since, until)
    service = open_service(backend, to_show=not follows)
    put_right(service, pool_type)
    shows = _Shows(as_json=as_json)
    if follows:
        if last is None and since is None:
            last = _SHOWN_BEFORE_FOLLOWING
        _show_and_follow(service.events, wanted, shows, last)
        return
    log = service.events
    room = _screenful() if last is None and since is None and not as_json else None
    if room is None:
        is_any = shows.each(so_far(log, wanted, last))
    else:
        latest = log.latest(wanted, room + 1)[::-1]
        fitting = shows.last_that_fit(latest, room)
        is_any = shows.each(fitting)
        if len(latest) > len(fitting):
            last_ones = "last event" if len(fitting) == 1 else f"last {len(fitting)} events"
            note(f"{last_ones}; show more with -n or --since, or all with: | less")
    _note_remark(log)
    if not is_any and last != 0:
        _require_pool(service, pool_type)
        if service.kind.grants_nothing:
            note(NO_EVENTS_OF_DRY_RUN)
        else:
            note(f"no events yet; {WHEN_RECORDED}" if wanted == EventFilter() else _NONE_LIKE_THAT)


def _screenful() -> int | None:
    """Return how many lines fit a terminal on stdout; None if stdout is none."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().lines - 2, 1)


class _Shows:
    """Shows events on stdout, for people or for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self._text: Callable[[Sequence[Event]], str] = (
            _json_lines if as_json else EventLines(output_width(), colour=shows_colour()).text
        )

    def __call__(self, events: Sequence[Event]) -> None:
        show(self._text(events))

    def last_that_fit(self, events: Sequence[Event], lines: int) -> Sequence[Event]:
        """Return the last events that take so many lines at most, or the very last."""
        for number, event in enumerate(reversed(events)):
            lines -= self._text([event]).count("\n")
            if lines < 0:
                return events[len(events) - max(1, number) :]
        return events

    def each(self, events: Iterable[Event]) -> bool:
        """Show some, in pieces; returns whether there were any."""
        found = False
        for piece in in_pieces(iter(events)):
            self(piece)
            found = True
        return found


def _json_lines(events: Sequence[Event]) -> str:
    return "".join(json.dumps(encode_event(each)) + "\n" for each in events)


def _handle_id(handle: str | None) -> str | None:
    if handle is None:
        return None
    handle_id = os.path.basename(handle)
    if not handle_id:
        raise InvalidRequest("--handle: give the path that acquire printed, or its last part")
    return handle_id


def _require_pool(service: Service, pool_type: str | None) -> None:
    """Where nothing is known of a pool, say so if there is none of that type."""
    if pool_type is not None:
        # Where there are no pools to be asked, who is asked for leases knows the types.
        with contextlib.suppress(NotSupported):
            service.pools.pools(pool_type)


def _show_and_follow(log: EventLog, wanted: EventFilter, shows: _Shows, last: int | None) -> None:
    with SignalTrap() as trap:
        ends = output_interrupts(trap, _end_as_by_writing)
        pieces = follow(
            log,
            wanted,
            last=last,
            begun=lambda: _note_remark(log),
            sleep=lambda fds, until, _: sleep(wake_fds=fds, interrupts=ends, until=until),
            missed=lambda gone, since: note(_missed_line(gone, since)),
            unreachable=lambda error: note(followed_by(error, "waiting for it")),
        )
        for events in pieces:
            trap.interrupting(partial(shows, events))


def _note_remark(log: EventLog) -> None:
    if log.remark:
        note(log.remark)


def _missed_line(missed: Missed, since: float) -> str:
    """Say what can't be shown any more, and when it happened."""
    until = time.time() if missed.until is None else missed.until
    begin, end = (time.strftime(DATE, time.gmtime(each)) for each in (min(since, until), until))
    if missed.is_restored:
        return (
            f"the server was restored from an older copy: events of all pools between {begin} and "
            f"{end} may be missing here"
        )
    what = "events" if missed.number is None else counted(missed.number, "event")
    verb = "may have been" if missed.number is None else "was" if missed.number == 1 else "were"
    return (
        f"{what} of all pools between {begin} and {end} {verb} removed before being shown; keep "
        "more with LEASECTL_KEEP_EVENTS"
    )


def _end_as_by_writing() -> None:
    raise Interrupted(signal.SIGPIPE)
