"""``leasectl pool set``: change how a pool grants, what its resources are, which is the default."""

from __future__ import annotations

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.errors import InvalidRequest
from leasectl.pools.admin import PoolService
from leasectl.pools.memberships import MembershipService
from leasectl.pools.settings import NO_CHANGE, SettingsChange, check_grace, describe
from leasectl.text.durations import format_duration, parse_duration
from leasectl.text.wording import counted
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.engines.membership import Pools
    from leasectl.leases.service import Service

EXAMPLE = """\b
Examples:
  leasectl pool set azure--install --pace 20s
  leasectl pool set azure--install --pace 20s --burst 2 --aging 30m
  leasectl pool set azure--install --pace 0
  leasectl pool set azure--install --property region=eastus --property size-
  leasectl pool set azure--install --names azure--install--00 \\
    --property region=westus
  leasectl pool set azure--install --default --grace 5m
  leasectl acquire azure--install --where region=westus --where size!=small
"""


@new_command(epilog=EXAMPLE)
@pool_options.pool_argument
@pool_options.pace
@pool_options.burst
@pool_options.aging
@pool_options.properties
@option(
    "--names",
    metavar="A,B",
    shell_complete=options.complete_names,
    help="Put --property at these resources only. Default: all.",
)
@option(
    "--default/--no-default",
    "is_default",
    default=None,
    help="This pool takes what nobody else claims, or does so no more. There is one such pool at "
    "most. Whoever adds, joins or expects what came there by default elsewhere takes it over.",
)
@option(
    "--grace",
    "grace_seconds",
    type=parse_duration,
    metavar="D",
    help="With --default: what comes there by default nobody gets for so long, like 2m (0 to 30d), "
    "as somebody may claim it. Default: 2m.",
)
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str,
    pace_seconds: float | None,
    burst: int | None,
    aging_seconds: float | None,
    properties: tuple[str, ...],
    names: str | None,
    is_default: bool | None,
    grace_seconds: float | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Change how a pool grants, and what its resources are.

    What isn't given stays as it is. --default makes it the pool for whatever nobody else claims. It
    holds at once, for those who wait, too; a longer pace counts from the next grant on, in etcd
    and Kubernetes since the last one.

    A pace spreads out the starts of many jobs at once, and costs little: where each holds its
    lease for 20 minutes, 50 resources and a pace of 20s start 3 a minute rather than 50. A good
    one is the time that a lease is held, divided by the number of resources and by 1.2.

    A property is what a resource is, up to 32 of them: acquire and run can ask for it with --where,
    run tells its command, status shows it. It belongs to a resource, not to the pool: those that
    are added later don't have it. Keys are like names, values one line of up to 1 KiB. What is held
    stays with its holder, whatever it becomes. Everybody can read them: not for secrets.
    """
    change = SettingsChange(pace_seconds, burst, aging_seconds)
    to_be = pool_options.property_change(properties)
    changes_default = is_default is not None or grace_seconds is not None
    if names is not None and to_be is None:
        raise InvalidRequest("--names goes with --property: a pool grants all its resources alike")
    if change == NO_CHANGE and to_be is None and not changes_default:
        raise InvalidRequest(
            "say what to change: --pace D, --burst N, --aging D, --property K=V, --default, "
            "--no-default or --grace D"
        )
    only = None if names is None else pool_options.distinct_names(names)
    if grace_seconds is not None:
        _check_grace(grace_seconds, is_default)
    service = open_service(backend)
    pools = PoolService(service)
    said = []
    with service.atomic():
        if to_be is not None:
            others = pools.change_properties(pool_type, only, to_be)
            said.append(f"{to_be.describe()} ({counted(len(others), 'resource')} changed)")
        if change != NO_CHANGE:
            before, after = pools.change_settings(pool_type, change)
            was = "unchanged" if before == after else f"was {describe(before)}"
            said.append(f"{describe(after)} ({was})")
        if changes_default:
            said.append(_change_default(service, pool_type, is_default, grace_seconds))
    for each in said:
        pool_options.say_done(quiet, f'pool "{pool_type}": {each}')
    if to_be is not None:
        pool_options.warn_of_unmet(MembershipService(service), pool_type)


def _check_grace(grace_seconds: float, is_default: bool | None) -> None:
    if is_default is False:
        raise InvalidRequest("--grace says what the default pool holds back; it isn't one then")
    check_grace(grace_seconds)


def _change_default(
    service: Service, pool_type: str, is_default: bool | None, grace_seconds: float | None
) -> str:
    memberships = MembershipService(service)
    if is_default is False:
        before, after = memberships.set_no_default(pool_type)
    elif is_default:
        before, after = memberships.set_default(pool_type, grace_seconds)
    else:
        assert grace_seconds is not None
        before, after = memberships.set_grace(pool_type, grace_seconds)
    was = "unchanged" if before == after else f"was {_default(before, pool_type, is_now=False)}"
    return f"{_default(after, pool_type)} ({was})"


def _default(pools: Pools, pool_type: str, *, is_now: bool = True) -> str:
    """Whether a pool is the default, and which is, or was."""
    if pools.default == pool_type:
        return f"the default pool, with a grace of {format_duration(pools.grace_seconds)}"
    verb = "is" if is_now else "was"
    other = f"there {verb} none" if pools.default is None else f'that {verb} "{pools.default}"'
    return f"not the default pool, {other}"
