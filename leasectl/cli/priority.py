"""A default priority from the environment."""

from __future__ import annotations

import click

from leasectl.backends.kinds import kind_of, prefixes
from leasectl.cli.rendering.output import note
from leasectl.leases.opening import choose_backend
from leasectl.model import Request


def without_vain_priority(request: Request, backend: str | None, *, quiet: bool) -> Request:
    """A request as its backend can take it: a variable is set for all commands, and not asked for.

    A priority that an option asks for stays, and is refused by a backend that knows none.

    Args:
        request: As `make_request` returned it, with a priority.
        backend: What ``--backend`` says.
        quiet: Say nothing of what is ignored.
    """
    # A command line that was read without click leaves no variable to count.
    ctx = click.get_current_context(silent=True)
    source = ctx.get_parameter_source("priority") if ctx else click.core.ParameterSource.COMMANDLINE
    if source is click.core.ParameterSource.COMMANDLINE:
        return request
    url = choose_backend(backend).url
    kind = kind_of(url)
    if kind.has_pools or kind.grants_nothing:
        return request
    if not quiet:
        note(
            f"LEASECTL_PRIORITY is ignored: {url} has a queue of its own; only "
            f"{prefixes('and')} know priorities"
        )
    return request._replace(priority=0)
