"""Which handles a command means that only has to do with what is held in this state directory."""

from __future__ import annotations

import click

from leasectl.cli.context import no_handle_of_ours
from leasectl.cli.described import option
from leasectl.errors import NotAllowed
from leasectl.leases.service import Service
from leasectl.leases.targets import Targets, read_names
from leasectl.model import Handle
from leasectl.text.naming import check_name


def complete_held_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer what a handle holds to a shell that completes a word."""
    from leasectl.cli.completion_values import held_names_like

    return held_names_like(incomplete, ctx)


def complete_held_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The same of several with commas between them: the last."""
    from leasectl.cli.completion_values import held_names_like, last_in_list

    return last_in_list(incomplete, ctx, held_names_like)


held_name = option(
    "--name",
    required=True,
    type=check_name,
    metavar="NAME",
    shell_complete=complete_held_name,
    help="Of what H holds.",
)


def held_handles(service: Service, path: str, done: str) -> list[Handle]:
    """The handle that a path means; of a copy, those that hold here what it lists.

    Args:
        service: On the state directory.
        path: As it was given; an empty one means nothing.
        done: What is to be done with it, for the error.

    Raises:
        NotFound: There is no such handle, or nothing that the copy lists is held here.
    """
    if not path:
        return []
    record = Targets(service).handle_at(path)
    if record is not None:
        return [record]
    names = read_names(path)
    holders = [service.handles.holding(name, prefer=service.is_here) for name in names]
    found = {holder.id: holder for holder in holders if holder is not None}
    if names and not found:
        raise no_handle_of_ours(path, service, done)
    return list(found.values())


def handle_with(service: Service, path: str, name: str, done: str) -> Handle:
    """The one of those that holds a name; the first if none does.

    Raises:
        NotFound: As `held_handles`.
        NotAllowed: There is none.
    """
    handles = held_handles(service, path, done)
    if not handles:
        raise NotAllowed(f"an empty handle holds nothing that could be {done}")
    return next((each for each in handles if name in each.names), handles[0])
