"""What our output goes to: how wide a line may be, and whether colours and a live line show."""

from __future__ import annotations

import os


def output_width() -> int | None:
    """How wide a line of stdout may be; None for any width, as in a file or pipe.

    COLUMNS holds for a pipe as well: watch(1) and the like set it for what they show.
    """
    columns = os.environ.get("COLUMNS", "")
    if (columns.isdecimal() and int(columns)) or os.isatty(1):  # 0 says nothing
        import shutil

        return max(1, shutil.get_terminal_size().columns)
    return None


def obeys_escapes(fd: int) -> bool:
    """Tell whether a descriptor is a terminal that knows escape sequences."""
    return os.isatty(fd) and os.environ.get("TERM", "dumb") not in ("", "dumb")


def shows_colour() -> bool:
    """Tell whether stdout is to have colours: a terminal, without NO_COLOR (no-color.org)."""
    return not os.environ.get("NO_COLOR") and obeys_escapes(1)
