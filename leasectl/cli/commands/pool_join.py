"""``leasectl pool join``: a name comes to its pool by itself."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service, process_named_by
from leasectl.cli.described import option
from leasectl.cli.shown.handle_output import print_and_announce, print_handle
from leasectl.engines.members import Updated
from leasectl.engines.membership import Lifetime, leaves_no_more
from leasectl.errors import InvalidRequest
from leasectl.leases.announce import take_back
from leasectl.leases.service import Service
from leasectl.model import Process
from leasectl.pools import joining
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import parse_duration

EXAMPLE = """\b
Example:
  h=$(leasectl pool join azure--install --name host-7 --hold \\
    --while-pid $$)
  # get ready; nobody else gets it before this:
  leasectl release --handle "$h"
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.name
@option(
    "--hold",
    is_flag=True,
    help="Join as held, past queue and pace, so that nobody gets it before it is ready, and print "
    "the handle; its release makes it free.",
)
@option(
    "--guard-pid",
    type=int,
    metavar="PID",
    help="With --hold: release when this process ends; in a script, use $$. Default: no guard.",
)
@option(
    "--ttl",
    "ttl_seconds",
    type=parse_duration,
    metavar="D",
    help="Stay this long after the last join, like 10m; join again to stay on. Default: for good.",
)
@option(
    "--while-pid",
    type=int,
    metavar="PID",
    help="Stay as long as this process of this machine runs. Default: for good.",
)
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    name: str,
    hold: bool,
    guard_pid: int | None,
    ttl_seconds: float | None,
    while_pid: int | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Have a name join a pool, as a machine does that adds itself.

    It has joined for all at once, or is refused with the pool that has it or that it belongs to
    (exit code 77); from the default pool, where it is free and by default, it is taken over. To
    join again is to renew: of what this state directory holds by join, the same handle is printed.

    With --ttl or --while-pid the membership ends with it: free, it goes; held, it takes no new
    holder and goes with its release. In etcd and Kubernetes, --while-pid also ends when
    this machine can't reach it for a minute.
    """
    if ttl_seconds is not None and while_pid is not None:
        raise InvalidRequest("either --ttl or --while-pid: the membership ends with one of them")
    if guard_pid is not None and not hold:
        raise InvalidRequest(
            "--guard-pid releases what --hold holds; give that, too, or --while-pid"
        )
    guard = None if guard_pid is None else process_named_by("--guard-pid", guard_pid)
    process = None if while_pid is None else process_named_by("--while-pid", while_pid)
    with SignalTrap() as trap:
        service = open_service(backend)
        lives = joining.lifetime(service, ttl_seconds=ttl_seconds, process=process)
        if hold:
            what = _join_held(service, trap, pool_type, name, lives=lives, guard=guard)
        else:
            what = _joined(joining.join(service, pool_type, name, lives=lives))
    pool_options.say_done(quiet, f'{what}: "{name}" in pool "{pool_type}"')


def _joined(updated: Updated) -> str:
    """What has become of a name that has joined."""
    ((before,), (after,), _) = updated
    what = "joined again" if before.pool == after.pool else "joined"
    return f"{what}, and to leave no more" if leaves_no_more(before, after) else what


def _join_held(
    service: Service,
    trap: SignalTrap,
    pool_type: str,
    name: str,
    *,
    lives: Lifetime | None,
    guard: Process | None,
) -> str:
    again = joining.join_again(service, pool_type, name, lives=lives, guard=guard)
    if again is not None:
        print_handle(service, again.handle, "handle")
        return f"{_joined(again.updated)}, held"
    handle = joining.join_held(service, pool_type, name, lives=lives, guard=guard)
    print_and_announce(service, handle, trap)
    try:
        joining.settle(service, handle)
    except BaseException:
        take_back(service, handle)
        raise
    return "joined, held"
