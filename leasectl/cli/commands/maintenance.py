"""``leasectl maintenance``: time-bounded maintenance of a node."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING

import click

from leasectl.cli import maintenance_options, options
from leasectl.cli.command import new_command
from leasectl.cli.described import EVICTED, option
from leasectl.cli.groups import CommandGroup
from leasectl.cli.maintenance_options import cluster_of, settings_of
from leasectl.cli.shown.output import note, show, show_json
from leasectl.cli.shown.table import Column, output_width, table
from leasectl.errors import BackendUnreachable
from leasectl.maintenance.asked import ask_for, is_without_controller, standings
from leasectl.maintenance.controller import Controller
from leasectl.maintenance.drain import DrainOptions
from leasectl.maintenance.facts import parse_wanted
from leasectl.maintenance.leadership import Leadership
from leasectl.maintenance.watching import WatchedChanges
from leasectl.system.clock import Clock, rfc3339
from leasectl.system.poll import READABLE, Interrupt, sleep_through
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_duration, parse_duration
from leasectl.text.naming import escape_word
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.maintenance.asked import Standing


_REQUEST_EXAMPLE = """\b
Examples:
  leasectl maintenance request worker-1 --for 30m
  leasectl maintenance status worker-1
"""


@new_command(epilog=_REQUEST_EXAMPLE, options_metavar="--for D [OPTIONS]")
@maintenance_options.node_argument
@option(
    "--for",
    "asked",
    required=True,
    metavar="D",
    help="For how long, like 30m, from when the node's Lease is had.",
)
@maintenance_options.quiet
@maintenance_options.backend
def request(*, node: str, asked: str, quiet: bool, backend: str | None) -> None:
    """Ask for maintenance of a node, for a time.

    It is noted at the node, and done by leasectl maintenance reconcile, wherever that runs. Asked
    for again with another time, longer or shorter, it lasts as long as that from when it began.
    """
    before = ask_for(cluster_of(backend), node, asked)
    if quiet:
        return
    asks = f"{node} asks for maintenance of {asked.strip()}"
    if before is None:
        note(asks)
    elif parse_wanted(before) == parse_wanted(asked):
        note(f"{asks} already, counted from its beginning: nothing changes")
    else:
        note(f'{asks} instead of "{printable(before)}", counted from its beginning')


_CANCEL_EXAMPLE = """\b
Example:
  leasectl maintenance cancel worker-1
"""


@new_command(epilog=_CANCEL_EXAMPLE)
@maintenance_options.node_argument
@maintenance_options.quiet
@maintenance_options.backend
def cancel(*, node: str, quiet: bool, backend: str | None) -> None:
    """Ask for no maintenance of a node any more.

    If it has begun, it ends: the node is uncordoned, unless somebody else had cordoned it.
    """
    from leasectl.maintenance.asked import cancel

    had_asked = cancel(cluster_of(backend), node)
    if not quiet:
        note(f"{node} asks for no maintenance{' any more' if had_asked else ''}")


_STATUS_EXAMPLE = """\b
Examples:
  leasectl maintenance status
  leasectl maintenance status worker-1 --json
"""

_COLUMNS = (
    Column("NODE", shrinks=3, at_least=24),
    Column("ASKED"),
    Column("STATUS", shrinks=2, at_least=16, cut="end"),
    Column("CORDONED"),
    Column("LEASE", shrinks=1),
    Column("OVER IN", right=True),
)
_LONGEST_STATUS = 300
# A time is shorter; what somebody has written in vain may be anything.
_LONGEST_ASKED = 12


@new_command(epilog=_STATUS_EXAMPLE)
@click.argument("node", type=maintenance_options.check_node, metavar="[NODE]", required=False)
@options.json_output
@maintenance_options.lease_namespace
@maintenance_options.lease_name
@maintenance_options.identity
@maintenance_options.backend
def status(
    *,
    node: str | None,
    as_json: bool,
    lease_namespace: str,
    lease_name: str,
    identity: str,
    backend: str | None,
) -> None:
    """Show which nodes are under maintenance, or ask for it.

    Those where it has ended stay in the table. With NODE, of that one, whatever there is. STATUS is
    what the controller has noted, and nothing before it has seen the node; LEASE is who has the
    node's Lease, CORDONED whose the cordon is.
    """
    settings = settings_of(lease_name, identity)
    cluster = cluster_of(backend, lease_namespace, identity)
    found = standings(cluster, settings, node)
    if as_json:
        show_json([_facts(each) for each in found])
    elif found:
        now = time.time()
        laid_out = table(_COLUMNS, [_row(each, now) for each in found], output_width())
        show(laid_out.text)
        if node is not None and not laid_out.is_whole:
            show(f"\nSTATUS in full: {_status(found[0])}\n")
    else:
        note("no node asks for maintenance")
    for each in found:
        why = settings.has_no_lease(each.node)
        if each.asked is not None and why:
            note(f"{each.node}: {why}, here and of leasectl maintenance reconcile")
    if any(each.asked is not None for each in found) and is_without_controller(cluster):
        note(f"nobody does it: no leasectl maintenance reconcile leads in {lease_namespace}")


def _row(standing: Standing, now: float) -> tuple[str, ...]:
    over_at = standing.over_at
    return (
        standing.node,
        "-" if standing.asked is None else printable(standing.asked, longest=_LONGEST_ASKED),
        _status(standing),
        standing.cordon or "no",
        printable(standing.holder or "-"),
        "-" if over_at is None else format_duration(max(0.0, over_at - now)),
    )


def _status(standing: Standing) -> str:
    return printable(standing.status or "-", longest=_LONGEST_STATUS)


def _facts(standing: Standing) -> dict[str, object]:
    return {
        "node": standing.node,
        "asked": standing.asked,
        "status": standing.status or None,
        "cordon": standing.cordon or None,
        "holder": standing.holder or None,
        "over_at": rfc3339(standing.over_at),
    }


_RECONCILE_EXAMPLE = """\b
Example:
  leasectl maintenance reconcile --delete-emptydir-data &
  leasectl maintenance request worker-1 --for 30m
  kill $!
