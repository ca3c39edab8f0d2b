"""All errors, with their exit codes.

::

    LeaseError                   1   unexpected failure
    ├── InvalidRequest          64   usage, or not supported by this backend
    │   ├── CanNeverBeMet            the server says so
    │   ├── NotSupported
    │   └── FileUnreadable           a file that the environment or an option names isn't there
    ├── CorruptState            65   corrupt state, or from a newer version
    ├── NotFound                66   no such pool, resource, handle or file
    ├── BackendUnreachable      69   backend unreachable
    │   ├── CantListen               or serve can't be reached: its address can't be had
    │   └── AccessRefused            or refuses us, with the code of the reason
    │       └── NoNamespace          or has no such part as its address names
    ├── StateUnwritable         73   state directory or handle can't be written
    │   └── NoRoom                   or what is to be kept would leave no room for leases there
    ├── NoLease                 75   no lease before the deadline
    │   ├── Cancelled                released, or its guard ended, while waiting
    │   └── LockHeld                 or another process held the state directory's lock all the time
    ├── TooFewFreed             75   fewer leases could be taken back than were to be
    ├── NotAllowed              77   not the holder, or not permitted
    ├── LeaseLost               79   the lease was lost while in use
    └── WorkFailed                   the work of once failed elsewhere, with its exit code

The numbers follow sysexits(3) where it has a fitting one. click's own 2 for usage is
remapped to 64 because existing scripts read 2 as "no such type".
"""

from __future__ import annotations

import errno
import os


class LeaseError(Exception):
    """The root. Its text is one line: what failed, where, and what to do next."""

    exit_code = 1


class InvalidRequest(LeaseError):
    """The request can't be meant: a bad option, an impossible count.

    Attributes:
        done: The names for which it was done before that was found.
    """

    exit_code = 64
    done: tuple[str, ...] = ()


class CanNeverBeMet(InvalidRequest):
    """The request is well put, and the backend says that it can't be met, or not as things are."""


class NotSupported(InvalidRequest):
    """The request is sound, but this backend can't do it."""


class FileUnreadable(InvalidRequest):
    """A file that the environment or an option names is missing, or may not be read.

    No `NotFound`: that means that the requested type doesn't exist.
    """


class CorruptState(LeaseError):
    """A file of ours can't be read back: damaged, or written by a newer version."""

    exit_code = 65


class NotFound(LeaseError):
    """No such type, resource, handle or process."""

    exit_code = 66


class BackendUnreachable(LeaseError):
    """The backend doesn't answer.

    Attributes:
        released: The names that a release gave back before, or all the same.
        asked: Whether it may have been asked for something that is now to be undone.
        lasting: The next try would fail the same way: the server isn't away, but the wrong one, or
            one side doesn't trust the other.
    """

    exit_code = 69
    released: tuple[str, ...] = ()
    asked = True
    lasting = False


class CantListen(BackendUnreachable):
    """The address to serve on is taken, not ours, or not allowed."""


class AccessRefused(BackendUnreachable):
    """The backend is there and doesn't let us ask, or we can't say who we are.

    To what is under way that is the same as no answer: it says nothing of a lease, and passes, as
    when a password is changed in two places one after the other.

    Args:
        reason: What it is refused with; its text and exit code count.
    """

    lasting = True

    def __init__(self, reason: LeaseError) -> None:
        super().__init__(str(reason))
        self.exit_code = reason.exit_code


class NoNamespace(AccessRefused):
    """The server has no such part of it as its address names, so nothing is there."""


class StateUnwritable(LeaseError):
    """The state directory, a handle or ``SHARED_DIR`` can't be written, or isn't private."""

    exit_code = 73


class NoRoom(StateUnwritable):
    """What is to be kept would leave no room for leases in the state directory."""


class NoLease(LeaseError):
    """No lease before the deadline."""

    exit_code = 75


class LockHeld(NoLease):
    """Another process holds a lock for longer than the command may wait; it is stopped, perhaps."""


class Cancelled(NoLease):
    """The request was given up from outside: its handle was released or its guard ended."""


class TooFewFreed(LeaseError):
    """Fewer leases could be taken back than were to be; the others are their holders' still."""

    exit_code = 75


class NotAllowed(LeaseError):
    """Another holder has it, or the operation needs ``--force``."""

    exit_code = 77


class NotMade(NotAllowed):
    """Another process deleted or created the pool while this one created it."""


class LeaseLost(LeaseError):
    """The lease went away while it was in use."""

    exit_code = 79


class WorkFailed(LeaseError):
    """The work of `once` failed in other processes; its exit code is that of the last failure."""


class Interrupted(BaseException):
    """A signal asked this process to end; not an error, so no handler of errors eats it.

    Args:
        signum: The signal that the process must die of once it has cleaned up.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Unanswered(Interrupted):
    """The same, while a server didn't answer: asking it for more would only take longer."""


def spares_optional(error: LeaseError) -> bool:
    """Return whether a command whose lease is optional goes on without one after this error.

    An error of the backend or the machine must not fail an installation. An error in the command
    line does: with a typo in it, no lease would ever be acquired, without notice. And a user who
    withdraws a waiting request wants it to end.
    """
    if isinstance(error, InvalidRequest):
        return isinstance(error, CanNeverBeMet)
    return not isinstance(error, Cancelled)


def is_out_of_files(error: BaseException) -> bool:
    """Tell whether something failed because this process, or the machine, may open no more files.

    An import that does says it in words only.
    """
    if isinstance(error, ImportError):
        return os.strerror(errno.EMFILE) in str(error)
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def out_of_files(error: BaseException) -> StateUnwritable:
    """The error for that."""
    where = getattr(error, "filename", None) or "what is needed"
    return StateUnwritable(
        f"can't open {where}: {os.strerror(errno.EMFILE)}; raise the limit, which is "
        f"{os.sysconf('SC_OPEN_MAX')} here: ulimit -n"
    )


EXIT_CODES: tuple[tuple[str, str], ...] = (
    ("0", "success"),
    ("1", "unexpected failure"),
    ("64", "wrong usage, or not supported by this backend"),
    ("65", "corrupt state, or state of a newer version"),
    ("66", "no such pool, resource, handle or file"),
    ("69", "backend unreachable"),
    ("73", "state directory or handle not writable"),
    ("75", "no lease in time, or the request was withdrawn (-E CODE: exit with CODE instead)"),
    ("77", "not the holder, or not permitted"),
    ("79", "the lease was lost while in use"),
    ("124", "once: the command exceeded --run-limit"),
    ("126, 127", "run: the command can't be executed, or wasn't found"),
    ("128+n", "ended by signal n; otherwise run exits with the status of its command"),
)
