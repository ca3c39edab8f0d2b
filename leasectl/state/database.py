"""Open the directory, the lock file and the database; reserve fences in blocks.

A block is noted in the lock file and in the database, so that no fence is given twice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from leasectl.errors import CorruptState, LeaseError, StateUnwritable, is_out_of_files, out_of_files
from leasectl.system.lock_wait import LockLimit, flock_exclusive
from leasectl.system.own_files import open_own
from leasectl.system.process import boot_id

# docs/dev/state-format.md describes the format.
FORMAT = 1
APPLICATION_ID = 0x6C734331  # "lsC1"
EARLIER_APPLICATION_ID = 0x6C656173  # "leas", before format 1
# A process with so many transactions checkpoints less often; few commands make so many.
TRANSACTIONS_OF_MANY = 16
# Errors of SQLite. Its message may quote a damaged table in bytes that Python can't decode.
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
_FILES_OF_SQLITE = 3  # the database, its log, the index of that


def connect(path: str, *, dir_fd: int, alone: bool = False) -> sqlite3.Connection:
    """Open an existing database.

    Args:
        path: Of the database.
        dir_fd: The state directory, as it was checked.
        alone: Let no other process open it meanwhile.

    Raises:
        CorruptState: It is damaged, no database of ours, or in an unknown format.
        StateUnwritable: The path leads to other files than those of the checked directory.
    """
    found = os.lstat(os.path.basename(path), dir_fd=dir_fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise StateUnwritable(
            f"{path} is not a regular file of user {os.geteuid()}; move it away, or choose "
            "another directory with LEASECTL_STATE_DIR"
        )
    if found.st_size == 0:
        raise corrupt(path, "is empty")
    # Not SQLite's limit, but Python's: a `State` is one thread's at a time, but not the same one's
    # for ever.
    db = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
    try:
        _prepare(path, db, alone=alone)
        require_opened(path, dir_fd, ("", "-wal") if alone else ("", "-wal", "-shm"))
    except BaseException:
        db.close()  # or it would block the next opening
        raise
    return db


def _prepare(path: str, db: sqlite3.Connection, *, alone: bool) -> None:
    if alone:
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
    application_id = db.execute("PRAGMA application_id").fetchone()[0]
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if (application_id, version) != (APPLICATION_ID, FORMAT):
        raise _unknown_format(path, application_id, version)
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA synchronous = NORMAL")
    # Small: the first process that opens the database again reads the whole log.
    db.execute("PRAGMA wal_autocheckpoint = 1000")


def let_log_grow(db: sqlite3.Connection) -> None:
    """Checkpoint the log a third as often, in a process that changes the database often.

    A checkpoint waits for the disk three times, while no other process has the lock. Short commands
    checkpoint as early as ever, including what such a process has left.

    Args:
        db: With a log of up to three MiB from here on: `event_rows` leaves room for that.
    """
    db.execute("PRAGMA wal_autocheckpoint = 3000")


def expect_to_read_all(db: sqlite3.Connection) -> None:
    """Enlarge the cache to 16 MiB, for reading thousands of records twice."""
    db.execute("PRAGMA cache_size = -16384")


def require_opened(path: str, dir_fd: int, endings: Sequence[str]) -> None:
    """Check that SQLite has opened the files of the checked directory.

    SQLite opens files only by their absolute path: it resolves /proc/self/fd/N. So another user who
    may rename a folder above could have put other files there in between. This can't be seen if
    there is no /proc, or if this process has the right files open for another reason.

    Args:
        path: Of the database.
        dir_fd: The state directory, as it was checked.
        endings: Of the names of its files, as far as they exist.

    Raises:
        StateUnwritable: At least one isn't open in this process.
    """
    opened = set()
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return
    for fd in descriptors:
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found = os.fstat(int(fd))
            opened.add((found.st_dev, found.st_ino))
    for ending in endings:
        with contextlib.suppress(FileNotFoundError):
            found = os.lstat(os.path.basename(path) + ending, dir_fd=dir_fd)
            if (found.st_dev, found.st_ino) not in opened:
                raise StateUnwritable(
                    f"{path}{ending} was replaced while it was opened; see who can write to the "
                    "directories above it, or choose another directory with LEASECTL_STATE_DIR"
                )


def connect_to_show(path: str, *, dir_fd: int) -> sqlite3.Connection:
    """Open a database for a moment, to show its content, also on a full disk.

    If SQLite can't create the file that all its users share, no other process can have it open.

    Raises:
        CorruptState: See `connect`.
    """
    try:
        db = connect(path, dir_fd=dir_fd)
    except sqlite3.OperationalError:
        db = connect(path, dir_fd=dir_fd, alone=True)
    expect_to_read_all(db)
    return db


def corrupt(path: str, what: str) -> CorruptState:
    """Return the error for a damaged database, with the next step."""
    folder = os.path.dirname(path)
    return CorruptState(
        f"{path} {what}; if its leases are no longer needed, start again with: mv {folder} "
        f"{folder}.damaged"
    )


def _unknown_format(path: str, application_id: int, version: int) -> CorruptState:
    """Return the error for a database in another format.

    Args:
        path: Of the database.
        application_id: From its header.
        version: From its header; the format, if the application id is ours.
    """
    if application_id == EARLIER_APPLICATION_ID:
        return corrupt(path, "was written before format 1, which no released version can read")
    if application_id != APPLICATION_ID or version < FORMAT:
        return corrupt(path, "is not a leasectl database")
    return CorruptState(
        f"{path} was written by a newer version of leasectl (format {version}, this one reads "
        f"{FORMAT}); use that version, or another LEASECTL_STATE_DIR"
    )


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Turn errors of SQLite and the file system into ours; the only place that does."""
    try:
        yield
    except DAMAGED as error:
        raise translate(path, error) from error
    except OSError as error:
        if is_out_of_files(error):
            raise out_of_files(error) from error
        if error.errno not in _UNWRITABLE:
            raise
        has_path = error.filename and error.filename != os.path.basename(path)
        where = error.filename if has_path else path
        do = "free some space there" if error.errno in _FULL else "make it writable"
        raise _unwritable(str(where), str(error.strerror), do) from error


