"""What is said where there are no pools."""

from __future__ import annotations

from leasectl.cli.completion_values import known_names
from leasectl.cli.shown.output import note
from leasectl.text.suggestions import NO_POOLS


def note_no_pools(backend: str | None) -> None:
    """Say how to make a pool, but not where names are in pools that hands have deleted.

    Of those the engine has warned whoever looked.

    Args:
        backend: What ``--backend`` says.
    """
    if not known_names(backend):
        note(NO_POOLS)
