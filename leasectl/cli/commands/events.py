"""``leasectl events``: what happened to leases and pools, and what is happening."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial

import click

from leasectl.backends.kinds import kind_of
from leasectl.cli import options, time_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import OUTPUT, WHAT, option
from leasectl.cli.shown.event_lines import DATE, NO_EVENTS_OF_DRY_RUN, EventLines
from leasectl.cli.shown.output import note, show
from leasectl.cli.shown.terminal import output_width, shows_colour
from leasectl.engines.event_log import EventLog
from leasectl.errors import BackendUnreachable, Interrupted, InvalidRequest, NotSupported
from leasectl.leases.service import Service
from leasectl.pools.history import follow, in_pieces, put_right
from leasectl.state.event import Event, EventFilter, Missed, number_of
from leasectl.system.clock import boottime_seconds
from leasectl.system.poll import READABLE, Interrupt, sleep
from leasectl.system.signals import SignalTrap
from leasectl.text.naming import check_name
from leasectl.text.wording import counted, followed_by
from leasectl.typed.hints import Callable

EXAMPLE = """\b
Examples:
  leasectl events
  leasectl events -t azure--install --since 2h
  leasectl events -n 20 --json
"""

_NONE_LIKE_THAT = "no such events among those that are kept; to see them all: leasectl events"
_SHOWN_BEFORE_FOLLOWING = 10
_ASK_AGAIN_SECONDS = 2.0


@new_command(epilog=EXAMPLE, options_metavar="[TYPE] [OPTIONS]")
@options.one_type("Only those of this pool; it may also stand without -t.", group=WHAT)
@option(
    "--handle",
    group=WHAT,
    metavar="H",
    shell_complete=options.complete_handles,
    help="Only those of this handle: the path that acquire printed, or its last part.",
)
@option(
    "--name",
    group=WHAT,
    type=check_name,
    metavar="NAME",
    shell_complete=options.complete_name,
    help="Only those of this resource.",
)
@option(
    "--holder",
    group=WHAT,
    metavar="TEXT",
    help="Only those of holders with this text in <job>/<build>/<host>/<handle>.",
)
@time_options.since
@time_options.until
@option(
    "-n",
    "--lines",
    "last",
    group=OUTPUT,
    type=click.IntRange(0),
    metavar="N",
    help="Only the last N. Default: all; with -f and no --since, 10.",
)
@option(
    "-f",
    "--follow",
    "follows",
    group=OUTPUT,
    is_flag=True,
    help="Go on with what happens, as it happens, until interrupted or nobody reads it.",
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
    """Show what happened to leases and pools, and go on.

    Who queued, was granted, gave back, lost or gave up what, after what time, by whom or what, and
    why; whom a reclaim asked, and what was said; and what pools were made and changed. A line each,
    the oldest first, times in UTC; on a terminal a long one goes on below. Of a lease proxy they
    are those of this state directory's handles. Events are kept for 30 days, and the last 100,000
    of them, unless LEASECTL_KEEP_EVENTS says otherwise, like 7d,10000 or 0 for none; on Kubernetes
    the cluster keeps those of other machines for an hour, and stderr says since when there are any.
    --json prints an object a line, with all that is known of each.
    """
    time_options.check_stretch(since, until)
    if follows and until is not None:
        raise InvalidRequest("-f goes on and on: leave out --until, or -f")
    wanted = EventFilter(pool_type, _handle_id(handle), name, holder, since, until)
    service = open_service(backend, to_show=not follows)
    put_right(service, pool_type)
    shows = _Shows(as_json=as_json)
    if follows:
        if last is None and since is None:
            last = _SHOWN_BEFORE_FOLLOWING
        _show_and_follow(service, wanted, shows, last)
        return
    log = service.events
    is_any = shows.each(_so_far(log, wanted, last))
    if log.remark:
        note(log.remark)
    if not is_any and last != 0:
        _require_pool(service, pool_type)
        if kind_of(service.backend_url).grants_nothing:
            note(NO_EVENTS_OF_DRY_RUN)
        else:
            note("no events" if wanted == EventFilter() else _NONE_LIKE_THAT)


class _Shows:
    """Shows events on stdout, for people or for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self._text: Callable[[Sequence[Event]], str] = (
            _json_lines if as_json else EventLines(output_width(), colour=shows_colour()).text
        )

    def __call__(self, events: Sequence[Event]) -> None:
        show(self._text(events))

    def each(self, events: Iterable[Event]) -> bool:
        """Show some, in pieces; returns whether there were any."""
        found = False
        for piece in in_pieces(iter(events)):
            self(piece)
            found = True
        return found


