"""The names files, which scripts read: changed together with the database, or not at all.

They change under ``state.lock``, right after the commit that they belong to: before the first one
is touched, ``state.lock`` itself notes which, and the note goes when all are done. Whoever finds a
note there knows that its writer was killed half-way and writes those files anew from the records.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence

from leasectl.errors import StateUnwritable
from leasectl.state.database import make_folder, unlink
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

_NOTE_MARK = b"+"


class _Occupied(StateUnwritable):
    """Where a names file belongs is a folder."""


class NamesFiles:
    """The names files of one state directory.

    All but `path`, `stage`, `unstage`, `is_there` and `are_changing` needs ``state.lock``.

    Args:
        directory: The state directory.
        lock_fd: ``state.lock``, open for reading and writing.
        db: The database.

    Attributes:
        are_left: To change the database alone: another directory may be where these files were.
    """

    def __init__(self, directory: str, lock_fd: int, db: sqlite3.Connection) -> None:
        self._directory = directory
        self._lock_fd = lock_fd
        self._db = db
        self._staged: dict[str, Sequence[str] | None] = {}
        self.are_left = False

    def path(self, handle_id: str) -> str:
        """The path that scripts know the handle by."""
        return f"{self._directory}/handles/{handle_id}"

    def stage(self, handle_id: str, names: Sequence[str] | None) -> None:
        """Have a file say this from the next commit on; None removes it, if it is there."""
        if names is None and handle_id not in self._staged and not self.is_there(handle_id):
            return
        if not self.are_left:
            self._staged[handle_id] = names

    def is_there(self, handle_id: str) -> bool:
        """Tell whether something has the path that scripts know the handle by."""
        return os.path.lexists(self.path(handle_id))

    def unstage(self) -> None:
        """Forget what was staged."""
        self._staged.clear()

    def commit(self) -> None:
        """Commit the database's transaction, and put in place what was staged.

        Raises:
            OSError, sqlite3.Error: Neither has happened.
        """
        if not self._staged:
            self._db.execute("COMMIT")
            return
        try:
            self._note(self._staged)
            prepared = {h: self._prepare(h, names) for h, names in self._staged.items()}
            self._db.execute("COMMIT")
        except BaseException:
            self.finish_for_the_dead()
            raise
        for handle_id, temporary in prepared.items():
            self._put_in_place(handle_id, self._staged[handle_id], temporary)
        os.pwrite(self._lock_fd, b"\0", 0)

    def _note(self, handle_ids: Iterable[str]) -> None:
        """Note in ``state.lock`` whose names files are about to change."""
        note = _NOTE_MARK + "\n".join(handle_ids).encode() + b"\0"
        if os.pwrite(self._lock_fd, note, 0) != len(note):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self._directory}/state.lock")

    def _prepare(self, handle_id: str, names: Sequence[str] | None) -> str | None:
        """Do before the commit what may fail: writing, and making a file that isn't there yet.

        Returns:
            The file that is to replace the names file; None when there is none.
        """
        if names is None:
            return None
        path = self.path(handle_id)
        fd = _open_new(path)
        temporary = None
        if fd is None and not names and _can_be_emptied(path):
            return None
        if fd is None and os.path.isdir(path):
            _make_room(path)
            fd = _open_new(path)
        if fd is None:
            temporary = path + ".new"
            unlink(temporary)
            fd = _open_new(temporary)
            assert fd is not None
        try:
            text = content(names)
            if os.write(fd, text) != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary or path)
        finally:
            os.close(fd)
        return temporary

    def _put_in_place(
        self, handle_id: str, names: Sequence[str] | None, temporary: str | None
    ) -> None:
        path = self.path(handle_id)
        if temporary is not None:
            os.rename(temporary, path)
        elif not names:
            # A folder that somebody has put there lists nothing.
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                if names is None:
                    os.unlink(path)
                else:
                    os.truncate(path, 0)

    @property
    def are_changing(self) -> bool:
        """Whether a writer is about to put some in place, or was killed then; without the lock."""
        return os.pread(self._lock_fd, 1, 0) == _NOTE_MARK

    def finish_for_the_dead(self) -> None:
        """Write the names files anew that a killed writer may have left half-way."""
        if not self.are_changing:
            return
        # A writer killed while it noted has changed nothing yet; what it left may lack its end.
        note = os.pread(self._lock_fd, os.fstat(self._lock_fd).st_size, 1).partition(b"\0")[0]
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        for handle_id in note.decode().split():
            unlink(self.path(handle_id) + ".new")
            known = self._db.execute("SELECT 1 FROM handle WHERE id = ?", (handle_id,)).fetchone()
            rows = self._db.execute(
                "SELECT name FROM lease WHERE handle = ? ORDER BY position", (handle_id,)
            ).fetchall()
            names = [name for (name,) in rows] if known else None
            if names is None or not self._lists(handle_id, names):
                with contextlib.suppress(_Occupied):
                    self._put_in_place(handle_id, names, self._prepare(handle_id, names))
        os.pwrite(self._lock_fd, b"\0", 0)

    def _lists(self, handle_id: str, names: Sequence[str]) -> bool:
        """Tell whether a names file is as it should be; then a full disk doesn't matter."""
        try:
            with open(self.path(handle_id), "rb") as file:
                return file.read() == content(names)
        except OSError:
            return False


def content(names: Sequence[str]) -> bytes:
    """What the file of a handle that holds these has in it."""
    return "\n".join(names).encode()


def _can_be_emptied(path: str) -> bool:
    """Tell whether there needs to be no other in its place: a script may have made it read-only."""
    return os.access(path, os.W_OK) or not os.path.isfile(path)


def _make_room(path: str) -> None:
    """Remove a folder that is where a names file belongs, if it is empty."""
    try:
        os.rmdir(path)
    except OSError:
        raise _Occupied(f"{path} is a folder, and a handle's file belongs there; move it") from None


def _open_new(path: str) -> int | None:
    """Make a file and open it for writing; None when it is there already.

    Who cleans /tmp may have removed its folder, if that was empty.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        return None
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
        return os.open(path, flags, 0o600)
