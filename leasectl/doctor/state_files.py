"""Check the files of the state directory: owner, lock, leftovers.

Nothing here asks what the records say, but for which files they know.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator

from leasectl.doctor.findings import ELSEWHERE, Finding, fail, ok, unwritable, warn
from leasectl.errors import CorruptState, LeaseError, StateUnwritable
from leasectl.state import pipes
from leasectl.state.database import check_directory, check_parent, no_parent, unlink
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.reads import examine
from leasectl.system.lock_wait import flock_within, holders_of
from leasectl.system.own_files import open_own
from leasectl.text.wording import counted, listed

LOCK_PATIENCE_SECONDS = 3.0
_SHELL_PIPE = re.compile(r"leasectl-[0-9]+-[0-9]+")
_SHELL_PIPE_SECONDS = 3600.0
_HANDLE_FILE = re.compile(r"(.+-[A-Za-z0-9]{6})(\.lock|\.new)?")


def state_directory(directory: str) -> Finding:
    """Is it a private directory of ours, and can it be written?"""
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return _absent(directory)
    except OSError as error:
        return unwritable(f"{directory}: {error.strerror}", ELSEWHERE)
    try:
        check_directory(directory)
        _try_writing(directory)
    except (LeaseError, OSError) as error:
        what, _, advice = str(error).partition("; ")
        ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if stat.S_IMODE(found.st_mode) == 0o700 or not ours:
            return unwritable(what, advice or ELSEWHERE)
        return unwritable(what, advice or f"run: chmod 700 {directory}")._replace(
            mend=lambda: _make_private(directory)
        )
    what = f"{directory}, of user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}"
    return ok(what)


def _absent(directory: str) -> Finding:
    if "\n" in directory:
        return unwritable(f"{directory!r} has a line break in its path", ELSEWHERE)
    parent = os.path.dirname(directory)
    if not os.path.isdir(parent):
        raise no_parent(directory)
    with contextlib.suppress(OSError):  # the parent has just gone
        check_parent(directory, os.stat(parent))
    if os.access(parent, os.W_OK | os.X_OK):
        return ok(f"{directory} doesn't exist yet; the first acquire or pool command creates it")
    return unwritable(f"{directory} can't be made in {parent}", ELSEWHERE)


def _make_private(directory: str) -> str:
    try:
        # Not by its path: in between it may have become a link to something else.
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(fd, 0o700)
        finally:
            os.close(fd)
    except OSError as error:
        raise StateUnwritable(f"{directory}: {error.strerror}") from error
    return "made it private (mode 0700)"


def _try_writing(directory: str) -> None:
    # Asking for the rights won't do: root has them on a read-only file system too.
    try:
        fd, path = tempfile.mkstemp(prefix=".leasectl-write-", dir=directory)
    except OSError as error:
        raise StateUnwritable(f"{directory} can't be written: {error.strerror}") from error
    os.close(fd)
    os.unlink(path)


def state_lock(directory: str, patience_seconds: float = LOCK_PATIENCE_SECONDS) -> Finding:
    """Is ``state.lock`` free now and then? A stopped process may hold it for ever."""
    path = os.path.join(directory, "state.lock")
    try:
        fd = open_own(path, os.O_RDWR)
    except FileNotFoundError:
        return ok("none yet; the first command creates it")
    except OSError as error:
        advice = "make it readable and writable for you; if it is another user's, move it away"
        return fail(f"{path}: {error.strerror}", advice, exit_code=73)
    try:
        if flock_within(fd, patience_seconds):
            return ok(f"{path} is free")
        return _stuck(path, fd)
    finally:
        os.close(fd)


def _stuck(path: str, fd: int) -> Finding:
    holders = holders_of(fd)
    who = f" by process {', '.join(holders)}" if holders else ""
    return fail(
        f"one process keeps {path} locked{who}",
        "if that process is stopped, continue it with kill -CONT, or end it",
    )


def database(state: State) -> Finding:
    """Is the database sound?"""
    path = state.path("state.db")
    found = examine(state)
    if found.problem is not None:
        raise CorruptState(
            f"{path} is damaged ({found.problem}); if no job here still needs its leases, start "
            f"again with: mv {state.directory} {state.directory}.damaged"
        )
    size = os.path.getsize(path) >> 10
    what = f"sound, {size} KiB, format {found.format}"
    if found.journal_mode != "wal":
        return warn(
            f"{what}, but its journal mode is {found.journal_mode}",
            "move it to a local file system; SQLite's write-ahead log works only there",
        )
    return ok(f"{what}, SQLite {sqlite3.sqlite_version}")


def unknown_files(state: State, temporary: str) -> Finding:
    """Are there files that no record knows, also in the folder of temporary files?"""
    with state.transaction():
        stale = list(_stale_files(state, temporary))
    if not stale:
        return ok("every file has a record")
    return warn(
        f"{counted(len(stale), 'file')} without a record: {listed(stale)}",
        "run: leasectl doctor --fix",
        mend=lambda: _remove_stale(state, temporary),
    )


def _remove_stale(state: State, temporary: str) -> str:
    removed = []
    with state.transaction():
        for path in _stale_files(state, temporary):
            try:
                unlink(path)
            except OSError as error:
                raise StateUnwritable(f"can't remove {path}: {error.strerror}") from error
            removed.append(path)
    return f"removed {counted(len(removed), 'file')}"


def _stale_files(state: State, temporary: str) -> Iterator[str]:
    """List stale files inside a transaction, so that no other process is making one."""
    known = Handles(state).ids()
    names: set[str] = set()
    with contextlib.suppress(FileNotFoundError):  # it is made anew by the next who needs it
        names.update(os.listdir(state.path("handles")))
    for name in sorted(names.difference(known)):
        found = _HANDLE_FILE.fullmatch(name)
        if found is None:
            continue
        path = state.path("handles", name)
        handle_id, ending = found.groups()
        if ending == ".new" or (handle_id not in known and not _is_locked(path)):
            yield path
    yield from pipes.unused(state)
    yield from _shell_pipes(temporary)


def _shell_pipes(folder: str) -> Iterator[str]:
    """Find the pipes of `lease__acquire` in shells that were killed while they opened one.

    A shell that lives needs its pipe's name for a few milliseconds.
    """
    with contextlib.suppress(OSError):
        for name in filter(_SHELL_PIPE.fullmatch, sorted(os.listdir(folder))):
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                found = os.lstat(path)
                is_old = time.time() - found.st_mtime > _SHELL_PIPE_SECONDS
                if stat.S_ISFIFO(found.st_mode) and found.st_uid == os.geteuid() and is_old:
                    yield path


def _is_locked(path: str) -> bool:
    """A lock that a script still holds must keep its name."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except OSError:
        return True
    finally:
        os.close(fd)
