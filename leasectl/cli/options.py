"""Options that several commands share, and what their values may be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, TypeVar

import click

from leasectl.backends.kinds import KINDS, LOCAL
from leasectl.errors import InvalidRequest
from leasectl.model import Labels, Request, Scope
from leasectl.text.durations import parse_duration
from leasectl.text.naming import check_name, check_type

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])


def complete_types(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer the types that the chosen backend has, to a shell that completes a word."""
    from leasectl.cli.completion import known_types

    return [each for each in known_types(ctx.params.get("backend")) if each.startswith(incomplete)]


def complete_handles(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer handles to a shell that completes a word; for a path, let it look for files."""
    from click.shell_completion import CompletionItem

    from leasectl.cli.completion import known_handles

    if "/" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    released_too = ctx.info_name == "reacquire"
    return [
        CompletionItem(handle_id, help=identity)
        for handle_id, identity in known_handles(released_too=released_too)
        if handle_id.startswith(incomplete)
    ]


def name_list(text: str) -> tuple[str, ...]:
    """Read resource names with commas between them."""
    return tuple(check_name(name) for name in text.split(",") if name)


_choices = [kind.help for kind in KINDS]
backend = click.option(
    "--backend",
    metavar="URL",
    help=f"Where leases come from: {', '.join(_choices[:-1])}, or {_choices[-1]}. "
    f"Default: LEASECTL_BACKEND, LEASE_PROXY_SERVER_URL, else {LOCAL}.",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Say nothing while waiting.")
handle = click.option(
    "--handle",
    required=True,
    metavar="H",
    shell_complete=complete_handles,
    help="The path that acquire printed, or its last part.",
)
json_output = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
wide = click.option(
    "--wide",
    is_flag=True,
    help="Every column, nothing cut, however long the lines; as it is in a file or pipe.",
)
wait = click.option(
    "-w",
    "--wait",
    "wait_seconds",
    type=parse_duration,
    metavar="WAIT",
    help="Wait for at most this long, like 90s or 1h30m; 0: don't wait. Default: as long as it "
    "takes.",
)
conflict_exit_code = click.option(
    "-E",
    "--conflict-exit-code",
    "conflict_code",
    type=click.IntRange(0, 255),
    metavar="CODE",
    help="Exit with this code, instead of 75, when no lease was had in time.",
)
jitter = click.option(
    "--jitter",
    "jitter_seconds",
    type=parse_duration,
    metavar="D",
    default="0",
    help="First sleep a random time of up to this, so that waves of jobs don't start in lockstep.",
)


def _default_ttls() -> str:
    return "".join(
        f"; in {kind.title}, {kind.default_ttl_seconds:g}s, renewed for you"
        for kind in KINDS
        if kind.default_ttl_seconds is not None
    )


def request_options(function: Function) -> Function:
    """Add the options that say what is wanted: those of `Request`."""
    for option in reversed(
        (
            click.option(
                "-t",
                "--type",
                "pool_types",
                type=check_type,
                multiple=True,
                required=True,
                metavar="TYPE",
                shell_complete=complete_types,
                help="The pool to take from. Given more than once: one lease, of whichever of "
                "these pools is free first.",
            ),
            click.option(
                "-c",
                "--count",
                type=int,
                default=1,
                show_default=True,
                metavar="N",
                help="How many; all or none.",
            ),
            click.option(
                "--name", type=check_name, metavar="NAME", help="Take this very resource."
            ),
            click.option(
                "--release-after",
                "release_after_seconds",
                type=parse_duration,
                metavar="D",
                help="Release it this long after the grant, like 20m, whatever still runs.",
            ),
            click.option(
                "--ttl",
                "ttl_seconds",
                type=parse_duration,
                metavar="D",
                help="The lease expires this long after its last renewal. With a guard, and under "
                "run, it is renewed for you; else only leasectl renew does. Default: it doesn't "
                f"expire{_default_ttls()}.",
            ),
            click.option(
                "--label",
                "labels",
                multiple=True,
                metavar="K=V",
                help="Shown beside the holder; may be repeated.",
            ),
            click.option(
                "--optional",
                is_flag=True,
                help="If no lease can be had, warn and go on without one. Without -w that may "
                "take for ever. A wrong command line stays an error (64).",
            ),
        )
    ):
        function = option(function)
    return function


def parse_labels(labels: tuple[str, ...]) -> Labels:
    """Read ``K=V`` options; InvalidRequest when one is none."""
    pairs = []
    for label in labels:
        key, equals, value = label.partition("=")
        check_name(key)
        if not equals or not value.isprintable() or len(value) > 200:
            raise InvalidRequest(f'--label "{key}": write it as KEY=VALUE, in one printable line')
        pairs.append((key, value))
    return tuple(pairs)


def make_request(
    *,
    pool_types: tuple[str, ...],
    count: int,
    name: str | None,
    release_after_seconds: float | None,
    ttl_seconds: float | None,
    labels: tuple[str, ...],
    scope: Scope = "step",
) -> Request:
    """Make a `Request` of the values of `request_options`."""
    return Request(
        type=pool_types[0],
        count=count,
        name=name,
        ttl_seconds=ttl_seconds,
        release_after_seconds=release_after_seconds,
        scope=scope,
        labels=parse_labels(labels),
        other_types=pool_types[1:],
    )
