"""Identify processes, and find out whether they live.

A pid alone says nothing: pids are reused, and the same number means another process in another pid
namespace or after a reboot. A process is named by (boot id, pid namespace, pid, start time),
checked together.

A process is dead only if the kernel says so:

- kill(2) finds no process of that pid, or its start time differs;
- it is a zombie and its last thread has ended. A process whose first thread has ended is in state Z
  too, while its other threads run on;
- it lived in another pid namespace of this boot, and that is gone (`namespaces`).

``/proc`` alone proves no death: with ``hidepid``, it has no entry for a living process of another
user, or for one that ran a setuid command. Such a process is unknown.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Literal

from leasectl.errors import LeaseError, NotFound, is_out_of_files, out_of_files
from leasectl.model import Process, parse_process
from leasectl.system.poll import is_readable

# ``unknown``: in another pid namespace that may live, or not readable here. A lease of an unknown
# process is never freed automatically. No `enum`, which each command would have to load.
Liveness = Literal["alive", "dead", "unknown"]


@cache
def boot_id() -> str:
    """Return the kernel's id of this boot; LeaseError if it can't be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return file.read().decode("ascii").strip()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.EACCES, errno.EPERM):
            raise
        raise LeaseError(
            f"can't read {error.filename}: {error.strerror}; mount /proc in this container"
        ) from error


# Inode numbers of the first namespaces; see include/linux/proc_ns.h.
_FIRST_TIME_NAMESPACE = 0xEFFFFFFA
_FIRST_PID_NAMESPACE = 0xEFFFFFFC

# Its records have processes of other namespaces too.
_state_directory: str | None = None


@cache
def own_namespaces() -> tuple[int, int]:
    """Return our pid and time namespaces as inode numbers; 0 for the first time namespace."""
    pids = os.stat("/proc/self/ns/pid").st_ino
    try:
        times = os.stat("/proc/self/ns/time").st_ino
    except OSError:  # a kernel without time namespaces
        return pids, 0
    return pids, 0 if times == _FIRST_TIME_NAMESPACE else times


@cache
def own_pid_namespace() -> int:
    """Return the inode number of this process's pid namespace.

    Inside a time namespace it is another number: start times differ there, so processes outside
    would seem dead.
    """
    pids, times = own_namespaces()
    return pids | (times & 0x7FFFFFFF) << 32


def is_in_first_pid_namespace() -> bool:
    """Return whether this process lives in the pid namespace that ends with the machine."""
    return own_namespaces()[0] == _FIRST_PID_NAMESPACE


def use_namespace_locks_of(directory: str) -> None:
    """Use the locks in a state directory to find out which other pid namespaces are gone."""
    global _state_directory
    _state_directory = directory


def state_directory() -> str | None:
    """Return the state directory that this process has opened last; None before the first."""
    return _state_directory


def identify(pid: int) -> Process:
    """Name a process that lives now.

    Args:
        pid: A process id in our own pid namespace.

    Raises:
        NotFound: There is no such process, or it is a zombie.
        LeaseError: It can't be read.
    """
    boot = boot_id()  # first: its error says that there is no /proc
    try:
        start = _start_time(pid)
    except OSError as error:
        if is_out_of_files(error):
            raise out_of_files(error) from error
        raise LeaseError(
            f"can't read /proc/{pid}/stat: {error.strerror}; "
            "mount /proc in this container, without hidepid"
        ) from error
    if start is None:
        raise NotFound(f"no process {pid}")
    return Process(boot, own_pid_namespace(), pid, start)


def process_of_thread(pid: int) -> int | None:
    """Return the id of the process that a thread belongs to; threads have entries in /proc too."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            found = [int(line[5:]) for line in file if line.startswith(b"Tgid:")]
    except (OSError, ValueError):
        return None
    return found[0] if found and found[0] != pid else None


def this_process() -> Process:
    """Name the calling process."""
    return _own(os.getpid())


@lru_cache(maxsize=1)
def _own(pid: int) -> Process:
    # By pid, because a forked child is another process.
    return identify(pid)


def liveness(process: Process) -> Liveness:
    """Return whether a process still runs."""
    where = _where(process)
    if where is not None:
        return where
    try:
        return "alive" if _start_time(process.pid) == process.start_time else "dead"
    except OSError:
        return "unknown"


def is_dead(process: Process | None) -> bool:
    """Return whether a process has certainly ended; None hasn't."""
    return process is not None and liveness(process) == "dead"


def is_dead_here(process: Process | None) -> bool:
    """Return whether a process of a server's record has certainly ended.

    It may run on another machine, with another boot id. The locks here say nothing of a pid
    namespace there.
    """
    here = (boot_id(), own_pid_namespace())
    return process is not None and process[:2] == here and is_dead(process)


