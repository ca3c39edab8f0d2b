"""``leasectl pool create|apply|add|remove|set|list|delete``: pools and their resources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command, was_given
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.rendering.output import note, show, show_json
from leasectl.cli.rendering.reclaim_progress import ReclaimProgress, run
from leasectl.cli.rendering.release_forced import leaves_later
from leasectl.cli.rendering.status_columns import look_of_stdout, note_no_pools, pools_table
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.rules.membership import Pools
from leasectl.errors import InvalidRequest, TooFewFreed
from leasectl.leases.service import Service
from leasectl.pools import admin, memberships
from leasectl.pools.changes import PoolChange
from leasectl.pools.definitions import parse_definitions
from leasectl.pools.overview_json import encode_pools
from leasectl.pools.properties import parse_change
from leasectl.pools.settings import NO_CHANGE, SettingsChange, changed, check_grace, describe
from leasectl.reclaim.plan import Wanted, check_wanted
from leasectl.reclaim.removal import Removed, remove_when_ready
from leasectl.reclaim.taking_back import Listener, open_ground
from leasectl.text.durations import format_duration
from leasectl.text.input_file import read_text, shown_name
from leasectl.text.naming import next_names
from leasectl.text.wording import counted, listed


@new_command()
@pool_options.new_pool_argument
@pool_options.count
@pool_options.new_names
@pool_options.new_properties
@pool_options.grants
@options.quiet
@options.backend
def create(
    *,
    pool_type: str,
    count: int | None,
    names: str | None,
    properties: tuple[str, ...],
    quiet: bool,
    backend: str | None,
    **grants: Any,
) -> None:
    """Create a pool.

    Change its settings later with: leasectl pool set POOL. A resource that is in another pool, or
    is expected in one (leasectl pool expect), is refused (exit code 77). A resource that is
    only in the default pool (pool set --default) moves here.

    \b
    Examples:
      leasectl pool create azure--install --count 2
      leasectl pool create lab --names rack-7,rack-8
      leasectl pool create quota --count 3 --property region=us-east-1
      leasectl pool create azure--destroy --count 50 --pace 20s --aging 30m
    """
    wanted = pool_options.wanted_resources(count, names)
    made = next_names(pool_type, wanted, ()) if isinstance(wanted, int) else wanted
    change = parse_change(properties)
    settings = changed(NO_SETTINGS, SettingsChange(**grants))
    how = "" if settings == NO_SETTINGS else f"; {describe(settings)}"
    said = f'created pool "{pool_type}" of {pool_options.described(made)}{how}'
    admin.create(open_service(backend), pool_type, made, settings, change)
    if properties:
        said = f"{said}; {change.describe()}"
    pool_options.say_done(quiet, said)


@new_command()
@option(
    "-f, --filename FILE",
    "The file, in YAML or JSON; -: stdin.",
    to="filenames",
    multiple=True,
    required=True,
)
@option("--dry-run", "Print what would change, and change nothing.")
@options.quiet
@options.backend
def apply(*, filenames: tuple[str, ...], dry_run: bool, quiet: bool, backend: str | None) -> None:
    """Create and change pools to match a file in Boskos' format.

    \b
      resources:
      - type: azure--install    # a pool with these resources
        state: free
        names: [account-1, account-2]
        properties: {region: us-east-1, account-2: {size: big}}   # leasectl only
      - type: cluster           # 2 to 5 resources, cluster--00 and so on
        state: free
        min-count: 2
        max-count: 5
        pace: 20s               # leasectl only, like burst and aging
        default: true           # leasectl only: the default pool
        grace: 2m               # leasectl only, see leasectl pool set
        expect: [x-7, 'big-*']  # leasectl only, see leasectl pool expect

    Missing resources are added, and free ones that the file doesn't list are removed. A held
    resource that isn't listed takes no new holder. When it is released, it leaves, or moves to the
    pool that lists it; list it again to keep it. Resources that have joined for a time (pool join
    --ttl, --while-pid) and pools that aren't in the file are left alone. A move between pools is
    one step. A resource that is expected in another pool (pool expect) is an error (exit code 77).
    On the embedded pool, all changes are made at once or none. Applying twice changes nothing.

    Settings that the file doesn't give stay as they are. properties (Boskos: userdata) replaces
    all properties of the entry's resources, or of one resource if given under its name. expect
    replaces all names and patterns (with * or ?) that are expected in the pool. An entry without
    these keys leaves them unchanged. Boskos' state, lifespan, config and needs are ignored;
    a note says so.

    \b
    Examples:
      leasectl pool apply -f boskos-resources.yaml --dry-run
      leasectl pool apply -f boskos-resources.yaml
      leasectl pool apply -f - <boskos-resources.yaml
    """
    if len(filenames) > 1:
        raise InvalidRequest("--filename: only one at a time")
    (filename,) = filenames
    definitions = parse_definitions(read_text(filename, "--filename"), shown_name(filename))
    service = open_service(backend)
    changes = admin.apply(service, definitions.pools, places=definitions.places, dry_run=dry_run)
    # Who applies the same again and again has read them, or may look with --dry-run.
    if not quiet and (dry_run or any(each.is_change for each in changes)):
        for line in definitions.notes:
            note(line)
    for change in changes:
        if not quiet:
            note(f'pool "{change.type}": {_done(change)}{" (dry run)" if dry_run else ""}')
            _say_who_has_joined(change)
        _warn_of_the_rest(change)
    if not dry_run:
        shrunk = {each.type for each in changes if each.removed or each.properties}
        if any(each.expected.subjects for each in changes):
            default = service.members.belonging().default
            shrunk |= {default} if default else set()  # what came there by default moves
        pool_options.warn_of_unmet(service, *sorted(shrunk))


def _done(change: PoolChange) -> str:
    gained = change.added + change.moved
    grants = "; ".join(_grants(change))
    others = tuple(change.properties)
    if change.new:
        made = f"created with {counted(len(gained), 'resource')}{_examples(gained)}"
        are = f"{len(others)} with properties" if others else ""
        return "; ".join(each for each in (made, grants, are) if each)
    parts = [
        f"{len(names)} {what}{_examples(names)}"
        for what, names in (
            ("added", gained),
            ("removed", change.removed),
            ("no longer leaving", change.returning),
            ("with other properties", others),
        )
        if names
    ]
    return ", ".join([*parts, *([grants] if grants else [])]) or "unchanged"


def _grants(change: PoolChange) -> Iterator[str]:
    for subjects, said in (
        (change.expected.subjects, "expected"),
        (change.dropped.subjects, "no longer expected"),
    ):
        if subjects:
            yield f"{said}: {', '.join(subjects)}"
    if change.settings is not None:
        yield describe(change.settings)
    if change.default is not None and change.default.type is None:
        yield "no longer the default pool"
    elif change.default is not None:
        yield f"now the default pool (grace {format_duration(change.default.grace_seconds)})"


def _warn_of_the_rest(change: PoolChange) -> None:
    """Say what isn't as the file says, also to those who want to hear nothing else."""
    for names, where, goes in (
        (change.staying, "", "is removed"),
        (change.awaited, " in another pool", "moves here"),
    ):
        if names:
            are = "is" if len(names) == 1 else "are"
            each = "it" if len(names) == 1 else "each"
            resources = counted(len(names), "resource")
            note(
                f'pool "{change.type}": {resources}{_examples(names)} {are} still held{where}; '
                f"{each} {goes} when it is released, and takes no new holder until then"
            )


