"""A pipe by which another process ends a sleep."""

from __future__ import annotations

import contextlib
import errno
import os

from leasectl.state.database import errors_of, make_folder


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
