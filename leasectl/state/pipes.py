"""Named pipes, by which another process ends a sleep; what killed waiters left."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from leasectl.state.database import errors_of, make_folder, unlink
from leasectl.state.directory import State
from leasectl.system.process import DeadProcesses


class NamedPipe:
    """A pipe that others open and close to wake its reader.

    The hang-up of a writer is the wake-up. It stays until the descriptor is renewed, and a renewed
    descriptor no longer sees writers that were there before. So look at the database after the
    renewal, not before.

    Args:
        path: Where it is.
        shared: Others may read it as well: each of them is woken, and none removes it.
    """

    def __init__(self, path: str, *, shared: bool = False) -> None:
        self.path = path
        self._shared = shared
        self.fd = self._make()

    def _make(self) -> int:
        while True:
            try:
                os.mkfifo(self.path, 0o600)
            except FileExistsError:
                if not self._shared:
                    self._make_room()
                    continue
            try:
                return self._open()
            except FileNotFoundError:
                continue  # removed by a process that took it for a dead one's: it had no reader yet

    def _open(self) -> int:
        return os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def renew(self) -> None:
        """Get ready for the next wake-up.

        The new descriptor is open before the old one closes: at no instant may a writer find the
        pipe without a reader. A pipe that was removed isn't opened again, as no writer will open it
        and its owner is about to read the database; but a shared one is created again. The
        descriptor keeps its number, since the caller polls it.
        """
        try:
            fresh = self._make() if self._shared else self._open()
        except FileNotFoundError:
            return
        os.dup2(fresh, self.fd, inheritable=False)
        os.close(fresh)

    def is_in_place(self) -> bool:
        """Tell whether who opens a pipe of that name opens this one."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.fd))

    def remove(self) -> None:
        """Take it out of its folder: who opens a pipe of that name from here on finds another.

        One that another process has put in its place since stays.
        """
        if self.is_in_place():
            self._make_room()

    def restore(self) -> None:
        """Put it back after all, instead of whatever has its name by now."""
        self._make_room()
        os.mkfifo(self.path, 0o600)
        self.renew()

    def close(self) -> None:
        """Close it for good, and take it out of its folder unless others may read it."""
        if not self._shared:
            self.remove()
        os.close(self.fd)

    def _make_room(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def is_read(path: str) -> bool:
    """Tell whether a named pipe has a reader, who wakes by the question."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in (errno.ENXIO, errno.ENOENT)
    return True


_LISTENING = (
    "SELECT id, acquisition, runner IS NOT NULL, state = 'acquiring' FROM handle "
    "WHERE state <> 'released' AND (runner IS NOT NULL OR state = 'acquiring')"
)


def listen(path: str) -> NamedPipe:
    """Create a named pipe in the folder, and the folder if it was removed.

    Raises:
        StateUnwritable: That fails.
    """
    with errors_of(path):
        try:
            return NamedPipe(path)
        except FileNotFoundError:
            make_folder(os.path.dirname(path))
            return NamedPipe(path)


def tidy(state: State) -> None:
    """Remove the named pipes that killed waiters and runners left."""
    for path in unused(state):
        unlink(path)


def unused(state: State) -> Iterator[str]:
    """Find the named pipes without a reader.

    Pipes that belong to a record aren't opened: it would wake their readers.
    """
    try:
        names = sorted(os.listdir(state.path("waiters")))
    except FileNotFoundError:
        return
    used = _on_record(state) if names else set()
    for name in names:
        path = state.waiter_pipe(name)
        # A pipe may have a reader before its record is written.
        if path not in used and not is_read(path):
            yield path


def _on_record(state: State) -> set[str]:
    """Return the paths of the pipes that belong to a record."""
    used = {state.waiter_pipe(pipe) for (pipe,) in state.query("SELECT pipe FROM ticket")}
    for handle_id, acquisition, is_run, is_acquired in state.query(_LISTENING):
        if is_run:
            used.add(state.runner_pipe(handle_id))
        if is_acquired:
            used.add(state.cancel_pipe(handle_id, acquisition))
    return used


# SQLite returns one text of thousands in half the time of their rows.
_FOLLOWED = (
    "SELECT group_concat(id, '\n'), group_concat(coalesce(guard, ''), '\n'), "
    "group_concat(coalesce(waiter, ''), '\n') FROM handle WHERE state <> 'released' "
    "AND (guard IS NOT NULL OR waiter IS NOT NULL)"
)
_WATCHED = _FOLLOWED.replace("state <>", "watched = 1 AND state <>")


def ids_of_the_dead(
    state: State, *, only_watched: bool = False, most_looked_at: int | None = None
) -> list[str]:
    """Return the ids of handles that aren't released and have a dead guard or a dead waiter.

    Each process is looked at once: one may guard many handles. The record may change before the
    caller reads it.

    Args:
        state: The opened state directory.
        only_watched: Only handles that a keeper looks after.
        most_looked_at: See `DeadProcesses`.
    """
    (texts,) = state.query(_WATCHED if only_watched else _FOLLOWED)
    if texts[0] is None:
        return []
    ids, guards, waiters = (text.split("\n") for text in texts)
    dead = DeadProcesses(most_looked_at=most_looked_at)
    gone = {each for each in dict.fromkeys(guards + waiters) if _is_in(dead, each)}
    rows = zip(ids, guards, waiters) if gone else ()
    return sorted(each for each, guard, waiter in rows if guard in gone or waiter in gone)


def _is_in(dead: DeadProcesses, process: str) -> bool:
    try:
        return process != "" and process in dead
    except ValueError:
        return True  # the reader of the record reports what is wrong with it
