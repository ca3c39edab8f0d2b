"""Options that several commands share, and what their values may be."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.backends.kinds import KINDS, LOCAL
from leasectl.cli.described import ENDING, OUTPUT, WAITING, WHAT, Between, OneOf, option, word
from leasectl.errors import InvalidRequest
from leasectl.model import HIGHEST_PRIORITY, Labels, OnReclaim, Request, Scope, Where
from leasectl.text.durations import DurationRange, parse_duration, parse_duration_range
from leasectl.text.naming import check_label_key, check_name, check_own_type
from leasectl.typed.hints import TYPE_CHECKING, Any, Callable, TypeVar

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])
PRIORITY_VARIABLE = "LEASECTL_PRIORITY"
_LONGEST_LABEL = 200  # characters of its value


def complete_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the types that the chosen backend has, to a shell that completes a word."""
    from leasectl.cli.completion_values import types_like

    return types_like(incomplete, ctx, param)


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the names that are in pools, to a shell that completes a word."""
    from leasectl.cli.completion_values import names_like

    return names_like(incomplete, ctx)


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the names that are in pools, of several with commas between them the last."""
    from leasectl.cli.completion_values import last_in_list, names_like

    return last_in_list(incomplete, ctx, names_like)


def complete_handles(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer handles to a shell that completes a word; for a path, let it look for files."""
    from leasectl.cli.completion_values import handles_like

    return handles_like(incomplete, ctx, param)


def complete_where(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer what is so of resources in the embedded pools, to a shell that completes a word."""
    from leasectl.cli.completion_values import properties_like

    return properties_like(incomplete, ctx)


def name_list(text: str) -> tuple[str, ...]:
    """Read resource names with commas between them."""
    return tuple(check_name(name) for name in text.split(",") if name)


_choices = [kind.help for kind in KINDS]
backend = option(
    "--backend",
    group=WHAT,
    metavar="URL",
    help=f"Where leases come from: {', '.join(_choices[:-1])}, or {_choices[-1]}. "
    f"Default: LEASECTL_BACKEND, LEASE_PROXY_SERVER_URL, else {LOCAL}.",
)
quiet = option(
    "-q", "--quiet", is_flag=True, group=WAITING, help="Say nothing but what goes wrong."
)
_handle_option = option(
    "--handle",
    metavar="H",
    shell_complete=complete_handles,
    help="The path that acquire printed, or its last part; it may also stand without --handle.",
)
_handle_word = word(
    "handle_word",
    stands_for="handle",
    needed=True,
    metavar="H",
    shell_complete=complete_handles,
)
json_output = option(
    "--json", "as_json", is_flag=True, group=OUTPUT, help="Print JSON, for programs."
)
wide = option(
    "--wide",
    group=OUTPUT,
    is_flag=True,
    help="Every column, nothing cut, however long the lines; as in a file or pipe without COLUMNS.",
)
wait = option(
    "-w",
    "--wait",
    "wait_seconds",
    group=WAITING,
    type=parse_duration,
    metavar="WAIT",
    help="Wait at most this long, like 90s or 1h30m; 0: don't wait. Default: as long as it takes.",
)
conflict_exit_code = option(
    "-E",
    "--conflict-exit-code",
    "conflict_code",
    group=WAITING,
    type=Between(0, 255),
    metavar="CODE",
    help="Exit with this code, instead of 75, when no lease was had in time.",
)
jitter = option(
    "--jitter",
    "jitter_seconds",
    group=WAITING,
    type=parse_duration,
    metavar="D",
    default="0",
    help="Before it asks, sleep a random time of up to this: whoever asks later stands behind. To "
    "spread out what starts, see --start-jitter, or give the pool a pace (leasectl pool set).",
)
start_jitter = option(
    "--start-jitter",
    "start_jitter_seconds",
    group=WAITING,
    type=parse_duration,
    metavar="D",
    default="0",
    help="With the lease in hand, wait a random time of up to this before anything is started "
    "under it, so that what is granted at once doesn't start at once; no place in the queue is "
    "lost by that. --release-after counts from then on.",
)
optional = option(
    "--optional",
    group=WAITING,
    is_flag=True,
    help="If no lease can be had, warn and go on without one. Without -w that may take for ever. A "
    "wrong command line stays an error (64).",
)


class _Priority(Between):
    """How a request goes before others."""

    def __init__(self) -> None:
        super().__init__(-HIGHEST_PRIORITY, HIGHEST_PRIORITY)

    def for_click(self) -> Any:
        from leasectl.cli.priority import Priority

        return Priority()


def _default_ttls() -> str:
    ttls = {
        kind.title: "what its address says" if kind.timed_by else f"{kind.default_ttl_seconds:g}s"
        for kind in KINDS
        if kind.default_ttl_seconds is not None
    }
    return "".join(f"; in {title}, {ttl}, renewed for you" for title, ttl in ttls.items())


_request_options = (
    option(
        "-t",
        "--type",
        "pool_types",
        group=WHAT,
        type=check_own_type,
        multiple=True,
        metavar="TYPE",
        shell_complete=complete_types,
        help="The pool to take from; it may also stand without -t. Given more than once: one "
        "lease, of whichever of these pools is free first.",
    ),
    word(
        "type_words",
        stands_for="pool_types",
        needed=True,
        nargs=-1,
        type=check_own_type,
        metavar="TYPE",
        shell_complete=complete_types,
    ),
    option(
        "-c",
        "--count",
        group=WHAT,
        type=int,
        default=1,
        show_default=True,
        metavar="N",
        help="How many; all or none.",
    ),
    option(
        "--priority",
        group=WAITING,
        type=_Priority(),
        default=0,
        envvar=PRIORITY_VARIABLE,
        show_envvar=True,
        metavar="N",
        help="The higher goes first, whoever came earlier; of equals, who came first. Default: 0.",
    ),
    option(
        "--name",
        group=WHAT,
        type=check_name,
        metavar="NAME",
        shell_complete=complete_name,
        help="Take this very resource.",
    ),
    option(
        "--where",
        group=WHAT,
        multiple=True,
        metavar="K=V",
        shell_complete=complete_where,
        help="Only resources with this property, or with K!=V without it; given more than once, "
        "all of it has to be so. See: leasectl pool set --help",
    ),
    option(
        "--label",
        "labels",
        group=WHAT,
        multiple=True,
        metavar="K=V",
        help="Shown beside the holder, of up to 200 characters; may be repeated.",
    ),
    option(
        "--release-after",
        "release_after",
        group=ENDING,
        type=parse_duration_range,
        metavar="D",
        help="Release it this long after the grant, like 20m, whatever still runs. 18m-22m: a time "
        "in between that chance chooses, so that waves of jobs spread out.",
    ),
    option(
        "--ttl",
        "ttl_seconds",
        group=ENDING,
        type=parse_duration,
        metavar="D",
        help="The lease expires this long after its last renewal. With a guard, and under run, it "
        f"is renewed for you; else only leasectl renew does. Default: it doesn't expire"
        f"{_default_ttls()}.",
    ),
    option(
        "--on-reclaim",
        group=ENDING,
        type=OneOf("release", "keep", "answer"),
        default="keep",
        help="If a reclaim asks, give it what isn't in use, nothing, or what leasectl answer says.",
    ),
)


def handle(function: Function) -> Function:
    """Add ``--handle``, and the word that may stand for it."""
    return _with((_handle_option, _handle_word), function)


def one_type(
    help: str, *, group: str | None = None, needed: bool = False
) -> Callable[[Function], Function]:
    """Add ``-t`` where it says which one pool it is about, and the word that may stand for it."""
    same: Any = {"type": check_own_type, "metavar": "TYPE", "shell_complete": complete_types}
    described = option("-t", "--type", "pool_type", group=group, help=help, **same)
    one_type_word = word("type_word", stands_for="pool_type", needed=needed, **same)
    return lambda function: _with((described, one_type_word), function)


def request_options(function: Function) -> Function:
    """Add the options that say what is wanted: those of `Request`."""
    return _with(_request_options, function)


def _with(described: Iterable[Callable[[Any], Any]], function: Function) -> Function:
    for each in reversed(tuple(described)):
        function = each(function)
    return function


def parse_labels(labels: tuple[str, ...]) -> Labels:
    """Read ``K=V`` options; InvalidRequest when one is none."""
    pairs = []
    for label in labels:
        key, equals, value = label.partition("=")
        check_label_key(key)
        if not equals or not value.isprintable() or len(value) > _LONGEST_LABEL:
            raise InvalidRequest(
                f'--label "{key}": write it as KEY=VALUE, in one printable line of at most '
                f"{_LONGEST_LABEL} characters"
            )
        pairs.append((key, value))
    return tuple(pairs)


def _conditions(texts: tuple[str, ...]) -> Where:
    from leasectl.text.properties import parse_conditions  # which few requests need

    return parse_conditions(texts)


def make_request(
    *,
    pool_types: tuple[str, ...],
    count: int,
    name: str | None,
    where: tuple[str, ...],
    release_after: DurationRange | None,
    ttl_seconds: float | None,
    labels: tuple[str, ...],
    priority: int,
    on_reclaim: OnReclaim = "keep",
    scope: Scope = "step",
) -> Request:
    """Make a `Request` of the values of `request_options`."""
    return Request(
        type=pool_types[0],
        count=count,
        name=name,
        ttl_seconds=ttl_seconds,
        release_after_seconds=None if release_after is None else release_after.shortest,
        scope=scope,
        labels=parse_labels(labels),
        other_types=pool_types[1:],
        priority=priority,
        release_between_seconds=drawn_between(release_after),
        where=_conditions(where) if where else (),
        on_reclaim=on_reclaim,
    )


def drawn_between(given: DurationRange | None) -> tuple[float, float] | None:
    """From what a time is to be drawn; None where it is fixed, or there is none."""
    if given is None or given.shortest == given.longest:
        return None
    return given.shortest, given.longest
