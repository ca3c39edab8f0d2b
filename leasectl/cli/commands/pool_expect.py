"""``leasectl pool expect``: say where names belong, before they come and after."""

from __future__ import annotations

import click

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import option
from leasectl.cli.shown.output import note, show, show_json
from leasectl.errors import InvalidRequest
from leasectl.pools.memberships import MembershipService
from leasectl.text.naming import check_own_type, check_pattern
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from leasectl.leases.service import Service

EXAMPLE = """\b
Examples:
  leasectl pool expect azure--install --match 'azure-*'
  leasectl pool expect azure--install --names host-7,host-8
  leasectl pool expect azure--install --match 'azure-*' --drop
  leasectl pool expect --list
"""


@new_command(epilog=EXAMPLE)
@click.argument(
    "pool_type",
    type=check_own_type,
    metavar="[TYPE]",
    required=False,
    shell_complete=options.complete_types,
)
@pool_options.names
@option(
    "--match",
    "patterns",
    type=check_pattern,
    multiple=True,
    metavar="PATTERN",
    help="All names like this, * for any characters and ? for any one; in quotes, or the shell "
    "takes it for files. May be repeated.",
)
@option("--drop", is_flag=True, help="Say it no more; names that are in a pool stay there.")
@option("--list", "is_list", is_flag=True, help="Show what was said, of all pools or of TYPE.")
@options.wide
@options.json_output
@pool_options.quiet
@options.backend
def command(
    *,
    pool_type: str | None,
    names: str | None,
    patterns: tuple[str, ...],
    drop: bool,
    is_list: bool,
    wide: bool,
    as_json: bool,
    quiet: bool,
    backend: str | None,
) -> None:
    """Say to which pool names belong, also those that don't exist yet.

    From then on, to add or move such a name to another pool, or join it there, is refused (exit
    code 77) and says where it belongs. A name's own expectation wins over a pattern, a longer
    pattern over a shorter. It outlives whatever becomes of name and pool, until --drop. A name
    that came to the default pool by default goes where it belongs at once, or with its release.
    """
    subjects = pool_options.distinct_names(names) if names is not None else ()
    if is_list:
        if subjects or patterns or drop:
            raise InvalidRequest(
                "--list shows what was said; leave out --names, --match and --drop"
            )
        _list(open_service(backend), pool_type, wide=wide, as_json=as_json)
        return
    if as_json or wide:
        raise InvalidRequest("--json and --wide go with --list only")
    if pool_type is None:
        raise InvalidRequest(
            "say to which pool they belong: leasectl pool expect TYPE …; or show what was said: "
            "leasectl pool expect --list"
        )
    if not subjects and not patterns:
        raise InvalidRequest("say which names: --names A,B or --match 'PATTERN'")
    memberships = MembershipService(open_service(backend))
    change = memberships.drop if drop else memberships.expect
    change(pool_type, subjects, patterns)
    what = [*([pool_options.described(subjects)] if subjects else []), *patterns]
    said = "expected no more" if drop else "expected"
    pool_options.say_done(quiet, f'{said} in pool "{pool_type}": {", ".join(what)}')


def _list(service: Service, pool_type: str | None, *, wide: bool, as_json: bool) -> None:
    from leasectl.cli.shown.table import Column, table
    from leasectl.cli.shown.terminal import output_width
    from leasectl.pools.whereabouts import expectation_fields, expectations

    found = expectations(service, pool_type)
    if as_json:
        fields = list(map(expectation_fields, found))
        show_json({"backend": service.backend_url, "expectations": fields})
    elif found:
        columns = [
            Column("POOL", shrinks=2, at_least=16),
            Column("NAMES", shrinks=1, at_least=24),
            Column("NOW IN", shrinks=3, goes=1),
        ]
        rows = [[each.type, each.subject, _now_in(each.pool, each.is_pattern)] for each in found]
        show(table(columns, rows, None if wide else output_width()).text)
    else:
        note(
            "nothing is expected; say where names belong with: leasectl pool expect TYPE --names A"
        )


def _now_in(pool: str | None, is_pattern: bool) -> str:
    return "" if is_pattern else pool or "no pool yet"