class DeadProcesses:
    """The recorded processes that have certainly ended; each is looked up once.

    The kernel is asked whether a pid exists, since ``/proc`` may hide it.

    Args:
        most_looked_at: For so many existing pids, check whether they are still the recorded
            processes and no zombies; the others count as alive. None for all.
    """

    def __init__(self, *, most_looked_at: int | None = None) -> None:
        self._known: dict[str, bool] = {}
        self._left = most_looked_at
        self._here = f"{boot_id()}:{own_pid_namespace()}:"

    def __contains__(self, process: str) -> bool:
        """Return whether a recorded process has ended; ValueError if the record is damaged."""
        known = self._known.get(process)
        if known is None:
            known = self._known[process] = self._look(process)
        return known

    def _look(self, process: str) -> bool:
        if process.startswith(self._here):
            if not _is_there(process[len(self._here) :].partition(":")[0]):
                return True
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    return False
        return is_dead(parse_process(process))


def _is_there(pid: str) -> bool:
    try:
        os.getpgid(int(pid))
    except PermissionError:  # some security modules refuse it
        return True
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    return True


PIDFD_NEEDS = "it needs Linux 5.3 or later, and a seccomp profile that allows it"


def pidfd_of(pid: int) -> int:
    """Open a descriptor that becomes readable when the process with a pid ends.

    Raises:
        LeaseError: This kernel has no such descriptors, or a security module forbids them.
        OSError: There is no such process, or no descriptor left.
    """
    try:
        return os.pidfd_open(pid)
    except AttributeError as error:
        raise LeaseError("this Python has no pidfd_open; use another") from error
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        raise LeaseError(
            f"pidfd_open(2) doesn't work here: {error.strerror}; {PIDFD_NEEDS}"
        ) from error


def open_pidfd(process: Process) -> int | None:
    """Open a descriptor that becomes readable when the process ends.

    The start time is compared *after* the descriptor is open, so that a pid that was reused in
    between isn't watched by mistake. If the start time can't be read, the descriptor is right all
    the same: either it is the process, or another one got its pid after its end.

    Returns:
        The descriptor, which the caller closes; None if the process is dead, or in another pid
        namespace.

    Raises:
        LeaseError, OSError: See `pidfd_of`.
    """
    if _where(process) is not None:
        return None
    try:
        pidfd = pidfd_of(process.pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.ENOENT, errno.EINVAL):  # or a thread has the pid now
            return None
        raise
    try:
        is_it = liveness(process) != "dead"
    except BaseException:
        os.close(pidfd)
        raise
    if is_it:
        return pidfd
    os.close(pidfd)
    return None


def _where(process: Process) -> Liveness | None:
    """Answer without looking at the process when it can't be one of ours; None when it can."""
    if process.boot_id != boot_id():
        return "dead"
    if process.pid_namespace != own_pid_namespace():
        return "dead" if _is_gone(process.pid_namespace) else "unknown"
    return None


def _is_gone(pid_namespace: int) -> bool:
    if _state_directory is None:
        return False
    from leasectl.system.namespaces import is_gone

    return is_gone(_state_directory, pid_namespace)


def open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the open files of a process: path and file status.

    Raises:
        OSError: They can't be read.
    """
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        try:
            path = os.readlink(f"{folder}/{number}").removesuffix(" (deleted)")
            found = os.stat(f"{folder}/{number}")
        except OSError:
            continue  # it has been closed since
        yield path, found


@cache
def _is_proc_ours() -> bool:
    """Return whether ``/proc`` shows our pid namespace: unshare(1) alone leaves the old one."""
    return os.readlink("/proc/self") == str(os.getpid())


def _start_time(pid: int) -> int | None:
    """Read a process's start time; None if the process has ended.

    Raises:
        OSError: The process exists and can't be read.
    """
    try:
        if not _is_proc_ours():
            raise OSError(errno.ENXIO, "/proc shows another pid namespace")
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            stat = file.read(1024)
    except OSError:
        if _is_there(str(pid)) and not _has_ended(pid):
            raise
        return None
    # The second field is the command in parentheses and may itself hold anything.
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X") and int(fields[17]) <= 1:  # it has no other threads
        return None
    return int(fields[19])


def _has_ended(pid: int) -> bool:
    """Return whether a process that can't be read is a zombie; False if no pidfd can tell."""
    try:
        pidfd = pidfd_of(pid)
    except ProcessLookupError:
        return True
    except (OSError, LeaseError):
        return False
    try:
        return is_readable(pidfd, 0)
    finally:
        os.close(pidfd)
