"""What `status` shows without pools: looked at once, or again after some time each."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.cli.shown.output import note, show, show_json
from leasectl.typed.hints import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from leasectl.cli.shown.status_watch import Shown
    from leasectl.system.poll import Interrupt


def show_looked(
    look: Callable[[Sequence[Interrupt]], Shown],
    *,
    refresh_seconds: float,
    watch: bool,
    as_json: bool,
) -> None:
    """Show how things are; what there is nothing to be seen of is a note.

    Args:
        look: Finds it out; what it is given ends it sooner.
        refresh_seconds: How long until the next look.
        watch: Again and again, until a signal comes or nobody reads it any more.
        as_json: As JSON.

    Raises:
        LeaseError: It can't be told.
    """
    if watch:
        from leasectl.cli.shown.status_watch import show_again
        from leasectl.cli.shown.waiting import pause

        show_again(look, lambda ends: pause(refresh_seconds, ends), as_json=as_json)
        return
    shown = look(())
    if as_json:
        show_json(shown.encoded())
    elif shown.facts:
        show(shown.text())
    else:
        note(shown.text().rstrip())
