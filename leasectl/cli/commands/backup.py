"""``leasectl backup`` and ``restore``: the state directory of a server."""

from __future__ import annotations

import os

from leasectl.cli.command import new_command
from leasectl.cli.described import word
from leasectl.cli.rendering.output import note
from leasectl.leases.opening import state_directory
from leasectl.state.backup import back_up, restore, unknown_since
from leasectl.state.directory import State
from leasectl.system.clock import Clock, rfc3339
from leasectl.text.wording import counted, printable


@new_command()
@word("file", "FILE")
def backup_command(*, file: str) -> None:
    """Write a backup of the state directory to FILE.

    Pools, leases, handles and events are saved as they are at one moment; servers and commands may
    use the directory meanwhile. An existing FILE is replaced. Leases in etcd or Kubernetes aren't
    in the state directory.

    \b
    Example:
      leasectl backup /var/backups/leasectl-$(date +%F)
    """
    state = State.open(state_directory(), create=False)
    back_up(state, os.path.abspath(file), clock=Clock())
    note(f"saved {state.directory} in {printable(file, longest=500)}")


@new_command()
@word("file", "FILE")
def restore_command(*, file: str) -> None:
    """Replace the state directory's content with a backup.

    Stop the server first. Waiting requests end, and have to be made again. A lease with a ttl ends
    unless its holder renews it within that ttl. New fencing tokens are larger than all earlier
    ones. The replaced database is kept in state.db.replaced.

    \b
    Example:
      leasectl restore /var/backups/leasectl-2026-11-29
    """
    restored = restore(state_directory(), file, clock=Clock())
    if restored.replaced is not None:
        note(f"the replaced database was moved to {restored.replaced}")
    note(
        f"restored what was saved at {rfc3339(restored.taken_at)}, with "
        f"{counted(restored.held, 'held resource')}; new fencing tokens are above {restored.fence}"
    )
    note(unknown_since(restored.taken_at))
