"""Options of several commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from leasectl.backends.kinds import LOCAL, all_kinds
from leasectl.cli.described import Between, Function, Group, option, word
from leasectl.errors import InvalidRequest
from leasectl.model import HIGHEST_PRIORITY
from leasectl.text.durations import parse_duration_range, parse_moment
from leasectl.text.naming import check_name
from leasectl.text.wording import printable


def name_list(text: str) -> tuple[str, ...]:
    """Read a comma-separated list of resources, whole or as status shortens them: ``--00``."""
    names = tuple(name for name in text.split(",") if name)
    for name in names:
        check_name(name.removeprefix("--"))
    return names


backend = option(
    "--backend URL",
    f"Where leases come from; see: leasectl help environment. Default: LEASECTL_BACKEND, "
    f"else {LOCAL}",
    group="Other options",
)
quiet = option("-q, --quiet", "Print errors only.")
_handle_option = option(
    "--handle H", "The path that acquire printed, or its last part; --handle itself may be omitted."
)
_handle_word = word("handle_word", "H", stands_for="handle", needed=True)
json_output = option("--json", "Print JSON, as does -o json.", to="as_json", group="Output")
wide = option(
    "--wide",
    "Show all columns in full; the default for a file or pipe, unless COLUMNS is set.",
    group="Output",
)
wait = option(
    "-w, --wait WAIT",
    "Wait at most this long, like 90s or 1h30m; 0: don't wait. Default: no limit.",
    to="wait_seconds",
    group="Waiting",
)
connect_timeout = option(
    "--connect-timeout D",
    "Exit with 69 once a server has been unreachable for this long; for etcd at least 3s. "
    "Default: the time of -w; without -w, about 10s.",
    to="connect_seconds",
    group="Waiting",
)
_conflict_exit_code = option(
    "-E, --conflict-exit-code CODE",
    "Exit with this code, instead of 75, if no lease was granted in time.",
    to="conflict_code",
    type=Between(0, 255),
    group="Waiting",
)
_jitter = option(
    "--jitter D",
    "Sleep for a random time of up to D before queueing, for scripts that begin at the same "
    "time. Other requests can get ahead meanwhile. To spread the starts of jobs, use "
    "--start-jitter or a pool's --pace instead.",
    to="jitter_seconds",
    group="Waiting",
    default="0",
)
_start_jitter = option(
    "--start-jitter D",
    "Sleep for a random time of up to D after the grant, so that jobs granted together don't "
    "start together. The time of --release-after begins after this sleep.",
    to="start_jitter_seconds",
    group="Waiting",
    default="0",
)
_optional = option(
    "--optional",
    "Continue without a lease if none can be granted, with a warning; set -w, or it may wait "
    "for ever. A wrong command line is still an error (64).",
    group="Waiting",
)


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
        "The keeper, leasectl's background process, renews a lease that has a guard, or was "
        "acquired without --ttl. Any other needs leasectl renew. Default: no expiry, except "
        f"{'; '.join(ttls)}."
    )


_request_options = (
    option(
        "-t, --type POOL",
        "The pool; -t itself may be omitted. With several pools, the lease comes from the "
        "one that can grant it first.",
        to="pool_types",
        group="Lease",
        multiple=True,
    ),
    word("type_words", "POOL", stands_for="pool_types", needed=True, nargs=-1),
    option(
        "-c, --count N|all",
        "The number of resources, granted together. all: every resource of the pool, for "
        "exclusive use.",
        type=_count,
        group="Lease",
        default=1,
        show_default=True,
    ),
    option(
        "--each",
        "With several pools, lease N resources of each of them, granted together.",
        group="Lease",
    ),
    option(
        "--priority N",
        "Requests with a higher priority are served first. Default: LEASECTL_PRIORITY, else 0.",
        type=Between(-HIGHEST_PRIORITY, HIGHEST_PRIORITY),
        group="Waiting",
    ),
    option(
        "--supersede KEY",
        "Withdraw older waiting requests for this pool with the same KEY, on any machine; "
        "they exit with 75. Leases are left alone.",
        group="Waiting",
    ),
    option("--name NAME", "Lease this resource and no other.", group="Lease"),
    option(
        "--where K=V",
        "K=V: only resources with this property; K!=V: all others, also those that have no K. "
        "May be repeated; then all must match. See: leasectl pool set --help",
        completed_from="properties",
        group="Lease",
        multiple=True,
    ),
    option(
        "--label K=V",
        "A label to show beside the holder, up to 200 characters; may be repeated.",
        to="labels",
        group="Lease",
        multiple=True,
    ),
    option(
        "--release-after D",
        "Release the lease this long after the grant and --start-jitter, like 20m, or 18m-22m for "
        "a random time in that range; a command under run continues.",
        type=parse_duration_range,
        group="End of the lease",
    ),
    option("--ttl D", _ttl_help, to="ttl_seconds", group="End of the lease"),
    option(
        "--on-reclaim [release|keep|answer]",
        "What to do when leasectl reclaim asks for leases back: release what isn't in use, "
        "keep everything, or wait for leasectl answer. Default: keep.",
        group="End of the lease",
        default="keep",
    ),
)


def handle(function: Function) -> Function:
    """Add ``--handle``, which may also be given as an argument."""
    return _with((_handle_option, _handle_word), function)


def one_type(
    help: str, *, group: Group = "Other options", needed: bool = False
) -> Callable[[Function], Function]:
    """Add ``-t`` for one pool, which may also be given as an argument."""
    described = option("-t, --type POOL", help, to="pool_type", group=group)
    one_type_word = word("type_word", "POOL", stands_for="pool_type", needed=needed)
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
    "--since TIME",
    "Only events since TIME: an age like 2h or 7d, or a date in UTC like 2026-11-21 or "
    "2026-11-21T14:00. Default: all events that are kept.",
    type=_moment,
    group="Filters",
)
until = option(
    "--until TIME",
    "Only events until TIME, in the same form. Default: now.",
    type=_moment,
    group="Filters",
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
