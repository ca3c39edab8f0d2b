"""What a process does once its command is loaded."""

from __future__ import annotations

import gc

from leasectl.system.signals import raise_on_interrupt

# Objects that may hold others: some megabytes.
_MOST_UNLOOKED_AT = 50_000


def command_is_loaded() -> None:
    """Set up this process after its command is loaded."""
    # After `leasectl.__main__` turned it off. What was imported stays: nobody need look at it.
    gc.freeze()
    gc.enable()
    raise_on_interrupt()


def little_is_garbage() -> None:
    """Look seldom for garbage in a command of one request: what it makes first are modules."""
    gc.set_threshold(_MOST_UNLOOKED_AT)


def nothing_is_garbage() -> None:
    """Look for no garbage in a command that only shows: what it reads it needs until it ends."""
    gc.disable()
