"""Values to complete: pools, names, handles, properties.

Each function returns what there is to offer, given the word so far and the context of the command;
`complete` chooses from it.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Collection, Mapping, Sequence

import click
from click.shell_completion import CompletionItem

from leasectl.backends.kinds import Context, kind_of
from leasectl.engines.pool_admin import Sides
from leasectl.engines.values import Value
from leasectl.errors import LeaseError
from leasectl.leases.opening import choose_backend, settings, state_directory
from leasectl.leases.paths import read_names
from leasectl.once.results import POINTERS, kept_in
from leasectl.state import read_only
from leasectl.text.naming import is_reserved

_SERVER_SECONDS = 1.0
# What the options and words are called that name the types of pools.
_OF_TYPES = ("pool_type", "pool_types", "type_word", "type_words")


def complete(
    offered: str, ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the values that begin like a word; none on an error.

    Of a list with commas, the last word is completed, and no value is offered twice.

    Args:
        offered: The name of a function here that returns what there is to offer.
        ctx: Of the command.
        param: The option or word to complete.
        incomplete: The word so far.
    """
    if offered == "files" or (offered == "handles" and "/" in incomplete):
        return [CompletionItem(incomplete, type="file")]
    is_list = param.metavar == "A,B"
    before, comma, last = incomplete.rpartition(",") if is_list else ("", "", incomplete)
    given = before.split(",")
    with contextlib.suppress(LeaseError):
        found = globals()[offered](last, ctx)
        helped = found if isinstance(found, Mapping) else dict.fromkeys(found)
        return [
            CompletionItem(f"{before}{comma}{each}", help=help)
            for each, help in helped.items()
            # A shell would split or expand a word that it has to quote.
            if each.startswith(last) and each not in given and shlex.quote(each) == each
        ]
    return []


def handles(_: str, ctx: click.Context) -> Mapping[str, str]:
    """The ids of handles, with their holders."""
    return dict(read_only.handle_ids(state_directory(), released_too=ctx.info_name == "reacquire"))


def types(_: str, ctx: click.Context) -> Sequence[str]:
    """The types of pools."""
    backend = _Backend(ctx.params.get("backend"))
    if backend.is_embedded:
        found: Sequence[str] = read_only.pool_types(state_directory())
    elif backend.kind.counts_types:
        found = read_only.handle_types(state_directory(), backend.context.url)
    else:
        found = backend.kind.pool_types(backend.context, seconds=_SERVER_SECONDS)
    return [each for each in found if not is_reserved(each)]


def names(begin: str, ctx: click.Context) -> Sequence[str]:
    """Names in the pools that the command names so far, or in all."""
    # Where they belong may be another pool than the one they are in.
    of = () if ctx.info_name == "expect" else _types_in(ctx)
    return known_names(ctx.params.get("backend"), begin=begin, types=of)


def released_names(begin: str, ctx: click.Context) -> Sequence[str]:
    """Names that can be released: held here or, by force, any."""
    if ctx.params.get("force"):
        return names(begin, ctx)
    return [each for each in read_only.held_names(state_directory()) if not is_reserved(each)]


def held_names(_: str, ctx: click.Context) -> Sequence[str]:
    """The names that the handle of the command holds."""
    words = [ctx.params.get("handle"), ctx.params.get("handle_word"), *ctx.args]
    handle = next(filter(None, words), None)
    if not handle:
        return []
    path = handle if "/" in handle else os.path.join(state_directory(), "handles", handle)
    return read_names(path)


def properties(_: str, ctx: click.Context) -> Sequence[str]:
    """Properties of resources in the embedded pools, as conditions."""
    if not _Backend(ctx.params.get("backend")).is_embedded:
        return []
    return [f"{key}={value}" for key, value in read_only.properties(state_directory())]


def property_keys(_: str, ctx: click.Context) -> Collection[str]:
    """Property keys in the pools that the command names so far."""
    backend = _Backend(ctx.params.get("backend"))
    server = backend.server()
    if server is None:
        found = read_only.properties(state_directory()) if backend.is_embedded else []
        return sorted({key for key, _ in found})
    # Of one pool, where it is known; more than one is never meant.
    pools = server.pools.pools(next(iter(_types_in(ctx)), None))
    members = [each.member for pool in pools for each in pool.resources if each.member]
    return sorted({key for member in members for key, _ in member.properties})


def work_keys(_: str, ctx: click.Context) -> Collection[str]:
    """Keys of stored results; none after the first key."""
    if ctx.params.get("words") or ctx.params.get("lists"):
        return []
    backend = _Backend(ctx.params.get("backend"))
    server = backend.server()
    if server is None:
        rows = read_only.values(state_directory(), POINTERS) if backend.is_embedded else []
        found: Sequence[Value] = [Value(*row) for row in rows]
    else:
        found = server.values.read(POINTERS)
    return sorted({each.work.key for each in kept_in(found)})


def known_names(
    backend: str | None = None, *, begin: str = "", types: Collection[str] = ()
) -> Sequence[str]:
    """Names in the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
        begin: What they begin with.
        types: Of the pools that they are to be in; none of them for any.
    """
    found: Sequence[str] = ()
    with contextlib.suppress(LeaseError):
        chosen = _Backend(backend)
        if chosen.is_embedded:
            rows = read_only.resource_names(state_directory())
            found = [name for name, pool_type in rows if not types or pool_type in types]
        else:
            found = chosen.kind.resource_names(
                chosen.context, begin, types, seconds=_SERVER_SECONDS
            )
    return [each for each in found if not is_reserved(each)]


class _Backend:
    """The backend that the command line chooses."""

    def __init__(self, backend: str | None) -> None:
        self._url = choose_backend(backend).url
        self.kind = kind_of(self._url)
        self.is_embedded = self.kind.has_pools and not self.kind.remote

    @property
    def context(self) -> Context:
        return Context(self._url, settings(self._url))

    def server(self) -> Sides | None:
        """Open what can be asked on a server; None where there is none to be asked."""
        return self.kind.open_to_look(self.context, seconds=_SERVER_SECONDS)


def _types_in(ctx: click.Context) -> frozenset[str]:
    """The types that a command names by its options or words so far."""
    params = [each for each in ctx.command.params if each.name in _OF_TYPES]
    given = [ctx.params.get(str(each.name)) for each in params]
    # Words before an option whose value is being typed are left as they are.
    words = ctx.args if any(isinstance(each, click.Argument) for each in params) else ()
    named = [[each] if isinstance(each, str) else each or () for each in given]
    return frozenset(words).union(*named)
