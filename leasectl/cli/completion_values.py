"""What there is to complete: types, handles and properties, looked at and left as they are."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from leasectl.backends.kinds import kind_of
from leasectl.cli.command import Word
from leasectl.cli.context import choose_backend, settings, state_directory
from leasectl.text.naming import is_reserved

_SERVER_SECONDS = 1.0


def types_like(incomplete: str, ctx: click.Context, param: click.Parameter) -> list[str]:
    """Types that begin like a word; none where an option has said it."""
    if isinstance(param, Word) and param.is_superfluous(ctx):
        return []
    return [each for each in known_types(ctx.params.get("backend")) if each.startswith(incomplete)]


def handles_like(
    incomplete: str, ctx: click.Context, param: click.Parameter
) -> list[CompletionItem]:
    """Handles that begin like a word, or files; none where an option has said it."""
    if isinstance(param, Word) and param.is_superfluous(ctx):
        return []
    if "/" in incomplete:
        return [CompletionItem(incomplete, type="file")]
    return [
        CompletionItem(handle_id, help=identity)
        for handle_id, identity in known_handles(released_too=ctx.info_name == "reacquire")
        if handle_id.startswith(incomplete)
    ]


def properties_like(incomplete: str, ctx: click.Context) -> list[str]:
    """What is so of resources in the embedded pools and begins like a word, to be asked for."""
    from leasectl.state import read_only

    kind = kind_of(choose_backend(ctx.params.get("backend")).url)
    if kind.remote or not kind.has_pools:
        return []
    found = [f"{key}={value}" for key, value in read_only.properties(state_directory())]
    # A shell would take what has to be quoted for several words, or for more than words.
    return [each for each in found if each.startswith(incomplete) and shlex.quote(each) == each]


def known_types(backend: str | None = None) -> Sequence[str]:
    """The types of the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
    """
    from leasectl.backends.opening import pool_types
    from leasectl.errors import LeaseError
    from leasectl.state import read_only
    from leasectl.system.clock import Clock

    url = choose_backend(backend).url
    found: Sequence[str] = ()
    with contextlib.suppress(LeaseError):
        kind = kind_of(url)
        if kind.has_pools and not kind.remote:
            found = read_only.pool_types(state_directory())
        else:
            found = pool_types(url, settings(url), seconds=_SERVER_SECONDS, clock=Clock())
    return [each for each in found if not is_reserved(each)]


def known_names(backend: str | None = None) -> Sequence[str]:
    """The names in the pools of this machine; none of other backends, which have too many.

    Args:
        backend: What ``--backend`` says.
    """
    from leasectl.errors import LeaseError
    from leasectl.state import read_only

    with contextlib.suppress(LeaseError):
        kind = kind_of(choose_backend(backend).url)
        if kind.has_pools and not kind.remote:
            return read_only.resource_names(state_directory())
    return []


def known_handles(*, released_too: bool) -> list[tuple[str, str]]:
    """Ids and holder identities of handles; none when they can't be read."""
    from leasectl.state import read_only

    return read_only.handle_ids(state_directory(), released_too=released_too)


def held_names(handle: str | None) -> Sequence[str]:
    """What the names file of a handle lists; none when it can't be read.

    Args:
        handle: Its path, or the last part of that.
    """
    import os

    from leasectl.errors import LeaseError
    from leasectl.leases.targets import read_names

    if not handle:
        return []
    path = handle if "/" in handle else os.path.join(state_directory(), "handles", handle)
    with contextlib.suppress(LeaseError):
        return read_names(path)
    return []
