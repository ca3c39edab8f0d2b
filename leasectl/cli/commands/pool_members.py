"""``leasectl pool move|cordon|uncordon|join|leave|expect|of``: membership and cordons."""

from __future__ import annotations

from typing import Literal

from leasectl.cli import options, pool_options
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service
from leasectl.cli.described import form_of, option, word
from leasectl.cli.rendering.handle_output import print_handle
from leasectl.cli.rendering.output import note, show, show_json, when_due
from leasectl.cli.rendering.table import Column, output_width, table
from leasectl.engines.pool_admin import Updated
from leasectl.engines.rules.membership import leaves_no_more
from leasectl.errors import InvalidRequest
from leasectl.leases.opening import process_named_by
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.pools import joining, memberships
from leasectl.pools.overview import cordon_text
from leasectl.pools.whereabouts import (
    Whereabouts,
    expectation_fields,
    expectations,
    whereabouts,
    whereabouts_fields,
)
from leasectl.system.signals import SignalTrap
from leasectl.text.durations import format_seconds
from leasectl.text.naming import check_pattern


@new_command(options_metavar="--names A,B --to POOL [OPTIONS]")
@pool_options.needed_names
@option("--to POOL", "The target pool.", required=True)
@option("--when-free", "Move a held resource when it is released.")
@options.quiet
@options.backend
def move(*, names: str, to: str, when_free: bool, quiet: bool, backend: str | None) -> None:
    """Move resources to another pool, each in one step.

    A resource is in exactly one of the two pools at any time. All resources move or none, if the
    backend can do that; otherwise the output says which ones moved. A held resource is refused
    (exit code 77). With --when-free it takes no new holder and moves when it is released; to
    cancel that, move it to the pool that it is in.

    \b
    Examples:
      leasectl pool create edge --names edge-1
      leasectl pool create lab --names host-7,host-8,host-9
      leasectl pool move --names host-7,host-8 --to edge
      leasectl pool move --names host-9 --to edge --when-free
    """
    wanted = pool_options.distinct_names(names)
    service = open_service(backend)
    updated = memberships.move(service, wanted, to, when_free=when_free)
    done = memberships.outcome_of_move(updated, to)
    for what, which in (
        ("moved to", done.moved),
        ("will move on release to", done.waiting),
        ("move cancelled; stays in", done.kept),
        ("already in", done.there),
    ):
        if which:
            pool_options.say_done(quiet, f'{what} pool "{to}": {pool_options.described(which)}')
    pool_options.warn_of_unmet(service, *(old.pool for old in updated.before))


@new_command(options_metavar="--names A,B [OPTIONS]")
@pool_options.needed_names
@option("--reason TEXT", "The reason, which leasectl status shows.", default="")
@options.quiet
@options.backend
def cordon(*, names: str, reason: str, quiet: bool, backend: str | None) -> None:
    """Cordon resources, so that they take no new holder.

    Holders keep their leases. Cordoned resources stay in their pool, and stay cordoned when they
    are moved. leasectl status shows who cordoned them, when and why. To change the reason, cordon
    them again with another one. Undo it with: leasectl pool uncordon

    \b
    Examples:
      leasectl pool cordon --names azure--install--00 --reason "quota exceeded"
      leasectl pool uncordon --names azure--install--01
    """
    wanted = pool_options.distinct_names(names)
    service = open_service(backend)
    before, after, _ = memberships.cordon(service, wanted, is_cordoned=True, reason=reason)
    pool_options.say_cordoned("cordoned", before, quiet=quiet, is_cordoned=True)
    pool_options.warn_of_unmet(service, *(each.pool for each in after))


@new_command(options_metavar="--names A,B [OPTIONS]")
@pool_options.needed_names
@options.quiet
@options.backend
def uncordon(*, names: str, quiet: bool, backend: str | None) -> None:
    """Uncordon resources, so that they take holders again.

    \b
    Example:
      leasectl pool uncordon --names azure--install--00
    """
    wanted = pool_options.distinct_names(names)
    before = memberships.cordon(open_service(backend), wanted, is_cordoned=False).before
    pool_options.say_cordoned("uncordoned", before, quiet=quiet, is_cordoned=False)


