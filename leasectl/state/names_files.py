"""The names files that scripts read.

They change under ``state.lock``, right after the commit that they belong to. A note in
``state.lock`` says which. Before the commit, the new content is written to ``<handle>.new`` and
nothing else is touched; after it, these files are renamed to their places.

===========================  =========  ============  ====================================
a writer is killed           note       the files     the next writer
===========================  =========  ============  ====================================
before the note is complete  cut short  of before     finds nothing changed
before the commit            complete   of before     removes ``.new`` files
after the commit             complete   old and new   writes those of the records, as they
                                                      are after the commit
after the last file          complete   new           finds nothing to write
after the note is cleared    cleared    new           doesn't look
===========================  =========  ============  ====================================

The records decide, so a name in the note that is damaged or isn't a handle's is passed over. What
can't be put in place after the commit (a folder has the name, the disk fails) stays as it is: it
neither fails the command, which has done its work, nor stops the next one. ``doctor`` finds it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leasectl.errors import StateUnwritable
from leasectl.state.database import make_folder
from leasectl.system.own_files import open_own, read_own, write_new
from leasectl.text.naming import is_name

if TYPE_CHECKING:
    import sqlite3

_NOTE_MARK = b"+"
# Longer than the note of any command; a damaged file may have any size.
_LONGEST_NOTE_BYTES = 4 << 20


class _Occupied(StateUnwritable):
    """A folder has the name of a names file."""


class NamesFiles:
    """The names files of one state directory.

    All but `path`, `stage`, `unstage`, `is_there` and `are_changing` needs ``state.lock``.

    Args:
        directory: The state directory.
        dir_fd: The same, open.
        lock_fd: ``state.lock``, open for reading and writing.
        db: The database.

    Attributes:
        are_left: To change the database alone: another directory may be where these files were.
    """

    def __init__(self, directory: str, dir_fd: int, lock_fd: int, db: sqlite3.Connection) -> None:
        self._directory = directory
        self._dir_fd = dir_fd
        self._lock_fd = lock_fd
        self._db = db
        self._staged: dict[str, Sequence[str] | None] = {}
        self.are_left = False

    def path(self, handle_id: str) -> str:
        """The path that scripts know the handle by."""
        return f"{self._directory}/handles/{handle_id}"

    def stage(self, handle_id: str, names: Sequence[str] | None) -> None:
        """Stage a file's content for the next commit; None removes it."""
        if names is None and handle_id not in self._staged and not self.is_there(handle_id):
            return
        if not self.are_left:
            self._staged[handle_id] = names

    def is_there(self, handle_id: str) -> bool:
        """Return whether the handle's path exists."""
        return os.path.lexists(self.path(handle_id))

    def unstage(self) -> None:
        """Forget what was staged."""
        self._staged.clear()

    def commit(self) -> None:
        """Commit the database's transaction, and put the staged files in place.

        Raises:
            OSError, StateUnwritable, sqlite3.Error: Neither has happened.
        """
        if not self._staged:
            self._db.execute("COMMIT")
            return
        try:
            self._note(self._staged)
            for handle_id, names in self._staged.items():
                self._prepare(handle_id, names)
            self._db.execute("COMMIT")
        except BaseException:
            self.finish_for_the_dead()
            raise
        for handle_id, names in self._staged.items():
            self._put_in_place(handle_id, names)
        self._clear_note()

    def _note(self, handle_ids: Iterable[str]) -> None:
        """Note in ``state.lock`` which handles' names files are about to change."""
        note = _NOTE_MARK + "\n".join(handle_ids).encode() + b"\0"
        if os.pwrite(self._lock_fd, note, 0) != len(note):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{self._directory}/state.lock")

    def _clear_note(self) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._lock_fd, b"\0", 0)

    def _prepare(self, handle_id: str, names: Sequence[str] | None) -> None:
        """Do before the commit what may fail: write the file that will replace the names file.

        An empty one may be missing: a full disk must not prevent a release.
        """
        if names is None:
            return
        try:
            self._write_new(handle_id, names)
        except OSError as error:
            if names:
                path = f"{self.path(handle_id)}.new"
                raise OSError(error.errno, error.strerror, path) from error
        if names and os.path.isdir(path := self.path(handle_id)):
            try:
                os.rmdir(path)
            except OSError:
                raise _Occupied(
                    f"{path} is a folder, and a handle's file belongs there; move it"
                ) from None

    def _write_new(self, handle_id: str, names: Sequence[str]) -> None:
        temporary = f"handles/{handle_id}.new"
        try:
            write_new(temporary, content(names), dir_fd=self._dir_fd)
        except FileNotFoundError:  # a cleaner of /tmp has removed the empty folder
            make_folder(f"{self._directory}/handles")
            write_new(temporary, content(names), dir_fd=self._dir_fd)

    def _put_in_place(self, handle_id: str, names: Sequence[str] | None) -> None:
        """After the commit, give a names file its new content, as far as that is possible."""
        path = f"handles/{handle_id}"
        try:
            if names is None:
                os.unlink(path, dir_fd=self._dir_fd)
            else:
                os.rename(f"{path}.new", path, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        except FileNotFoundError:
            if names is not None and not names:
                self._empty(path)
        except OSError:
            self._remove_new(handle_id)

    def _empty(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.close(open_own(path, os.O_WRONLY | os.O_TRUNC, dir_fd=self._dir_fd))

    def _remove_new(self, handle_id: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(f"handles/{handle_id}.new", dir_fd=self._dir_fd)

    @property
    def are_changing(self) -> bool:
        """Return whether a writer is putting files in place, or was killed then; needs no lock."""
        return os.pread(self._lock_fd, 1, 0) == _NOTE_MARK

    def finish_for_the_dead(self) -> None:
        """Write the names files again that a killed writer may have left half-way."""
        if not self.are_changing:
            return
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        for handle_id in self._noted():
            self._remove_new(handle_id)
            known = self._db.execute("SELECT 1 FROM handle WHERE id = ?", (handle_id,)).fetchone()
            rows = self._db.execute(
                "SELECT name FROM lease WHERE handle = ? ORDER BY position", (handle_id,)
            ).fetchall()
            names = [name for (name,) in rows] if known else None
            if names is None or not self._lists(handle_id, names):
                with contextlib.suppress(OSError, _Occupied):
                    self._prepare(handle_id, names)
                    self._put_in_place(handle_id, names)
        self._clear_note()

    def _noted(self) -> list[str]:
        """Return the ids in the note; in a note that was cut short, the last may be incomplete."""
        length = min(os.fstat(self._lock_fd).st_size, _LONGEST_NOTE_BYTES)
        note = os.pread(self._lock_fd, length, 1).partition(b"\0")[0]
        return [each for each in note.decode(errors="replace").split("\n") if is_name(each)]

    def _lists(self, handle_id: str, names: Sequence[str]) -> bool:
        """Return whether a names file is as it should be; then a full disk doesn't matter."""
        expected = content(names)
        try:
            said = read_own(f"handles/{handle_id}", len(expected) + 1, dir_fd=self._dir_fd)
        except OSError:
            return False
        return said == expected


def content(names: Sequence[str]) -> bytes:
    """Return the content of the names file of a handle that holds these names."""
    return "\n".join(names).encode()
