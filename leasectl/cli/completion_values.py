"""Values to complete: pools, names, handles, properties."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from leasectl.backends.kinds import Context, kind_of
from leasectl.cli.command import Word
from leasectl.engines.values import Value
from leasectl.errors import LeaseError
from leasectl.leases.opening import choose_backend, settings, state_directory
from leasectl.leases.targets import read_names
from leasectl.once.results import POINTERS, kept_in
from leasectl.state import read_only
from leasectl.text.naming import is_reserved

if TYPE_CHECKING:
    from leasectl.engines.pool_admin import Sides

_SERVER_SECONDS = 1.0
# What the options and words are called that name the types of pools.
_OF_TYPES = ("pool_type", "pool_types", "type_word", "type_words")


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


def names_like(incomplete: str, ctx: click.Context) -> list[str]:
    """Names in pools, of those that the command names so far, that begin like a word."""
    # Where they belong may be another pool than the one they are in.
    types = () if ctx.info_name == "expect" else _types_in(ctx)
    return known_names(ctx.params.get("backend"), begin=incomplete, types=types)


def released_names_like(incomplete: str, ctx: click.Context) -> list[str]:
    """Names that can be released and begin like a word: held here or, by force, any."""
    if ctx.params.get("force"):
        return names_like(incomplete, ctx)
    found = read_only.held_names(state_directory())
    return [each for each in found if each.startswith(incomplete) and not is_reserved(each)]


def held_names_like(incomplete: str, ctx: click.Context) -> list[str]:
    """Names that begin like a word, of the handle that the command names."""
    words = [ctx.params.get("handle"), ctx.params.get("handle_word"), *ctx.args]
    held = held_names(next(filter(None, words), None))
    return [each for each in held if each.startswith(incomplete)]


def last_in_list(
    incomplete: str, ctx: click.Context, like: Callable[[str, click.Context], list[str]]
) -> list[str]:
    """Complete the last of words with commas between them; none is offered twice.

    Args:
        incomplete: All of them.
        ctx: Of the command.
        like: Gives what begins like a word.
    """
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [f"{before}{comma}{each}" for each in like(last, ctx) if each not in given]


def properties_like(incomplete: str, ctx: click.Context) -> list[str]:
    """What is so of resources in the embedded pools and begins like a word, to be asked for."""
    kind = kind_of(choose_backend(ctx.params.get("backend")).url)
    if kind.remote or not kind.has_pools:
        return []
    found = [f"{key}={value}" for key, value in read_only.properties(state_directory())]
    # A shell would take what has to be quoted for several words, or for more than words.
    return [each for each in found if each.startswith(incomplete) and shlex.quote(each) == each]


def work_keys_like(incomplete: str, ctx: click.Context) -> list[str]:
    """Keys of stored results that begin with a word; none after the first key."""
    if ctx.params.get("words") or ctx.params.get("lists"):
        return []
    return [each for each in _kept_work_keys(ctx) if each.startswith(incomplete)]


def property_keys_like(incomplete: str, ctx: click.Context) -> list[str]:
    """Property keys in the pools that the command names so far, with the same beginning."""
    return [each for each in _property_keys(ctx) if each.startswith(incomplete)]


def _kept_work_keys(ctx: click.Context) -> list[str]:
    with contextlib.suppress(LeaseError):
        server = _server(ctx)
        if server is None:
            rows = read_only.values(state_directory(), POINTERS) if _is_embedded(ctx) else []
            found: Sequence[Value] = [Value(*row) for row in rows]
        else:
            found = server.values.read(POINTERS)
        keys = {each.work.key for each in kept_in(found)}
        # A shell would split or expand a word that it has to quote.
        return sorted(each for each in keys if shlex.quote(each) == each)
    return []


def _property_keys(ctx: click.Context) -> list[str]:
    with contextlib.suppress(LeaseError):
        server = _server(ctx)
        if server is None:
            found = read_only.properties(state_directory()) if _is_embedded(ctx) else []
            return sorted({key for key, _ in found})
        # Of one pool, where it is known; more than one is never meant.
        pools = server.pools.pools(next(iter(_types_in(ctx)), None))
        members = [each.member for pool in pools for each in pool.resources if each.member]
        return sorted({key for member in members for key, _ in member.properties})
    return []


def _is_embedded(ctx: click.Context) -> bool:
    kind = kind_of(choose_backend(ctx.params.get("backend")).url)
    return kind.has_pools and not kind.remote


def _server(ctx: click.Context) -> Sides | None:
    """What is asked on the chosen server; None where there is none to be asked."""
    url = choose_backend(ctx.params.get("backend")).url
    return kind_of(url).open_to_look(_context(url), seconds=_SERVER_SECONDS)


def _context(url: str) -> Context:
    return Context(url, settings(url))


def known_types(backend: str | None = None) -> Sequence[str]:
    """The types of the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
    """
    url = choose_backend(backend).url
    found: Sequence[str] = ()
    with contextlib.suppress(LeaseError):
        kind = kind_of(url)
        if kind.has_pools and not kind.remote:
            found = read_only.pool_types(state_directory())
        elif kind.counts_types:
            found = read_only.handle_types(state_directory(), url)
        else:
            found = kind.pool_types(_context(url), seconds=_SERVER_SECONDS)
    return [each for each in found if not is_reserved(each)]


def known_names(
    backend: str | None = None, *, begin: str = "", types: Collection[str] = ()
) -> list[str]:
    """Names in the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
        begin: What they begin with.
        types: Of the pools that they are to be in; none of them for any.
    """
    url = choose_backend(backend).url
    found: Sequence[str] = ()
    with contextlib.suppress(LeaseError):
        kind = kind_of(url)
        if kind.has_pools and not kind.remote:
            rows = read_only.resource_names(state_directory())
            found = [name for name, pool_type in rows if not types or pool_type in types]
        else:
            found = kind.resource_names(_context(url), begin, types, seconds=_SERVER_SECONDS)
    return [each for each in found if each.startswith(begin) and not is_reserved(each)]


def known_handles(*, released_too: bool) -> list[tuple[str, str]]:
    """Ids and holder identities of handles; none when they can't be read."""
    return read_only.handle_ids(state_directory(), released_too=released_too)


def held_names(handle: str | None) -> Sequence[str]:
    """What the names file of a handle lists; none when it can't be read.

    Args:
        handle: Its path, or the last part of that.
    """
    if not handle:
        return []
    path = handle if "/" in handle else os.path.join(state_directory(), "handles", handle)
    with contextlib.suppress(LeaseError):
        return read_names(path)
    return []


def _types_in(ctx: click.Context) -> frozenset[str]:
    """The types that a command names by its options or words so far."""
    params = [each for each in ctx.command.params if each.name in _OF_TYPES]
    given = [ctx.params.get(str(each.name)) for each in params]
    # Words before an option whose value is being typed are left as they are.
    words = ctx.args if any(isinstance(each, click.Argument) for each in params) else ()
    named = [[each] if isinstance(each, str) else each or () for each in given]
    return frozenset(words).union(*named)
