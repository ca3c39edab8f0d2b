"""Options of commands on pools and reclaims."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.described import Function, option, word
from leasectl.cli.rendering.output import note
from leasectl.engines.rules.membership import Member
from leasectl.errors import BackendUnreachable, InvalidRequest
from leasectl.leases.service import Service
from leasectl.pools.memberships import described as said
from leasectl.pools.memberships import unmet_in
from leasectl.text.naming import MOST_AT_ONCE, check_own_name
from leasectl.text.wording import counted, printable

pool_argument = word("pool_type", "POOL")
new_pool_argument = word("pool_type", "POOL", completed_from=None)
count = option(
    "-c, --count N", "The number of resources; they are named POOL--00, POOL--01 and so on."
)
_OF_THESE_NAMES = "The resources, with commas between their names."
# In no pool yet, so there is nothing to complete them with.
new_names = option("--names A,B", _OF_THESE_NAMES, completed_from=None)
names = option("--names A,B", _OF_THESE_NAMES)
needed_names = option("--names A,B", _OF_THESE_NAMES, required=True)
name = option(
    "--name N", "The resource.", type=check_own_name, completed_from="names", required=True
)
_pace = option(
    "--pace D",
    "Rate limit: grant at most one request in this time, whatever its count, like 20s (0.1s "
    "to 7d); 0: no limit.",
    to="pace_seconds",
)
_burst = option(
    "--burst N", "Grants that may come at once before the pace applies, 1 to 1000. Default: 1."
)
_aging = option(
    "--aging D",
    "Raise the priority of a waiting request by one every D, like 30m (1s to 30d), so that no "
    "request waits for ever; 0: never.",
    to="aging_seconds",
)


def grants(function: Function) -> Function:
    """Add the options that become a `SettingsChange`."""
    return _pace(_burst(_aging(function)))


_PROPERTY = "Set a property of these resources, for --where of acquire and run; may be repeated."
_NOT_SECRET = "Not for secrets: everybody who can see the pool can see its properties."
new_properties = option(
    "--property K=V", f"{_PROPERTY} {_NOT_SECRET}", to="properties", multiple=True
)
properties = option(
    "--property K=V", f"{_PROPERTY} K-: remove it. {_NOT_SECRET}", to="properties", multiple=True
)


def wanted_resources(count: int | None, names: str | None) -> int | tuple[str, ...]:
    """What ``--count`` or ``--names`` ask for; InvalidRequest when it is both, or neither."""
    if (count is None) == (names is None):
        raise InvalidRequest("say which resources: give either --count N or --names A,B")
    if names is not None:
        return distinct_names(names)
    assert count is not None
    if not 1 <= count <= MOST_AT_ONCE:
        raise InvalidRequest(f"--count {count}: use a whole number from 1 to {MOST_AT_ONCE}")
    return count


def distinct_names(text: str) -> tuple[str, ...]:
    """Read names that make or end something: an empty one is a variable that was never set."""
    names = tuple(text.split(","))
    if "" in names:
        raise InvalidRequest(f'--names "{printable(text)}": one of the names is empty; write A,B')
    for name in names:
        check_own_name(name)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f'--names: "{twice}" is given twice')
    if len(names) > MOST_AT_ONCE:
        raise InvalidRequest(f"--names: at most {MOST_AT_ONCE} at a time")
    return names


def described(names: Sequence[str]) -> str:
    """How many resources, and which."""
    return f"{counted(len(names), 'resource')}, {examples(names)}"


def examples(names: Sequence[str]) -> str:
    """Show which, of some names: the first and the last."""
    between = " and " if len(names) == 2 else " … "
    return names[0] if len(names) == 1 else f"{names[0]}{between}{names[-1]}"


def warn_of_unmet(service: Service, *pool_types: str | None) -> None:
    """Warn after a change of pools if waiting requests can't be met any more.

    The change itself has succeeded, so an unreachable server doesn't change the exit code.
    """
    try:
        for each in unmet_in(service, *pool_types):
            note(said(each))
    except BackendUnreachable as error:
        note(f"done; whether waiting requests can still be satisfied is unknown: {error}")


def say_cordoned(done: str, before: Sequence[Member], *, quiet: bool, is_cordoned: bool) -> None:
    """Tell which names take no holder any more, or again, and which were so already.

    Args:
        done: What was done to them.
        before: What was known of each.
        quiet: People don't want to hear.
        is_cordoned: Whether they are cordoned now.
    """
    changed = [each.name for each in before if each.cordoned != is_cordoned]
    others = [each.name for each in before if each.cordoned == is_cordoned]
    for what, names in ((done, changed), (f"already {done}", others)):
        if names:
            say_done(quiet, f"{what}: {described(names)}")


def say_done(quiet: bool, text: str) -> None:
    """Tell people what was done, unless they don't want to hear."""
    if not quiet:
        note(text)


delay = option(
    "--delay D",
    "Ask only once the lease has been unused for this long. The time starts again after a use "
    'that was recorded on this machine (leasectl use), and after the answer "keep".',
    to="delay_seconds",
    group="Waiting",
    default="180s",
    show_default=True,
)
wait = option(
    "-w, --wait WAIT",
    "Wait this long for answers. Default: as long as --delay.",
    to="wait_seconds",
    group="Waiting",
)
