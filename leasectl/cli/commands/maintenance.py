"""``leasectl maintenance``: time-bounded maintenance of a node."""

from __future__ import annotations

import time

from leasectl.cli import maintenance_options, options
from leasectl.cli.command import new_command
from leasectl.cli.described import option, word
from leasectl.cli.groups import group
from leasectl.cli.maintenance_options import cluster_of
from leasectl.cli.rendering.output import note, show, show_json
from leasectl.cli.rendering.table import Column, number, output_width, table
from leasectl.maintenance import asked
from leasectl.maintenance.asked import Standing, ask_for, is_without_controller, standings
from leasectl.maintenance.controller import check_node, parse_settings
from leasectl.maintenance.drain import DrainOptions
from leasectl.maintenance.facts import parse_wanted
from leasectl.maintenance.watching import WatchedChanges, run_controller
from leasectl.system.clock import rfc3339
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_duration
from leasectl.text.wording import printable


@new_command(options_metavar="--for D [OPTIONS]")
@maintenance_options.node_argument
@option(
    "--for D",
    "Length of the window, like 30m. It counts from when the node's Lease is acquired.",
    to="asked",
    type=str,
    required=True,
)
@options.quiet
@maintenance_options.backend
def request(*, node: str, asked: str, quiet: bool, backend: str | None) -> None:
    """Request maintenance of a node.

    The request is an annotation of the node. The controller, leasectl maintenance reconcile, opens
    the window. If the node already has a request, this command changes its duration: the window
    becomes longer or shorter, and still counts from its beginning. For a new window with its full
    duration, cancel the request first.

    \b
    Examples:
      leasectl maintenance request worker-1 --for 30m
      leasectl maintenance status worker-1
    """
    before = ask_for(cluster_of(backend), node, asked)
    if quiet:
        return
    duration = asked.strip()
    if before is None:
        note(f"requested maintenance of {node} for {duration}")
    elif parse_wanted(before) == parse_wanted(asked):
        note(
            f"maintenance of {node} is already requested for {duration}; for a new window, run "
            f"first: leasectl maintenance cancel {node}"
        )
    else:
        note(
            f'changed the requested maintenance of {node} from "{printable(before)}" to '
            f"{duration}, counted from the beginning of its window"
        )


@new_command()
@maintenance_options.node_argument
@options.quiet
@maintenance_options.backend
def cancel(*, node: str, quiet: bool, backend: str | None) -> None:
    """Cancel the requested maintenance of a node.

    If the window has begun, the controller ends it and uncordons the node, unless the node was
    cordoned before the window.

    \b
    Example:
      leasectl maintenance cancel worker-1
    """
    was_requested = asked.cancel(cluster_of(backend), node)
    if not quiet and was_requested:
        note(f"cancelled the requested maintenance of {node}")
    elif not quiet:
        note(f"no maintenance of {node} is requested")


_COLUMNS = (
    Column("NODE", shrinks=3, at_least=24),
    Column("REQUESTED"),
    Column("STATUS", shrinks=2, at_least=16, cut="end"),
    Column("CORDONED"),
    Column("LEASE", shrinks=1),
    number("ENDS IN"),
)
_LONGEST_STATUS = 300
# A valid duration is shorter; an invalid one may be any text.
_LONGEST_ASKED = 12


@new_command()
@word("node", "[NODE]", type=check_node, required=False)
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
    """Show requested maintenance and its state.

    STATUS is the controller's last report, CORDONED shows who cordoned the node, and LEASE who
    holds the node's Lease. ENDS IN is the rest of the maintenance window; for a node that waits,
    the rest of the other holder's Lease. Nodes whose window has ended stay in the table.

    \b
    Examples:
      leasectl maintenance status
      leasectl maintenance status worker-1 --json
    """
    settings = parse_settings(lease_name, identity)
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
        note("no maintenance is requested")
    for each in found:
        why = settings.has_no_lease(each.node)
        if each.asked is not None and why:
            note(f"{each.node}: {why}, with this command and leasectl maintenance reconcile")
        elif each.waits_seconds:
            note(f"{each.node} {_waiting(each, time.time())}")
    if any(each.asked is not None for each in found) and is_without_controller(cluster):
        note(
            "no controller runs; start one with: leasectl maintenance reconcile --lease-namespace "
            f"{lease_namespace}"
        )


def _waiting(standing: Standing, now: float) -> str:
    """Return until when a node waits, for people."""
    waits = f"waits for the Lease of {printable(standing.holder)}"
    if standing.waits_until is not None and standing.waits_until > now:
        at = str(rfc3339(standing.waits_until))[:19]
        return f"{waits}, which expires at {at}Z unless it is renewed"
    lasts = format_duration(standing.waits_seconds)
    return f"{waits}, until the controller has seen no renewal for {lasts}"


def _row(standing: Standing, now: float) -> tuple[str, ...]:
    ends_at = standing.waits_until if standing.over_at is None else standing.over_at
    return (
        standing.node,
        "-" if standing.asked is None else printable(standing.asked, longest=_LONGEST_ASKED),
        _status(standing),
        standing.cordon or "no",
        printable(standing.holder or "-"),
        "-" if ends_at is None else format_duration(max(0.0, ends_at - now)),
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
        "waits_until": rfc3339(standing.waits_until),
    }


@new_command()
@option("--force", "Also evict pods that no controller would replace.", group="Evictions")
@option(
    "--delete-emptydir-data",
    "Also evict pods with an emptyDir, whose data is lost.",
    to="deletes_local_data",
    group="Evictions",
)
@option(
    "--grace-period SECONDS",
    "Grace period of each pod. Default: the pod's own.",
    to="grace_seconds",
    type=int,
    group="Evictions",
)
@option(
    "--timeout D",
    "Stop evicting pods this long after a window began. Default: at the window's end.",
    to="timeout_seconds",
    group="Evictions",
)
@options.quiet
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
    """Run the controller, until interrupted.

    For each request, the controller acquires the node's Lease, cordons the node, drains it by
    evictions that respect disruption budgets, and uncordons it at the end. It leaves pods of
    DaemonSets and mirror pods alone, and keeps a cordon that the node had before. You can kill it
    at any time, and run several replicas: one leads, and the others stand by.

    \b
    Example:
      leasectl maintenance reconcile --delete-emptydir-data &
      leasectl maintenance request worker-1 --for 30m
      kill $!
    """
    if grace_seconds is not None and grace_seconds < 0:
        grace_seconds = None  # like kubectl
    drain = DrainOptions(force, deletes_local_data, grace_seconds, timeout_seconds or None)
    settings = parse_settings(lease_name, identity)._replace(drain=drain)
    cluster = cluster_of(backend, lease_namespace, identity)
    say = (lambda _: None) if quiet else note
    changes = WatchedChanges(cluster, settings, note)
    changes.begin()  # until that is done it leads nothing, and a signal may end it where it is
    with SignalTrap() as trap:
        ends = [Interrupt(trap.fd, READABLE, trap.check)]
        run_controller(cluster, changes, settings, say=say, warn=note, interrupts=ends)


@group(request, cancel, status, reconcile)
def command() -> None:
    """Cordon and drain Kubernetes nodes for a time window.

    An annotation of a node requests maintenance. The controller, reconcile, then holds the node's
    Lease, cordons and drains the node, and uncordons it when the time is over.
    """