def _say_who_has_joined(change: PoolChange) -> None:
    """Say which names are left where they are, as they have joined for a time."""
    pool_of = change.joined_elsewhere
    for elsewhere in ("", *sorted(set(pool_of.values()))):
        names = [each for each in change.joined if pool_of.get(each, "") == elsewhere]
        if names:
            resources = f"{counted(len(names), 'resource')}{_examples(names)}"
            where = f' in pool "{elsewhere}"' if elsewhere else ""
            why = f"{'it' if len(names) == 1 else 'they'} joined with --ttl or --while-pid"
            note(f'pool "{change.type}": {resources} left alone{where}, because {why}')


def _examples(names: Sequence[str]) -> str:
    return f" ({pool_options.examples(names)})" if names else ""


@new_command()
@pool_options.pool_argument
@pool_options.count
@pool_options.new_names
@pool_options.new_properties
@options.quiet
@options.backend
def add(
    *,
    pool_type: str,
    count: int | None,
    names: str | None,
    properties: tuple[str, ...],
    quiet: bool,
    backend: str | None,
) -> None:
    """Add resources to a pool.

    With --count, their numbers continue after the highest in the pool. A resource that is in the
    pool already stays as it is. One that is in another pool, or is expected in one (leasectl pool
    expect), is refused (exit code 77). One that is only in the default pool (pool set --default)
    moves here.

    \b
    Examples:
      leasectl pool add azure--install --count 2
      leasectl pool add azure--install --names big-9 --property size=big
    """
    wanted = pool_options.wanted_resources(count, names)
    change = parse_change(properties)
    added = admin.add_with(open_service(backend), pool_type, wanted, change)
    are = f"; {change.describe()}" if properties else ""
    there = () if isinstance(wanted, int) else [each for each in wanted if each not in added]
    for what, which in (("added to", added), ("already in", there)):
        if which:
            said = f'{what} pool "{pool_type}": {pool_options.described(which)}{are}'
            pool_options.say_done(quiet, said)


