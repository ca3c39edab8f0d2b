"""Tell other pid namespaces that this one lives.

`leasectl.system.namespaces` describes the file. A KILL of the keeper alone must not look like the
end of its namespace. So a second process, the anchor, has the lock on the same open file. It is a
fork of the keeper that only sleeps.

The keeper locks a temporary file and renames it over the file of an earlier keeper, so a file with
the right name is locked from the start:

======================  =================  ========================================================
killed                  the file           the next keeper
======================  =================  ========================================================
before the fork         is the old one     takes the lock as if this one hadn't begun
before the rename       is the old one     does the same; the temporary file goes, and its anchor
after the rename        is locked by the   renames its own file over it; the anchor notices that
                        anchor             and ends
at its orderly end,     is locked by the   does the same
before the unlink       anchor
after the unlink        is absent          takes the lock
======================  =================  ========================================================

An anchor that was killed is replaced at once. While there can be none, the file is removed: others
then can't tell whether the namespace lives.

The first pid namespace ends with the machine, so it needs no lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import NamedTuple, NoReturn

from leasectl.errors import LeaseError
from leasectl.keeper.log import Log, described
from leasectl.state.directory import State
from leasectl.system.background import close_all_but
from leasectl.system.clock import Clock
from leasectl.system.namespaces import lock_path
from leasectl.system.own_files import open_own
from leasectl.system.poll import is_readable
from leasectl.system.process import is_in_first_pid_namespace, own_pid_namespace, pidfd_of

_TRY_AGAIN_SECONDS = 10.0
_ANCHOR_LOOKS_SECONDS = 10.0


class _Anchor(NamedTuple):
    pid: int
    pidfd: int


class NamespaceLock:
    """The lock of this keeper's pid namespace.

    Args:
        state: The state directory that is kept.
        clock: Where times come from.
        log: Where failures are written.
    """

    def __init__(self, state: State, *, clock: Clock, log: Log) -> None:
        self._state = state
        self._clock = clock
        self._log = log
        self._path = lock_path(state.directory, own_pid_namespace())
        self._fd: int | None = None
        self._anchor: _Anchor | None = None
        self._retry_at: float | None = None

    def fds(self) -> tuple[int, ...]:
        """Return what becomes readable when the anchor has ended."""
        return () if self._anchor is None else (self._anchor.pidfd,)

    def hold(self) -> float | None:
        """Take the lock, or repair what is missing; return when to try again after a failure."""
        if is_in_first_pid_namespace():
            return None
        self._reap_anchor()
        if self._anchor is not None and self._is_in_place():
            return None
        now = self._clock.elapsed()
        if self._retry_at is not None and now < self._retry_at:
            return self._retry_at
        try:
            self._take()
            self._retry_at = None
        except (OSError, LeaseError) as error:
            self._log.write(
                "other containers that use this state directory can't tell when this one has "
                f"ended: {described(error)}"
            )
            self.close()
            self._retry_at = now + _TRY_AGAIN_SECONDS
        return self._retry_at

    def close(self) -> None:
        """Remove the file, and then free the lock: a file without a lock means a dead namespace."""
        try:
            if self._is_in_place():
                os.unlink(self._path)
        except OSError as error:
            self._log.write(f"can't remove {self._path}: {described(error)}")
            return  # the anchor keeps the lock
        if self._anchor is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._anchor.pid, signal.SIGKILL)
            self._forget_anchor()
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _take(self) -> None:
        if self._fd is not None and self._is_in_place():  # its anchor was killed
            self._anchor = _fork_anchor(self._fd)
            return
        self.close()
        temporary = f"{self._path}.new"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        self._fd = open_own(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_locked(temporary):
            raise LeaseError(f"file locks don't work in {self._state.directory}")
        self._anchor = _fork_anchor(self._fd)
        with self._state.transaction():  # no command removes the file of an earlier keeper now
            os.rename(temporary, self._path)

    def _is_in_place(self) -> bool:
        if self._fd is None:
            return False
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    def _reap_anchor(self) -> None:
        if self._anchor is not None and is_readable(self._anchor.pidfd, 0):
            self._forget_anchor()

    def _forget_anchor(self) -> None:
        assert self._anchor is not None
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._anchor.pid, 0)
        os.close(self._anchor.pidfd)
        self._anchor = None


def _is_locked(path: str) -> bool:
    fd = open_own(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _fork_anchor(fd: int) -> _Anchor:
    """Fork a process that has only the lock open.

    Raises:
        OSError, LeaseError: There can be no process, or none whose end would be noticed.
    """
    # In the anchor, all signals stay blocked. A handler of the keeper would write to its pipe.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        pid = os.fork()
        if pid == 0:
            _be_anchor(fd)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        return _Anchor(pid, pidfd_of(pid))
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise


def _be_anchor(fd: int) -> NoReturn:
    """Sleep until the lock's file is removed or replaced."""
    try:
        close_all_but((fd,))
        while os.fstat(fd).st_nlink:
            time.sleep(_ANCHOR_LOOKS_SECONDS)
    finally:
        os._exit(0)