@new_command()
@pool_options.pool_argument
@pool_options.name
@option(
    "--hold",
    "Also acquire the resource, so that no job gets it before it is ready, and print the "
    "handle. Release the handle to make the resource free. Queue and pace don't apply.",
)
@option(
    "--guard-pid PID",
    "With --hold: release the lease when this process ends; in a script, use $$. Default: no "
    "guard.",
)
@option(
    "--ttl D",
    "Leave this long after the last join, like 10m; join again to stay. Default: stay for good.",
    to="ttl_seconds",
)
@option("--while-pid PID", "Leave when this process on this machine ends. Default: stay for good.")
@options.quiet
@options.backend
def join(
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
    """Register a resource in a pool.

    Refused with exit code 77 if the resource is in another pool or expected in one. A free
    resource that is only in the default pool (pool set --default) moves here. Joining again
    renews the membership and prints the same handle.

    With --ttl or --while-pid the membership expires. A free resource then leaves at once, a held
    one when it is released. On etcd and Kubernetes, --while-pid also ends if this machine
    doesn't reach the server for a minute.

    \b
    Example:
      h=$(leasectl pool join azure--install --name host-7 --hold \\
        --while-pid $$)
      # get ready; no job gets it before this:
      leasectl release --handle "$h"
    """
    if ttl_seconds is not None and while_pid is not None:
        raise InvalidRequest("use either --ttl or --while-pid to end the membership")
    if guard_pid is not None and not hold:
        raise InvalidRequest(
            "--guard-pid releases the lease of --hold: add --hold, or use --while-pid to end the "
            "membership with a process"
        )
    guard = None if guard_pid is None else process_named_by("--guard-pid", guard_pid)
    process = None if while_pid is None else process_named_by("--while-pid", while_pid)
    with SignalTrap() as trap:
        service = open_service(backend)
        lives = joining.lifetime(service, ttl_seconds=ttl_seconds, process=process)

        def print_path(handle: Handle) -> None:
            trap.check()
            print_handle(service, handle, "handle")

        if hold:
            again = joining.hold(
                service, pool_type, name, lives=lives, guard=guard, tell=print_path
            )
            what = f"{'joined' if again is None else _joined(again)}, held"
        else:
            what = _joined(joining.join(service, pool_type, name, lives=lives))
    pool_options.say_done(quiet, f'{what}: "{name}" in pool "{pool_type}"')


def _joined(updated: Updated) -> str:
    """What has become of a name that has joined."""
    ((before,), (after,), _) = updated
    what = "joined again" if before.pool == after.pool else "joined"
    return f"{what}, and no longer about to leave" if leaves_no_more(before, after) else what


@new_command()
@pool_options.pool_argument
@pool_options.name
@options.quiet
@options.backend
def leave(*, pool_type: str, name: str, quiet: bool, backend: str | None) -> None:
    """Remove a resource from its pool, once it is free.

    A held resource takes no new holder and leaves when it is released. An expectation (leasectl
    pool expect) stays. Exits with 0 if the resource is in no pool, and with 66 if it is in another.

    \b
    Example:
      leasectl pool join azure--install --name host-7 --ttl 1h
      leasectl pool leave azure--install --name host-7
    """
    service = open_service(backend)
    (before,), (after,), _ = joining.leave(service, pool_type, name)
    when = "" if after.pool is None else " when it is released"
    said = f'leaves pool "{pool_type}"{when}: "{name}"'
    if before.pool is None:
        said = f'not in pool "{pool_type}", nor in any other: "{name}"'
    pool_options.say_done(quiet, said)
    pool_options.warn_of_unmet(service, pool_type)


@new_command()
@word("pool_type", "[POOL]", required=False)
@pool_options.names
@option(
    "--match PATTERN",
    "All names that match, where * stands for any characters and ? for one; quote it. May be "
    "repeated.",
    to="patterns",
    type=check_pattern,
    multiple=True,
)
@option("--drop", "Delete the expectation; resources that are in a pool stay there.")
@option("--list", "List expectations, of POOL or of all pools.", to="is_list")
@options.wide
@options.json_output
@options.quiet
@options.backend
def expect(
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
    """Declare the pool of resources, even before they exist.

    Adding, moving or joining such a resource to another pool is then refused (exit code 77). A
    name takes precedence over a pattern, and a longer pattern over a shorter one. An expectation
    lasts until --drop, even if the resource or the pool is deleted. A resource that is only in the
    default pool (pool set --default) moves to the expected pool at once, or when it is released.

    \b
    Examples:
      leasectl pool expect azure--install --match 'azure-*'
      leasectl pool expect azure--install --names host-7,host-8
      leasectl pool expect azure--install --match 'azure-*' --drop
      leasectl pool expect --list
    """
    subjects = pool_options.distinct_names(names) if names is not None else ()
    if is_list:
        if subjects or patterns or drop:
            raise InvalidRequest(
                "--list lists all expectations; leave out --names, --match and --drop"
            )
        _list(open_service(backend), pool_type, wide=wide, as_json=as_json)
        return
    if as_json or wide:
        raise InvalidRequest("--json and --wide need --list")
    if pool_type is None:
        raise InvalidRequest(
            "say in which pool the names are expected: leasectl pool expect POOL …; or list all "
            "expectations: leasectl pool expect --list"
        )
    if not subjects and not patterns:
        raise InvalidRequest("say which names: --names A,B or --match 'PATTERN'")
    service = open_service(backend)
    what = [*([pool_options.described(subjects)] if subjects else []), *patterns]
    if drop:
        memberships.drop(service, pool_type, subjects, patterns)
        pool_options.say_done(quiet, f'no longer expected in pool "{pool_type}": {", ".join(what)}')
        return
    before, after, _ = memberships.expect(service, pool_type, subjects, patterns)
    pool_options.say_done(quiet, f'expected in pool "{pool_type}": {", ".join(what)}')
    waiting = [each.name for each in after if each.moves_to == pool_type]
    if waiting:
        pool_options.say_done(
            quiet,
            f'will move on release to pool "{pool_type}": {pool_options.described(waiting)}',
        )
    changed = [old.pool for old, new in zip(before, after) if old != new]
    pool_options.warn_of_unmet(service, *changed)


def _list(service: Service, pool_type: str | None, *, wide: bool, as_json: bool) -> None:
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
        rows = [
            [each.type, each.subject, "" if each.is_pattern else each.pool or "no pool yet"]
            for each in found
        ]
        show(table(columns, rows, None if wide else output_width()).text)
    else:
        note("no expectations; add one with: leasectl pool expect POOL --names A")


Form = Literal["plain", "type", "json"]


@new_command()
@word("name", "NAME")
@option(
    "--format [plain|type|json]",
    "plain, the default: all facts, one per line; type: the pool only; json.",
    to="form",
    group="Output",
)
@options.json_output
@options.backend
def of(*, name: str, form: Form | None, as_json: bool, backend: str | None) -> None:
    """Show which pool a resource is in or belongs to.

    A resource may belong to a pool before it exists (leasectl pool expect). Exits with 66 if no
    pool has or expects it.

    \b
    Examples:
      leasectl pool of azure--install--00
      echo "it is in $(leasectl pool of azure--install--00 --format type)"
    """
    wanted: Form = form_of("--format", form, "plain", as_json=as_json)
    found = whereabouts(open_service(backend), name)
    if wanted == "json":
        show_json(whereabouts_fields(found))
    elif wanted == "type":
        show(f"{found.type}\n")
    else:
        lines = [f"{title:<11}{text}\n" for title, text in _facts(found) if text]
        show("".join(lines))


def _facts(found: Whereabouts) -> list[tuple[str, str]]:
    member = found.member
    return [
        ("name", member.name),
        ("pool", (member.pool or "none yet") + (" (by default)" if member.by_default else "")),
        ("belongs to", _belongs(found)),
        ("state", _state(found)),
        ("moves to", f"{member.moves_to}, when it is released" if member.moves_to else ""),
        ("leaves", "when it is released" if member.leaves else ""),
        ("stays", _stays(found)),
        *(("property", f"{k}={v}") for k, v in member.properties),
    ]


def _belongs(found: Whereabouts) -> str:
    if found.belongs_to is None:
        return ""
    return found.belongs_to + ("" if found.pattern is None else f" (matches {found.pattern})")


def _state(found: Whereabouts) -> str:
    if found.state == "expected":
        return ""
    cordon = found.member.cordon
    cordoned = ", cordoned" if found.member.cordoned and found.state != "cordoned" else ""
    cordoned += f": {cordon_text(cordon, full=True)}" if cordon else ""
    by = f" by {found.member.holder}" if found.member.holder else ""
    left = found.held_back_seconds
    until = (
        ""
        if left is None
        else f" so that another pool can take it first; can be granted {when_due(left)}"
    )
    return f"{found.state}{by}{until}{cordoned}"


def _stays(found: Whereabouts) -> str:
    lifetime = found.member.lifetime
    if lifetime is None:
        return ""
    if lifetime.process is not None:
        return f"as long as process {lifetime.process.pid} runs"
    return f"for {format_seconds(lifetime.ttl_seconds or 0.0)} after its last join"
