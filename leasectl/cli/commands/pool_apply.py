"""``leasectl pool apply``: pools as a file defines them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.input_file import read_text, shown_name
from leasectl.cli.shown.output import note
from leasectl.errors import InvalidRequest
from leasectl.pools.admin import PoolService
from leasectl.pools.memberships import MembershipService
from leasectl.pools.settings import describe
from leasectl.text.durations import format_duration
from leasectl.text.wording import counted
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.pools.changes import PoolChange

EXAMPLE = """\b
Examples:
  leasectl pool apply -f boskos-resources.yaml --dry-run
  leasectl pool apply -f boskos-resources.yaml
  leasectl pool apply -f - <boskos-resources.yaml
"""


@new_command(epilog=EXAMPLE)
@option(
    "-f",
    "--filename",
    "filenames",
    type=click.Path(allow_dash=True, readable=False),  # for completion; `read_text` looks
    multiple=True,
    required=True,
    metavar="FILE",
    help="The list, in YAML or JSON; -: stdin.",
)
@option("--dry-run", is_flag=True, help="Only say what would change.")
@pool_options.quiet
@options.backend
def command(*, filenames: tuple[str, ...], dry_run: bool, quiet: bool, backend: str | None) -> None:
    """Make pools what a file says, in the form of Boskos' resources.

    \b
      resources:
      - type: azure--install    # this pool has these resources
        state: free
        names: [account-1, account-2]
        properties: {region: us-east-1, account-2: {size: big}}   # ours
      - type: cluster           # this one 2 to 5, named cluster--00 and so on
        state: free
        min-count: 2
        max-count: 5
        pace: 20s               # ours, as are burst and aging
        default: true           # ours: takes what nobody else claims
        grace: 2m               # and holds it back for so long

    A pool's pace, burst and aging are as in pool set: what the file doesn't name stays as it is, so
    a list of Boskos' takes no pace away; 0 does. Properties, or userdata as Boskos has it, are all
    that is so of an entry's resources, or by its name of one; an entry without them changes none.

    Missing resources are added, and free ones that it doesn't list removed. Held ones stay in
    any case; apply again to remove them once they are free. So do those that have joined for a time
    (pool join --ttl, --while-pid), and pools that the file doesn't name. A name that goes from pool
    to pool does so in one step; one that is expected in another pool (pool expect) is an error
    (exit code 77). On the embedded pool all is done at once, or nothing. Applying twice changes
    nothing.

    Boskos' state, lifespan, config and needs mean nothing here and are ignored, which is said
    when something changes and with --dry-run.
    """
    from leasectl.pools.definitions import parse_definitions

    if len(filenames) > 1:
        raise InvalidRequest("--filename: only one at a time")
    (filename,) = filenames
    definitions = parse_definitions(read_text(filename, "--filename"), shown_name(filename))
    service = open_service(backend)
    changes = PoolService(service).apply(
        definitions.pools, places=definitions.places, dry_run=dry_run
    )
    # Who applies the same again and again has read them, or may look with --dry-run.
    if not quiet and (dry_run or any(map(_is_change, changes))):
        for line in definitions.notes:
            note(line)
    for change in changes:
        if not quiet:
            note(f'pool "{change.type}": {_done(change)}{" (dry run)" if dry_run else ""}')
            _say_who_has_joined(change)
        _warn_of_the_rest(change)
    if not dry_run:
        shrunk = {each.type for each in changes if each.removed or each.properties}
        pool_options.warn_of_unmet(MembershipService(service), *sorted(shrunk))


def _is_change(change: PoolChange) -> bool:
    changed = change.added + change.moved + change.removed
    others = (change.settings, change.default)
    return change.new or bool(changed or change.properties) or others != (None, None)


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
            ("with other properties", others),
        )
        if names
    ]
    return ", ".join([*parts, *([grants] if grants else [])]) or "unchanged"


def _grants(change: PoolChange) -> Iterator[str]:
    if change.settings is not None:
        yield describe(change.settings)
    if change.default is not None and change.default.type is None:
        yield "not the default pool any more"
    elif change.default is not None:
        yield f"the default pool, with a grace of {format_duration(change.default.grace_seconds)}"


def _warn_of_the_rest(change: PoolChange) -> None:
    """Say what isn't as the file says, also to those who want to hear nothing else."""
    for names, purpose, where in (
        (change.staying, "remove", ""),
        (change.awaited, "add", " in another pool"),
    ):
        if names:
            are, they_are = ("is", "it is") if len(names) == 1 else ("are", "they are")
            resources = counted(len(names), "resource")
            note(
                f'pool "{change.type}": {resources} to {purpose} {are} held{where}'
                f"{_examples(names)}; apply again once {they_are} free"
            )


def _say_who_has_joined(change: PoolChange) -> None:
    """Say which names are left where they are, as they have joined for a time."""
    pool_of = change.joined_elsewhere
    for elsewhere in ("", *sorted(set(pool_of.values()))):
        names = [each for each in change.joined if pool_of.get(each, "") == elsewhere]
        if names:
            resources = f"{counted(len(names), 'resource')}{_examples(names)}"
            where = f' in pool "{elsewhere}"' if elsewhere else ""
            note(f'pool "{change.type}": {resources} left alone{where}, joined for a time')


def _examples(names: Sequence[str]) -> str:
    return f" ({pool_options.examples(names)})" if names else ""
