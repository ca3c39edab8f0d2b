"""``leasectl maintenance reconcile``: the controller of nodes under maintenance."""

from __future__ import annotations

import contextlib
import os
import secrets

from leasectl.cli import maintenance_options
from leasectl.cli.command import new_command
from leasectl.cli.described import EVICTED, option
from leasectl.cli.maintenance_options import cluster_of, settings_of
from leasectl.cli.shown.output import note
from leasectl.errors import BackendUnreachable
from leasectl.system.clock import Clock
from leasectl.system.poll import READABLE, Interrupt, sleep_through
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import parse_duration
from leasectl.text.naming import slug

EXAMPLE = """\b
Example:
  leasectl maintenance reconcile --delete-emptydir-data &
  leasectl maintenance request worker-1 --for 30m
  kill $!
"""


@new_command(epilog=EXAMPLE)
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
def command(
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
    from leasectl.maintenance.controller import Controller
    from leasectl.maintenance.drain import DrainOptions
    from leasectl.maintenance.leadership import Leadership
    from leasectl.maintenance.watching import WatchedChanges

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
    return f"{slug(os.uname().nodename)}_{os.getpid()}_{secrets.token_hex(4)}"


def _say_nothing(_: str) -> None:
    pass
