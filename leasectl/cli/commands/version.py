"""``leasectl version``: which version this is."""

from __future__ import annotations

from leasectl import __version__
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.shown.output import show, show_json

EXAMPLE = """\b
Example:
  leasectl version
"""


@new_command(epilog=EXAMPLE)
@options.json_output
def command(*, as_json: bool) -> None:
    """Print which version this is, as --version does."""
    if as_json:
        show_json({"version": __version__})
    else:
        show(f"leasectl {__version__}\n")
