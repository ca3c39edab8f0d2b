"""The state directory and its transactions.

Writers queue in the kernel, on ``state.lock``; the lock is held around one transaction and never
while waiting for anything else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from leasectl.errors import StateUnwritable
from leasectl.state.database import (
    DAMAGED,
    TRANSACTIONS_OF_MANY,
    absolute,
    connect,
    connect_to_show,
    drawn,
    errors_of,
    let_log_grow,
    note_boot,
    note_drawn,
    open_directory,
    open_lock,
    reserve_fences,
    reserve_first_fences,
    translate,
    write_back,
)
from leasectl.state.event_rows import EventRows, leaves_room
from leasectl.state.names_files import NamesFiles
from leasectl.system.lock_wait import LockLimit, flock_exclusive
from leasectl.system.poll import READABLE, Interrupt
from leasectl.system.process import (
    boot_id,
    is_in_first_pid_namespace,
    own_pid_namespace,
    use_namespace_locks_of,
)

if TYPE_CHECKING:
    from leasectl.state.named_pipe import NamedPipe
    from leasectl.system.file_watch import FileWatch


class State:
    """An open state directory, for one thread at a time; not to be used across a fork.

    Attributes:
        directory: Its absolute path.
        db: The database, in autocommit mode; read through it freely, write in `transaction`.
        events: The events of the transaction, to be written with it.
        is_changing: This is inside a transaction, the last of so many `transactions`.
        names_files: The names files, which are staged by `stage_names`.
        on_close: Called by `close`.
        lock_limit: How long this process waits for locks.
    """

    def __init__(
        self,
        directory: str,
        dir_fd: int,
        lock_fd: int,
        db: sqlite3.Connection,
        limit: LockLimit,
        db_file: os.stat_result,
    ) -> None:
        self.directory = directory
        self.lock_limit = limit
        self.db = db
        self._db_path = os.path.join(directory, "state.db")
        self._db_file = db_file
        self._dir_fd, self._lock_fd = dir_fd, lock_fd
        self._removal_watch: FileWatch | None = None
        self.is_changing = False
        self.transactions = 0
        # Reused: a new generator for each transaction would take a tenth of its time.
        self._whole, self._part = _Transaction(self), nullcontext(db)
        self._wakers: list[int] = []
        self._soft_limit: int | None = None  # on open files, while it is raised
        self._woken: set[str] = set()  # so that each waiter is woken once
        self._is_to_write_back, self._reserved, self._last_drawn = False, 0, 0
        self.names_files = NamesFiles(directory, dir_fd, lock_fd, db)
        self.events = EventRows(db, lock_fd)
        self.on_close: list[Callable[[], None]] = []

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        to_show: bool = False,
        create: bool = True,
        lock_limit: LockLimit | None = None,
    ) -> State:
        """Open the state directory, and create it if there is none.

        Args:
            directory: Its path.
            to_show: Only to show its content, as far as a full disk allows.
            create: Create what is missing, as a fresh command does; else it must exist.
            lock_limit: How long to wait for locks; None for a limit of its own.

        Raises:
            StateUnwritable: It can't be created or written, isn't ours, or isn't private.
            CorruptState: Its database is damaged or in an unknown format.
        """
        limit = lock_limit or LockLimit()
        directory = absolute(directory)
        path = os.path.join(directory, "state.db")
        if not create and not os.path.exists(os.path.join(directory, "state.lock")):
            raise removed(directory)
        with contextlib.ExitStack() as opened:
            dir_fd = open_directory(directory, create=create)
            opened.callback(os.close, dir_fd)
            lock_fd = open_lock(directory, dir_fd, limit, create=create)
            opened.callback(os.close, lock_fd)
            with errors_of(path):
                if not os.path.exists(path):
                    if not create:
                        raise removed(directory)
                    _create(path, lock_fd, limit)
                db = (connect_to_show if to_show else connect)(path, dir_fd=dir_fd)
                opened.callback(db.close)
                state = cls(directory, dir_fd, lock_fd, db, limit, os.stat(path))
            with contextlib.suppress(StateUnwritable) if to_show else contextlib.nullcontext():
                state._note_boot()
                state._remove_lock_of_earlier_namespace()
            opened.pop_all()
        use_namespace_locks_of(directory)
        return state

    def open_again(self) -> State:
        """Open the same directory once more, for another thread.

        Raises:
            StateUnwritable: It was removed or replaced.
        """
        again = State.open(self.directory, create=False)
        if self.has_lock_file(os.fstat(again._lock_fd)) and not self.was_removed():
            return again
        again.close()
        raise removed(self.directory)

    def close(self) -> None:
        """Close database and lock; only long-lived programs and tests need to."""
        for let_go in self.on_close:
            let_go()
        self.close_removal_watch()
        self.db.close()
        os.close(self._lock_fd)
        os.close(self._dir_fd)

    def path(self, *parts: str) -> str:
        return os.path.join(self.directory, *parts)

    def state_id(self) -> str:
        """Return the id of this state directory, unique among all machines."""
        return str(self.query("SELECT place FROM meta")[0][0])

    def names_path(self, handle_id: str) -> str:
        """Return the path that scripts know the handle by."""
        return self.names_files.path(handle_id)

    def waiter_pipe(self, name: str) -> str:
        """Return the named pipe that wakes a waiter with a ticket of the embedded pool."""
        return f"{self.directory}/waiters/{name}"

    @property
    def witness_pipe(self) -> str:
        """The named pipe that tells every keeper here that a waiter may have something to claim."""
        return f"{self.directory}/witness"

    def runner_pipe(self, handle_id: str) -> str:
        """Return the named pipe that tells the `run` of a handle that its leases are lost."""
        return self.waiter_pipe(f"{handle_id}.run")

    def cancel_pipe(self, handle_id: str, acquisition: int) -> str:
        """Return the named pipe that tells a remote acquisition to give up.

        Each acquisition has its own: the next may wait while the one before still ends.
        """
        return self.waiter_pipe(f"{handle_id}.{acquisition}.cancel")

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Change the database alone and at once; inside another transaction, be part of it.

        Staged names files are put in place right after the commit, under the same lock. Processes
        are woken when the lock is released, whatever happens to this process.

        Raises:
            StateUnwritable: The disk is full or read-only; nothing has changed.
            CorruptState: The database is damaged.
        """
        return self._part if self.is_changing else self._whole

    def _begin(self) -> None:
        self.is_changing = True
        self.transactions += 1
        if self.transactions == TRANSACTIONS_OF_MANY:
            let_log_grow(self.db)
        flock_exclusive(self._lock_fd, self.lock_limit)
        self.names_files.finish_for_the_dead()
        self.db.execute("BEGIN IMMEDIATE")

    def _commit(self) -> None:
        self.events.write(lambda pipe: self.wake(self.waiter_pipe(pipe)))
        self.names_files.commit()
        if self._is_to_write_back:
            self._write_back()

    def _undo(self, error: BaseException) -> None:
        with errors_of(self._db_path):
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")
            if isinstance(error, (sqlite3.Error, OSError)):
                raise error

    def _let_go(self) -> None:
        try:  # first, so that the next process can go on, whatever a signal raises here
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        finally:
            self.is_changing, self._is_to_write_back, self._reserved = False, False, 0
            self._woken.clear()
            while self._wakers:
                os.close(self._wakers.pop())
            self._restore_limit()
            self.names_files.unstage()
            self.events.clear()

    def was_removed(self) -> bool:
        """Return whether the lock or the database is gone, or isn't the file that was opened.

        If so, no other process sees what this one writes. From then on it changes only the
        database: the other files in the directory belong to other processes by now.
        """
        try:
            lock, db = os.lstat(self.path("state.lock")), os.lstat(self._db_path)
            is_removed = not (self.has_lock_file(lock) and os.path.samestat(db, self._db_file))
        except OSError as error:
            is_removed = error.errno in (errno.ENOENT, errno.ENOTDIR)
        self.names_files.are_left = self.names_files.are_left or is_removed
        return is_removed

    def removal_watch(self) -> FileWatch:
        """Return a watch, created once, that is readable when `was_removed` may be true."""
        if self._removal_watch is None:
            from leasectl.system.file_watch import FileWatch  # it loads ctypes

            paths = (self.path("state.lock"), self._db_path, self.directory)
            self._removal_watch = FileWatch(paths)
        return self._removal_watch

    def close_removal_watch(self) -> None:
        """Close the watch, until `removal_watch` is called again."""
        if self._removal_watch is not None:
            self._removal_watch.close()
            self._removal_watch = None

    def until_removed(self) -> tuple[Interrupt, ...]:
        """Return an interrupt that ends a wait with StateUnwritable if the directory is removed.

        Raises:
            StateUnwritable: It is already removed or replaced.
        """
        watch = self.removal_watch()

        def check() -> None:
            watch.clear()
            if self.was_removed():
                raise removed(self.directory)

        check()
        return () if watch.fd is None else (Interrupt(watch.fd, READABLE, check),)

    def has_lock_file(self, found: os.stat_result) -> bool:
        """Return whether a file is the ``state.lock`` that was opened here."""
        return os.path.samestat(found, os.fstat(self._lock_fd))

    def listen(self, pipe: str) -> NamedPipe:
        """Create the named pipe of a waiter or follower; see `named_pipe.listen`."""
        from leasectl.state.named_pipe import listen  # only waiters need it

        return listen(pipe)

    def wake(self, pipe: str) -> bool:
        """Wake the process that sleeps on a named pipe once this transaction has ended.

        The pipe is opened now and closed after the commit: the hang-up is the wake-up, also when
        this process is killed in between. A byte written then would be lost with its writer.

        Returns:
            Whether a process has that pipe open.
        """
        assert self.is_changing, "outside a transaction nobody would be woken"
        if pipe in self._woken:
            return True
        try:
            self._wakers.append(self._open_waker(pipe))
            self._woken.add(pipe)
        except OSError as error:
            if error.errno not in (errno.ENXIO, errno.ENOENT):  # no reader, or no pipe
                raise
            return False
        return True

    def _open_waker(self, pipe: str) -> int:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(pipe, flags)
        except OSError as error:
            if error.errno != errno.EMFILE or self._soft_limit is not None:
                raise
        # A change can wake thousands of waiters. Child processes keep the lower limit.
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._soft_limit = soft
        return os.open(pipe, flags)

    def _restore_limit(self) -> None:
        if self._soft_limit is not None:
            import resource

            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._soft_limit, hard))
            self._soft_limit = None

    def close_afterwards(self, fd: int) -> None:
        """Close a descriptor when this transaction, or else the next, has ended in any way."""
        self._wakers.append(fd)

    def stage_names(self, handle_id: str, names: Sequence[str] | None) -> None:
        """Write the handle's names file when the transaction commits; None removes it."""
        self.names_files.stage(handle_id, names)

    def draw_fences(self, count: int, reserved: int | None = None) -> range:
        """Draw fences that were never given out before, inside a transaction; see `reserve_fences`.

        They are reserved up to `meta.fence`, which isn't read again if this transaction has read
        it.
        """
        last, end = drawn(self._lock_fd)
        reserved = self.query("SELECT fence FROM meta")[0][0] if reserved is None else reserved
        if end != reserved or last + count > end:
            last = last if end == reserved else max(last, reserved)
            self._reserved, end = reserve_fences(self.db, last + count), 0
            self.write_back()
        self._last_drawn = last + count
        note_drawn(self._lock_fd, self._last_drawn, end)
        return range(last + 1, last + count + 1)

    def write_back(self) -> None:
        """Write this transaction's changes to the database's main file, since its log may get lost.

        This is done after the commit. If it fails, the transaction stays committed.
        """
        self._is_to_write_back = True

    def _write_back(self) -> None:
        if write_back(self.db) and self._reserved:
            # The note of a thousand names files may have overwritten the fences.
            with contextlib.suppress(
                OSError
            ):  # committed all the same; the rest of the block is lost
                note_drawn(self._lock_fd, self._last_drawn, self._reserved)

    def query(self, sql: str, *values: object, **named: object) -> list[sqlite3.Row]:
        """Read from the last committed state; inside a transaction, from its own.

        Args:
            sql: With marks for values, ``?`` or ``:name``.
            values: In order.
            named: Instead of those.

        Raises:
            CorruptState: The database is damaged.
        """
        try:
            return self.db.execute(sql, named or values).fetchall()
        except DAMAGED as error:
            raise translate(self._db_path, error) from error

    def read(
        self, sql: str, *values: object, **named: object
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield plain rows of a query one after the other, as there may be thousands.

        Nothing may change until all were read, or the generator was closed. See `query`.
        """
        cursor = self.db.cursor()
        cursor.row_factory = None
        try:
            yield from cursor.execute(sql, named or values)
        except DAMAGED as error:
            raise translate(self._db_path, error) from error
        finally:
            cursor.close()

    def data_version(self) -> int:
        """Return a number that changes when another process changes the database."""
        return int(self.query("PRAGMA data_version")[0][0])

    def has_room_for(self, size: int) -> bool:
        """Return whether so many bytes more leave enough room on the disk for leases."""
        return leaves_room(self._lock_fd, size)

    def _note_boot(self) -> None:
        """After a reboot, let everything that was due at some uptime be due at once."""
        if self._is_of_this_boot():
            return
        with self.transaction() as db:
            if not self._is_of_this_boot():  # another process may have been faster
                note_drawn(
                    self._lock_fd, drawn(self._lock_fd)[0], 0
                )  # the block may be out of date
                note_boot(db)

    def _remove_lock_of_earlier_namespace(self) -> None:
        """Remove the lock of a dead pid namespace that had the number of this one.

        Otherwise other namespaces would take this process for dead once it is on record.
        """
        number = own_pid_namespace()
        if is_in_first_pid_namespace() or not os.path.exists(self.path(f"namespace.{number}")):
            return
        from leasectl.system.namespaces import is_gone, remove_if_gone

        if is_gone(self.directory, number):
            with self.transaction():
                remove_if_gone(self.directory, number)

    def _is_of_this_boot(self) -> bool:
        return bool(self.query("SELECT boot_id FROM meta")[0][0] == boot_id())


class _Transaction:
    """The outermost transaction of `State.transaction`; there is one at a time."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __enter__(self) -> sqlite3.Connection:
        try:
            self._state._begin()
        except BaseException as error:
            self._fail(error)
            raise
        return self._state.db

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        state = self._state
        if error is not None:
            self._fail(error)
            return
        try:
            state._commit()
        except BaseException as failure:
            self._fail(failure)
            raise
        state._let_go()
        if state.events.refusal:
            state.events.tell_refusal(state._db_path)

    def _fail(self, error: BaseException) -> None:
        try:
            self._state._undo(error)
        finally:
            self._state._let_go()


def removed(directory: str) -> StateUnwritable:
    """Return the error for a state directory that was removed or replaced under a process."""
    return StateUnwritable(
        f"state directory {directory} was removed or replaced while in use; start again"
    )


def _create(path: str, lock_fd: int, limit: LockLimit) -> None:
    from leasectl.state.schema import create

    flock_exclusive(lock_fd, limit)
    try:
        if not os.path.exists(path):
            create(path, fence=reserve_first_fences(lock_fd))
    finally:
        fcntl.flock(lock_fd, fcntl.LOCK_UN)
