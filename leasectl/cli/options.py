"""Options of several commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from leasectl.backends.kinds import LOCAL, all_kinds
from leasectl.cli.described import (
    ENDING,
    FILTERS,
    OTHERS,
    OUTPUT,
    WAITING,
    WHAT,
    Between,
    OneOf,
    duration,
    flag,
    option,
    word,
)
from leasectl.errors import InvalidRequest
from leasectl.model import HIGHEST_PRIORITY
from leasectl.text.durations import (
    parse_duration_range,
    parse_moment,
)
from leasectl.text.naming import (
    check_name,
    check_own_type,
)
from leasectl.text.wording import printable

if TYPE_CHECKING:
    import click


Function = TypeVar("Function", bound=Callable[..., Any])
PRIORITY_VARIABLE = "LEASECTL_PRIORITY"


def completing(values: str, *, is_list: bool = False) -> Callable[..., list[Any]]:
    """Make a function that completes a word, and loads what that takes when it is called.

    Args:
        values: What to offer: the name of a function in `completion_values`.
        is_list: The word may be several, with commas between them.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from leasectl.cli import completion_values

        offered = getattr(completion_values, values)
        return completion_values.complete(offered, ctx, param, incomplete, is_list=is_list)

    return complete


def complete_handles(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete a handle, or leave a path to the shell."""
    from leasectl.cli.completion_values import handles

    return handles(ctx, param, incomplete)


complete_types = completing("types")
complete_name = completing("names")
complete_names = completing("names", is_list=True)


def name_list(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of resources, whole or as status shortens them: ``--00``."""
    names = tuple(name for name in text.split(",") if name)
    for name in names:
        check_name(name.removeprefix("--"))
    return names


backend = option(
    "--backend",
    group=OTHERS,
    metavar="URL",
    help=f"Where leases come from; see: leasectl help environment. Default: LEASECTL_BACKEND, "
    f"else {LOCAL}",
)
quiet = flag("-q", "--quiet", group=WAITING, help="Print errors only.")
_handle_option = option(
    "--handle",
    metavar="H",
    shell_complete=complete_handles,
    help="The path that acquire printed, or its last part; --handle itself may be omitted.",
)
_handle_word = word(
    "handle_word",
    stands_for="handle",
    needed=True,
    metavar="H",
    shell_complete=complete_handles,
)
json_output = flag("--json", "as_json", group=OUTPUT, help="Print JSON, as does -o json.")
wide = flag(
    "--wide",
    group=OUTPUT,
    help="Show all columns in full; the default for a file or pipe, unless COLUMNS is set.",
)
wait = duration(
    "-w",
    "--wait",
    "wait_seconds",
    group=WAITING,
    metavar="WAIT",
    help="Wait at most this long, like 90s or 1h30m; 0: don't wait. Default: no limit.",
)
connect_timeout = duration(
    "--connect-timeout",
    "connect_seconds",
    group=WAITING,
    help="Exit with 69 once a server has been unreachable for this long; etcd gets at least 3s. "
    "Default: as long as -w; without -w, some 10s.",
)
_conflict_exit_code = option(
    "-E",
    "--conflict-exit-code",
    "conflict_code",
    group=WAITING,
    type=Between(0, 255),
    metavar="CODE",
    help="Exit with this code, instead of 75, if no lease was granted in time.",
)
_jitter = duration(
    "--jitter",
    "jitter_seconds",
    group=WAITING,
    default="0",
    help="Sleep for a random time of up to D before queueing, for scripts that begin at the same "
    "time. The queue position is later. --start-jitter or a pool's --pace spread starts better.",
)
_start_jitter = duration(
    "--start-jitter",
    "start_jitter_seconds",
    group=WAITING,
    default="0",
    help="Sleep for a random time of up to D after the grant, so that jobs granted together don't "
    "start together. --release-after counts from then on.",
)
_optional = flag(
    "--optional",
    group=WAITING,
    help="Continue without a lease if none can be granted, with a warning; set -w, or it may wait "
    "for ever. A wrong command line is still an error (64).",
)


class _Priority(Between):
    """The priority of a request."""

    def __init__(self) -> None:
        super().__init__(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)

    def for_click(self) -> Any:
        from leasectl.cli.priority import Priority

        return Priority()


def _count(text: str) -> int | None:
    """Read a number of resources; None for all."""
    if text == "all":
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(
            f'--count "{printable(text)}": give a number of resources, or "all"'
        ) from None


def _ttl_help() -> str:
    ttls = [
        f"{kind.title}: "
        + ("from its URL" if kind.is_ttl_in_url else f"{kind.default_ttl_seconds:g}s")
        for kind in all_kinds()
        if kind.default_ttl_seconds is not None
    ]
    return (
        "Let the lease expire this long after its last renewal. leasectl run renews its lease. "
        "The keeper, leasectl's background process, renews a lease with a guard. Any other needs "
        "leasectl renew. Default: no expiry, except "
        f"{'; '.join(ttls)}."
    )


_request_options = (
    option(
        "-t",
        "--type",
        "pool_types",
        group=WHAT,
        type=check_own_type,
        multiple=True,
        metavar="POOL",
        shell_complete=complete_types,
        help="The pool; -t itself may be omitted. With several pools, the lease comes from the "
        "one that can grant it first.",
    ),
    word(
        "type_words",
        stands_for="pool_types",
        needed=True,
        nargs=-1,
        type=check_own_type,
        metavar="POOL",
        shell_complete=complete_types,
    ),
    option(
        "-c",
        "--count",
        group=WHAT,
        type=_count,
        default=1,
        show_default=True,
        metavar="N|all",
        help="The number of resources, granted together. all: every resource of the pool, for "
        "exclusive use.",
    ),
    option(
        "--priority",
        group=WAITING,
        type=_Priority(),
        default=0,
        envvar=PRIORITY_VARIABLE,
        show_envvar=True,
        metavar="N",
        help="Requests with a higher priority are served first. Default: 0.",
    ),
    option(
        "--supersede",
        "supersede",
        group=WAITING,
        metavar="KEY",
        help="Withdraw older waiting requests for this pool with the same KEY, on any machine; "
        "they exit with 75. Leases are left alone.",
    ),
    option(
        "--name",
        group=WHAT,
        type=check_name,
        metavar="NAME",
        shell_complete=complete_name,
        help="Lease this resource and no other.",
    ),
    option(
        "--where",
        group=WHAT,
        multiple=True,
        metavar="K=V",
        shell_complete=completing("properties"),
        help="Only resources with this property, or without it for K!=V; may be repeated, and "
        "then all must match. See: leasectl pool set --help",
    ),
    option(
        "--label",
        "labels",
        group=WHAT,
        multiple=True,
        metavar="K=V",
        help="A label to show beside the holder, up to 200 characters; may be repeated.",
    ),
    option(
        "--release-after",
        "release_after",
        group=ENDING,
        type=parse_duration_range,
        metavar="D",
        help="Release the lease this long after the grant, like 20m, or 18m-22m for a random time "
        "in that range; a command under run goes on.",
    ),
    duration(
        "--ttl",
        "ttl_seconds",
        group=ENDING,
        help=_ttl_help,
    ),
    option(
        "--on-reclaim",
        group=ENDING,
        type=OneOf("release", "keep", "answer"),
        default="keep",
        help="What to do when leasectl reclaim asks for leases back: release what isn't in use, "
        "keep everything, or wait for leasectl answer. Default: keep.",
    ),
)


def handle(function: Function) -> Function:
    """Add ``--handle``, which may also be given as an argument."""
    return _with((_handle_option, _handle_word), function)


def one_type(
    help: str, *, group: str | None = None, needed: bool = False
) -> Callable[[Function], Function]:
    """Add ``-t`` for one pool, which may also be given as an argument."""
    same: Any = {"type": check_own_type, "metavar": "POOL", "shell_complete": complete_types}
    described = option("-t", "--type", "pool_type", group=group, help=help, **same)
    one_type_word = word("type_word", stands_for="pool_type", needed=needed, **same)
    return lambda function: _with((described, one_type_word), function)


def wait_options(function: Function) -> Function:
    """Add the options that become `WaitOptions`, but for ``--quiet``."""
    described = (wait, connect_timeout, _conflict_exit_code, _optional, _jitter, _start_jitter)
    return _with(described, function)


def request_options(function: Function) -> Function:
    """Add the options that become a `Request`."""
    return _with(_request_options, function)


def _with(described: Iterable[Callable[[Any], Any]], function: Function) -> Function:
    for each in reversed(tuple(described)):
        function = each(function)
    return function


def _moment(text: str) -> float:
    return parse_moment(text, time.time())


since = option(
    "--since",
    group=FILTERS,
    type=_moment,
    metavar="TIME",
    help="Only events since TIME: an age like 2h or 7d, or a date in UTC like 2026-11-21 or "
    "2026-11-21T14:00. Default: all events that are kept.",
)
until = option(
    "--until",
    group=FILTERS,
    type=_moment,
    metavar="TIME",
    help="Only events until TIME, in the same form. Default: now.",
)


def check_stretch(since: float | None, until: float | None) -> None:
    """Refuse an empty time range.

    Args:
        since: Wall clock; None for the first event.
        until: Wall clock; None for now.

    Raises:
        InvalidRequest: The range ends before it begins.
    """
    end = time.time() if until is None else until
    if since is not None and since > end:
        which = "now" if until is None else "--until"
        raise InvalidRequest(f"--since is later than {which}; give an earlier time")