"""


@new_command(epilog=_RECONCILE_EXAMPLE)
@option(
    "--force",
    group=EVICTED,
    is_flag=True,
    help="Also evict pods that no controller would make again.",
)
@option(
    "--delete-emptydir-data",
    "deletes_local_data",
    group=EVICTED,
    is_flag=True,
    help="Also evict pods with data in an emptyDir, which goes with them.",
)
@option(
    "--grace-period",
    "grace_seconds",
    group=EVICTED,
    type=int,
    metavar="SECONDS",
    help="How long a pod may take to end. Default: as long as it says itself.",
)
@option(
    "--timeout",
    "timeout_seconds",
    group=EVICTED,
    type=parse_duration,
    metavar="D",
    help="Evict nothing more so long after a maintenance has begun. Default: go on to its end.",
)
@maintenance_options.quiet
@maintenance_options.lease_namespace
@maintenance_options.lease_name
@maintenance_options.identity
@maintenance_options.backend
def reconcile(
    *,
    force: bool,
    deletes_local_data: bool,
    grace_seconds: int | None,
    timeout_seconds: float | None,
    quiet: bool,
    lease_namespace: str,
    lease_name: str,
    identity: str,
    backend: str | None,
) -> None:
    """Do what nodes ask for, until interrupted: the controller.

    Each node that asks is cordoned under a Lease, drained by evictions that heed disruption
    budgets, and uncordoned at the end; a node that somebody else had cordoned stays so. Pods of
    DaemonSets and mirror pods are left alone. It may be killed at any time, and run several times
    at once: one of them leads, by a Lease beside those of the nodes, and the others stand by.
    """
    if grace_seconds is not None and grace_seconds < 0:
        grace_seconds = None  # as kubectl has it
    drain = DrainOptions(force, deletes_local_data, grace_seconds, timeout_seconds or None)
    settings = settings_of(lease_name, identity)._replace(drain=drain)
    cluster = cluster_of(backend, lease_namespace, identity)
    say = _say_nothing if quiet else note
    clock = Clock()
    leadership = Leadership(cluster, _replica(), clock)
    changes = WatchedChanges(cluster, settings, note)
    controller = Controller(cluster, changes, settings, leadership, clock=clock, say=say, warn=note)
    changes.begin()  # until that is done it leads nothing, and a signal may end it where it is
    with SignalTrap() as trap:
        ends = [Interrupt(trap.fd, READABLE, trap.check)]
        try:
            sleep_through(controller.run(), interrupts=ends, now=clock.elapsed)
        finally:
            changes.close()
            with contextlib.suppress(BackendUnreachable):
                leadership.resign()


def _replica() -> str:
    return f"{escape_word(os.uname().nodename)}_{os.getpid()}_{secrets.token_hex(4)}"


def _say_nothing(_: str) -> None:
    pass


@click.group(cls=CommandGroup)
def command() -> None:
    """Cordon and drain Kubernetes nodes for a time window.

    A node is asked for maintenance by an annotation; reconcile, the controller, then holds its
    Lease, cordons and drains it, and uncordons it when the time is over.
    """


# In the order in which help shows them.
command.add_command(request, "request")
command.add_command(cancel, "cancel")
command.add_command(status, "status")
command.add_command(reconcile, "reconcile")