@new_command()
@pool_options.pool_argument
@pool_options.needed_names
@option("--force", "Remove held resources, too; their holders lose them.")
@option("--when-ready", "Remove a held resource once its holder agrees, as in leasectl reclaim.")
@pool_options.delay
@pool_options.wait
@options.quiet
@options.backend
def remove(
    *,
    pool_type: str,
    names: str,
    force: bool,
    when_ready: bool,
    delay_seconds: float,
    wait_seconds: float | None,
    quiet: bool,
    backend: str | None,
) -> None:
    """Remove resources from a pool: all that are named, or none.

    A held resource isn't removed (exit code 77) without --force. With it, the lease ends as with
    leasectl release --force: the resource takes no new holder and leaves the pool once the
    holder's leasectl run has stopped its command, or when its ttl has passed. If a
    waiting request can no longer be satisfied, a warning says whose it is; the request keeps
    waiting.

    With --when-ready, free resources are removed at once, and each held one when its holder has
    agreed to a reclaim. Until then they take no new holders. If some holders don't agree, the exit
    code is 75 and those resources take holders again, unless they were cordoned before. If this
    command is killed, they stay cordoned: run it again, or use leasectl pool uncordon.

    \b
    Examples:
      leasectl pool remove azure--install --names azure--install--01
      leasectl pool remove azure--install --names azure--install--00 --when-ready
    """
    wanted = pool_options.distinct_names(names)
    if force and when_ready:
        raise InvalidRequest("use either --force or --when-ready")
    if not when_ready:
        _refuse_patience()
    service = open_service(backend)
    if when_ready:
        wait = delay_seconds if wait_seconds is None else wait_seconds
        removed, left = _remove_when_ready(service, pool_type, wanted, delay_seconds, wait, quiet)
    elif force:
        forced = memberships.remove_by_force(service, pool_type, wanted)
        kept = [each for each in forced if each.free_in_seconds != 0]
        removed, left = tuple(n for n in wanted if n not in {each.name for each in kept}), ()
        for each in kept:
            pool_options.say_done(quiet, leaves_later(each, pool_type))
    else:
        memberships.remove(service, pool_type, wanted)
        removed, left = wanted, ()
    if removed:
        pool_options.say_done(
            quiet, f'removed from pool "{pool_type}": {pool_options.described(removed)}'
        )
    pool_options.warn_of_unmet(service, pool_type)
    if left:
        raise TooFewFreed(
            f'still in pool "{pool_type}": '
            f"{listed(left, lambda each: f'{each.name} ({each.reason})')}; "
            f"see the holders with: leasectl status -t {pool_type}, or remove them with --force"
        )


def _refuse_patience() -> None:
    for parameter, written in (("delay_seconds", "--delay"), ("wait_seconds", "-w")):
        if was_given(parameter):
            raise InvalidRequest(f"{written} needs --when-ready")


def _remove_when_ready(
    service: Service,
    pool_type: str,
    names: tuple[str, ...],
    delay_seconds: float,
    wait_seconds: float,
    quiet: bool,
) -> Removed:
    wanted = check_wanted(
        Wanted(names=frozenset(names), delay_seconds=delay_seconds, wait_seconds=wait_seconds)
    )
    progress = ReclaimProgress(pool_type, quiet=quiet)
    listener = Listener(lambda _: progress.line.clear(), progress.note, progress.line.warn)
    ground = open_ground(service, pool_type)
    steps = remove_when_ready(ground, service.members, names, wanted, listener)
    return run(steps, progress, prints=False)


