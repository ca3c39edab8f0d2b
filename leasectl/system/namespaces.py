"""Whether another pid namespace of this kernel still lives.

The kernel ends all processes of a pid namespace when its first process ends, as that of a container
does. From another namespace they can't be seen, but a lock that they hold on a shared file can. Two
processes of a namespace, its keeper and an anchor, hold the lock on one open file. So the lock is
free only once both have ended (`leasectl.keeper.namespace_lock`).

==================  ===============  ============================================================
the file            its lock         the namespace
==================  ===============  ============================================================
is absent           -                is unknown: no keeper came so far, or the last one ended in
                                     order
is there            is held          lives
is there            is free          is gone
is another by now   -                is unknown: a keeper took the lock anew
==================  ===============  ============================================================

The kernel reuses the numbers of namespaces. So a process removes the file of an earlier namespace
that had the number of its own, before any record names the process (`State.open`). Every process
on record then belongs to the namespace whose lock the file is. A record that was read before the
look at the lock can be judged by it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from leasectl.system.own_files import open_own


def lock_path(directory: str, number: int) -> str:
    """Return the path of a pid namespace's lock in a state directory."""
    return f"{directory}/namespace.{number}"


def is_gone(directory: str, number: int) -> bool:
    """Tell whether a pid namespace of this boot is gone for certain."""
    path = lock_path(directory, number)
    try:
        fd = open_own(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        # Shared, so that two processes that look at once don't hide a free lock from each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False
    finally:
        os.close(fd)


def remove_if_gone(directory: str, number: int) -> None:
    """Under the lock of the state directory: remove the file of a pid namespace that is gone."""
    if is_gone(directory, number):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock_path(directory, number))
