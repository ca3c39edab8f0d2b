"""A priority that isn't asked for but set for all commands: not every backend knows priorities."""

from __future__ import annotations

import click

from leasectl.backends.kinds import kind_of, pool_prefixes
from leasectl.cli.context import choose_backend
from leasectl.cli.output import note
from leasectl.model import Request


def without_vain_priority(request: Request, backend: str | None, *, quiet: bool) -> Request:
    """A request as its backend can take it: a variable is set for all commands, and not asked for.

    A priority that an option asks for stays, and is refused by a backend that knows none.

    Args:
        request: As `options.make_request` has it, with a priority.
        backend: What ``--backend`` says.
        quiet: Say nothing of what is ignored.
    """
    source = click.get_current_context().get_parameter_source("priority")
    if source is click.core.ParameterSource.COMMANDLINE:
        return request
    url = choose_backend(backend).url
    kind = kind_of(url)
    if kind.has_pools or kind.grants_nothing:
        return request
    if not quiet:
        note(
            f"LEASECTL_PRIORITY is ignored: {url} has a queue of its own; only "
            f"{pool_prefixes('and')} know priorities"
        )
    return request._replace(priority=0)
