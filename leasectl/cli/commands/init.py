"""``leasectl init``: print the Bash functions."""

from __future__ import annotations

import pkgutil

import click

from leasectl.cli.command import new_command
from leasectl.cli.shown.output import emit
from leasectl.errors import CorruptState

EXAMPLE = """\b
Example:
  source <(leasectl init bash)
  h=$(lease__acquire --type=azure--install --scope=step)
  lease__guard "$h"
"""


@new_command(epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(["bash"]))
def command(*, shell: str) -> None:
    """Print Bash functions to source: lease__acquire and others.

    They take, give back and show leases in a step script, and run what a script wants done at
    its end beside the traps that it has: lease__acquire, lease__release, lease__reacquire,
    lease__cat, lease__guard, lease__trap and lease__untrap.
    """
    try:
        # Through the loader: the package may be in an archive.
        data = pkgutil.get_data("leasectl.shell", f"leasectl.{shell}")
    except OSError as error:
        raise CorruptState(f"leasectl.{shell}: {error.strerror}; install leasectl anew") from None
    emit((data or b"").decode())