def _unwritable(path: str, why: str, do: str) -> StateUnwritable:
    return StateUnwritable(
        f"can't write {path}: {why}; {do}, or choose another directory with LEASECTL_STATE_DIR"
    )


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


_UNWRITABLE = (
    *_FULL,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
)


def translate(path: str, error: Exception) -> LeaseError:
    """Turn an error of SQLite, one of `DAMAGED`, into one of ours."""
    message = str(error)
    # Python 3.9 and 3.10 give no error code with the exception, only SQLite's fixed texts.
    if "unable" in message:
        with errors_of(path):
            _open_some(path)
    if "full" in message or "readonly" in message or "disk I/O" in message or "unable" in message:
        do = "free some space there" if "full" in message else "make it writable"
        return _unwritable(path, message, do)
    if "locked" in message:
        return LeaseError(f"{path} is busy ({message}); try again")
    return corrupt(path, f"is damaged ({message})")


def _open_some(path: str) -> None:
    """Open as many files as SQLite needs, and close them: SQLite doesn't report a file limit."""
    opened: list[int] = []
    try:
        while len(opened) < _FILES_OF_SQLITE:
            opened.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in opened:
            os.close(fd)


def make_folder(path: str) -> None:
    """Create a folder of ours if it is missing: a cleaner of /tmp removes empty ones."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)


def unlink(path: str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def check_directory(directory: str) -> None:
    """Check an existing state directory, as `open_directory` does."""
    os.close(open_directory(directory, create=False))


def open_directory(directory: str, *, create: bool) -> int:
    """Open a state directory, and check that it is a private folder of ours.

    Args:
        directory: Its absolute path.
        create: Create it, for our user alone, if it is missing.

    Returns:
        A descriptor of the checked folder, for paths that start there.

    Raises:
        StateUnwritable: It is a symbolic link, no folder, another user's, open to others, or in a
            folder where any user can replace it; or its path has a line break.
    """
    if "\n" in directory:
        raise StateUnwritable(
            f"state directory {directory!r} has a line break in its path, which a handle can't "
            "have; choose another with LEASECTL_STATE_DIR"
        )
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # opens a link itself
    try:
        fd = os.open(directory, flags)
    except FileNotFoundError:
        if not create:
            raise StateUnwritable(f"state directory {directory} does not exist") from None
        with errors_of(directory):
            _make_directory(directory)
            fd = os.open(directory, flags)
    except OSError as error:
        if is_out_of_files(error):
            raise out_of_files(error) from error
        raise StateUnwritable(
            f"state directory {directory}: {error.strerror}; choose another with LEASECTL_STATE_DIR"
        ) from None
    try:
        found = os.fstat(fd)
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours or found.st_mode & 0o077:
            raise unfit(directory, found)
        with contextlib.suppress(PermissionError):
            check_parent(directory, os.stat("..", dir_fd=fd))
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_parent(directory: str, parent: os.stat_result) -> None:
    """Check that no other user can replace a state directory, given the status of its parent."""
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        import shlex

        where = os.path.dirname(directory)
        raise StateUnwritable(
            f"state directory {directory} can be replaced by any user, as {where} is writable for "
            f"all without the sticky bit (mode {stat.S_IMODE(parent.st_mode):04o}); run: chmod +t "
            f"{shlex.quote(where)}, or choose another with LEASECTL_STATE_DIR"
        )


def _make_directory(directory: str) -> None:
    try:
        check_parent(directory, os.stat(os.path.dirname(directory)))
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(directory)):
            raise  # as in /proc, where no process can create a folder
        raise no_parent(directory) from None


def absolute(directory: str) -> str:
    """Return the absolute path of a state directory, whatever folder this process goes to.

    Raises:
        StateUnwritable: It is relative to a folder that is gone.
    """
    try:
        return os.path.abspath(directory)
    except FileNotFoundError:
        raise StateUnwritable(
            f"state directory {directory} is in the current directory, which was removed; "
            "go to another, or name it by an absolute path in LEASECTL_STATE_DIR"
        ) from None


# Room for a note (`names_files`), and at the end for the state of `fences`: a mark, the last drawn
# fence, and the last of the block, 0 if a new block is needed.
_LOCK_BYTES = 8192
_FENCES_AT = _LOCK_BYTES - 64
_FENCES = struct.Struct("<8sQQ")
_FENCES_MARK = b"fences 1"
_LARGEST_FENCE = 1 << 62


def open_lock(directory: str, dir_fd: int, limit: LockLimit, *, create: bool = True) -> int:
    """Open ``state.lock`` with all its space allocated: a write must not need space on a full disk.

    Args:
        directory: The state directory.
        dir_fd: The same, as it was checked.
        limit: How long to wait for it.
        create: Create the file if there is none.
    """
    with errors_of(os.path.join(directory, "state.lock")):
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        fd = open_own("state.lock", flags, dir_fd=dir_fd)
        try:
            if os.fstat(fd).st_size < _LOCK_BYTES:
                flock_exclusive(fd, limit)
                size = os.fstat(fd).st_size
                if size < _LOCK_BYTES:  # keep a note that is there
                    os.pwrite(fd, bytes(_LOCK_BYTES - size), size)
                fcntl.flock(fd, fcntl.LOCK_UN)
        except BaseException:
            os.close(fd)
            raise
        return fd


def drawn(lock_fd: int) -> tuple[int, int]:
    """Return the last drawn and the last reserved fence; zeros if the lock file has none.

    Numbers that are too large for the database are damaged, and count as missing.
    """
    found = os.pread(lock_fd, _FENCES.size, _FENCES_AT)
    # A very long note may have overwritten it.
    if not found.startswith(_FENCES_MARK):
        return 0, 0
    _, last, end = _FENCES.unpack(found)
    return (last, end) if max(last, end) <= _LARGEST_FENCE else (0, 0)


def note_drawn(lock_fd: int, last: int, end: int) -> None:
    os.pwrite(lock_fd, _FENCES.pack(_FENCES_MARK, last, end), _FENCES_AT)


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
        f"{where} is open to others (mode {mode:04o}); choose {other[10:]}, "
        f"or if only leasectl uses it, run: chmod 700 {directory}"
    )


def no_parent(directory: str) -> StateUnwritable:
    """Return the error for a path whose parent is missing: only its last part is created."""
    import shlex

    parent = os.path.dirname(directory)
    return StateUnwritable(
        f"can't create state directory {directory}: no directory {parent}; create it with: mkdir "
        f"-p {shlex.quote(parent)}, or choose another with LEASECTL_STATE_DIR"
    )


# Writing back takes as long as about ten grants, or a hundred on a slow disk.
FENCE_BLOCK = 1000
_WRITE_BACK_PATIENCE_MS = 100


def reserve_first_fences(lock_fd: int) -> int:
    """Reserve a block of fences for a new database, and return the last one."""
    last = max(drawn(lock_fd))  # of an earlier database in this place
    note_drawn(lock_fd, last, last + FENCE_BLOCK)
    return last + FENCE_BLOCK


def reserve_fences(db: sqlite3.Connection, last: int) -> int:
    """Reserve a block of fences, inside a transaction after which `write_back` is called.

    Returns:
        The last fence of the block.
    """
    end = last + FENCE_BLOCK
    db.execute("UPDATE meta SET fence = ?", (end,))
    return end


def write_back(db: sqlite3.Connection) -> bool:
    """Write all that is committed to the database's main file; outside any transaction.

    Returns:
        Whether that worked: a long reader or a full disk may prevent it.
    """
    try:
        ((before,),) = db.execute("PRAGMA busy_timeout").fetchall()
        db.execute(f"PRAGMA busy_timeout = {_WRITE_BACK_PATIENCE_MS}")
        try:
            ((busy, _, _),) = db.execute("PRAGMA wal_checkpoint(FULL)").fetchall()
        finally:
            db.execute(f"PRAGMA busy_timeout = {before}")
    except sqlite3.Error:
        return False
    return not busy


_FORGET = (
    "UPDATE timer SET due = 0",
    "UPDATE resource SET expires_at = 0 WHERE expires_at IS NOT NULL",
    "UPDATE handle SET released_at = 0 WHERE released_at IS NOT NULL",
    "UPDATE handle SET queued_at = NULL WHERE queued_at IS NOT NULL",
    "UPDATE handle SET granted_at = NULL WHERE granted_at IS NOT NULL",
    "UPDATE pool_setting SET paid_until = 0",
    "DELETE FROM ranked_ticket",
    "UPDATE member SET ends_at = 0 WHERE ends_at IS NOT NULL",
    "UPDATE mark_seen SET ends_at = 0",
    "UPDATE name_in_use SET until = 0 WHERE until IS NOT NULL",
    "UPDATE member SET held_back_until = 0 WHERE held_back_until IS NOT NULL",
)


def note_boot(db: sqlite3.Connection) -> None:
    """After a reboot, let everything be due at once that was due at some uptime; in a transaction.

    No waiter and no holder of a lease with a ttl has survived the reboot, and a pool owes no time
    for its earlier grants.
    """
    db.execute("UPDATE meta SET boot_id = ?", (boot_id(),))
    for statement in _FORGET:
        db.execute(statement)
