"""Explain why a folder can't be the state directory."""

from __future__ import annotations

import os
import shlex
import stat

from leasectl.errors import StateUnwritable


def unfit(directory: str, found: os.stat_result) -> StateUnwritable:
    """Return the error for a path that isn't a private folder of ours.

    Args:
        directory: The path.
        found: The status of what is there.
    """
    where = f"state directory {directory}"
    other = "or choose another with LEASECTL_STATE_DIR"
    if stat.S_ISLNK(found.st_mode):
        return StateUnwritable(f"{where} is a symbolic link; remove it {other}")
    if not stat.S_ISDIR(found.st_mode):
        return StateUnwritable(f"{where} is not a directory; remove it {other}")
    if found.st_uid != os.geteuid():
        return StateUnwritable(f"{where} belongs to user {found.st_uid}; choose {other[10:]}")
    mode = stat.S_IMODE(found.st_mode)
    return StateUnwritable(
        f"{where} is open to others (mode {mode:04o}); run: chmod 700 {directory}"
    )


def replaceable(directory: str, parent: os.stat_result) -> StateUnwritable:
    """Return the error for a state directory that any user can replace by another.

    Args:
        directory: Its path.
        parent: The folder that it is in.
    """
    where = os.path.dirname(directory)
    return StateUnwritable(
        f"state directory {directory} can be replaced by any user, as {where} is writable for all "
        f"without the sticky bit (mode {stat.S_IMODE(parent.st_mode):04o}); run: chmod +t "
        f"{shlex.quote(where)}, or choose another with LEASECTL_STATE_DIR"
    )


def nowhere(directory: str) -> StateUnwritable:
    """Return the error for a path that is relative to a deleted folder."""
    return StateUnwritable(
        f"state directory {directory} is to be in the current folder, which is gone; "
        "go to another, or name it by an absolute path in LEASECTL_STATE_DIR"
    )


def no_parent(directory: str) -> StateUnwritable:
    """Return the error for a path whose parent is missing: only its last part is created."""
    parent = os.path.dirname(directory)
    return StateUnwritable(
        f"can't create state directory {directory}: no directory {parent}; create it with: mkdir "
        f"-p {shlex.quote(parent)}, or choose another with LEASECTL_STATE_DIR"
    )