def _json_lines(events: Sequence[Event]) -> str:
    import json

    from leasectl.pools.event_json import encode_event

    return "".join(json.dumps(encode_event(each)) + "\n" for each in events)


def _handle_id(handle: str | None) -> str | None:
    if handle is None:
        return None
    handle_id = os.path.basename(handle)
    if not handle_id:
        raise InvalidRequest("--handle: give the path that acquire printed, or its last part")
    return handle_id


def _so_far(log: EventLog, wanted: EventFilter, last: int | None) -> Iterable[Event]:
    """What has happened so far, all of it or the last so many, the oldest first."""
    return log.read(wanted) if last is None else log.latest(wanted, last)[::-1]


def _require_pool(service: Service, pool_type: str | None) -> None:
    """Where nothing is known of a pool, say so if there is none of that type."""
    if pool_type is not None:
        # Where there are no pools to be asked, who is asked for leases knows the types.
        with contextlib.suppress(NotSupported):
            service.pools.pools(pool_type)


def _show_and_follow(
    service: Service, wanted: EventFilter, shows: _Shows, last: int | None
) -> None:
    log = service.events
    with SignalTrap() as trap:
        ends = (
            Interrupt(trap.fd, READABLE, trap.check),
            # No event is asked for: a pipe without a reader reports an error all the same.
            Interrupt(1, 0, _end_as_by_writing),
        )
        since = time.time()
        after = log.last_number()

        def show_what_was_before() -> None:
            nonlocal after
            for events in in_pieces(iter(_so_far(log, wanted, last))):
                shows(events)
                after = max(after, *map(number_of, events))

        trap.interrupting(show_what_was_before)
        if log.remark:
            note(log.remark)

        def sleep_until_readable(fd: int, reached: int) -> None:
            nonlocal after, since
            after, since = reached, time.time()
            sleep(wake_fds=(fd,), interrupts=ends, until=None, now=boottime_seconds)

        def note_missed(missed: Missed) -> None:
            note(_missed_line(missed, since))

        is_told = False
        while True:
            try:
                for events in follow(
                    log, wanted, after=after, sleep=sleep_until_readable, missed=note_missed
                ):
                    trap.interrupting(partial(shows, events))
                    after = max(map(number_of, events))
                    since, is_told = events[-1].time, False
            except BackendUnreachable as error:
                if not is_told:
                    note(followed_by(error, "waiting for it"))
                is_told = True
                again = boottime_seconds() + _ASK_AGAIN_SECONDS
                sleep(wake_fds=(), interrupts=ends, until=again, now=boottime_seconds)


def _missed_line(missed: Missed, since: float) -> str:
    """Say what can't be shown any more, and when it happened."""
    until = time.time() if missed.until is None else missed.until
    begin, end = (time.strftime(DATE, time.gmtime(each)) for each in (min(since, until), until))
    what = "there may be events" if missed.number is None else counted(missed.number, "event")
    return (
        f"{what} of all pools between {begin} and {end} that can't be shown: removed before this "
        "came to them, as only so many are kept (LEASECTL_KEEP_EVENTS)"
    )


def _end_as_by_writing() -> None:
    import signal

    raise Interrupted(signal.SIGPIPE)