@new_command()
@pool_options.pool_argument
@pool_options.grants
@pool_options.properties
@option("--names A,B", "Set --property on these resources only. Default: all.")
@option(
    "--default/--no-default",
    "Make this the default pool, which takes resources that no other pool claims; there is "
    "at most one. A resource leaves it when another pool adds or expects the resource, or when the "
    "resource joins another pool.",
    to="is_default",
    default=None,
)
@option(
    "--grace D",
    "With --default: how long a resource that is new in the default pool isn't granted, so that "
    "another pool can take it first, like 2m (0 to 30d). Default: 2m.",
    to="grace_seconds",
)
@options.quiet
@options.backend
def set_(
    *,
    pool_type: str,
    properties: tuple[str, ...],
    names: str | None,
    is_default: bool | None,
    grace_seconds: float | None,
    quiet: bool,
    backend: str | None,
    **grants: Any,
) -> None:
    """Change a pool's settings and its resources' properties.

    Options that aren't given leave their settings unchanged. Changes apply at once, also to
    waiting requests.

    --pace spreads the starts of jobs that come together. For example, 50 resources that are held
    for 20 minutes each, with a pace of 20s, start 3 jobs a minute instead of 50 at once. A good
    pace is the hold time, divided by the number of resources and by 1.2.

    --property describes a resource. acquire and run select by it with --where, run passes it to
    its command, and status shows it. It belongs to the resources that the pool has now, not to
    those added later. A resource has up to 32 properties. A key is written like a resource name; a
    value is one line of up to 1 KiB. They aren't secret: everybody who sees the pool can read them.
    A held resource stays with its holder whatever its properties become.

    \b
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
    change = SettingsChange(**grants)
    to_be = parse_change(properties)
    changes_default = is_default is not None or grace_seconds is not None
    if names is not None and not properties:
        raise InvalidRequest("--names needs --property: the other settings apply to the whole pool")
    if change == NO_CHANGE and not properties and not changes_default:
        raise InvalidRequest(
            "say what to change: --pace D, --burst N, --aging D, --property K=V, --default, "
            "--no-default or --grace D"
        )
    only = None if names is None else pool_options.distinct_names(names)
    if grace_seconds is not None:
        if is_default is False:
            raise InvalidRequest("--grace applies to the default pool only; leave out --no-default")
        check_grace(grace_seconds)
    service = open_service(backend)
    said = []
    with service.atomic():
        if properties:
            others = admin.change_properties(service, pool_type, only, to_be)
            said.append(f"{to_be.describe()} ({counted(len(others), 'resource')} changed)")
        if change != NO_CHANGE:
            before, after = admin.change_settings(service, pool_type, change)
            was = "unchanged" if before == after else f"was {describe(before)}"
            said.append(f"{describe(after)} ({was})")
        if changes_default:
            old, new = memberships.change_default(
                service, pool_type, is_default=is_default, grace_seconds=grace_seconds
            )
            earlier = "unchanged" if old == new else f"before: {_default(old)}"
            said.append(f"the default pool is now {_default(new)}; {earlier}")
    for each in said:
        pool_options.say_done(quiet, f'pool "{pool_type}": {each}')
    if properties:
        pool_options.warn_of_unmet(service, pool_type)


def _default(pools: Pools) -> str:
    """Which pool is the default."""
    if pools.default is None:
        return "none"
    return f'"{pools.default}" (grace {format_duration(pools.grace_seconds)})'


@new_command()
@options.wide
@options.json_output
@options.backend
def list_(*, wide: bool, as_json: bool, backend: str | None) -> None:
    """List pools with their capacity and settings.

    \b
    Examples:
      leasectl pool list
      leasectl pool list --json
    """
    service = open_service(backend)
    pools = admin.listed(service)
    if as_json:
        show_json(encode_pools(service.backend_url, pools))
    elif pools:
        show(pools_table(pools, look_of_stdout(wide=wide)))
    else:
        note_no_pools(backend)


@new_command()
@pool_options.pool_argument
@option("--force", "Delete a pool that is in use, too.")
@options.quiet
@options.backend
def delete(*, pool_type: str, force: bool, quiet: bool, backend: str | None) -> None:
    """Delete a pool with all of its resources.

    If leases are held or requests wait, the pool isn't deleted (exit code 77) without --force.
    With it, holders lose their leases, and waiting requests fail with "no pool". A resource that
    would have moved to this pool when released (leasectl pool move --when-free) stays where it is.

    \b
    Example:
      leasectl pool delete azure--install
    """
    service = open_service(backend)
    on_their_way = admin.delete(service, pool_type, force=force)
    pool_options.say_done(quiet, f'deleted pool "{pool_type}"')
    if on_their_way:
        note(
            "these resources now stay in their pools when released, instead of moving to "
            f'"{pool_type}": {listed(on_their_way)}'
        )
