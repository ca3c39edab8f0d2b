"""``$SHARED_DIR/leases``: the leases that later steps give back.

Other tools read and grep the file. It is changed under a flock of the folder itself, which also
works if the folder can't be written, and it is replaced as a whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from leasectl.errors import CorruptState, StateUnwritable
from leasectl.system.lock_wait import LockLimit, flock_exclusive
from leasectl.system.own_files import write_new
from leasectl.text.naming import is_resource_name

FILE_NAME = "leases"
# SHARED_DIR is stored as a flat Secret: no folders, 1 MiB, names of letters, digits and ".-_".
_NEW_NAME = ".leases.new"
_LONGEST_BYTES = 1 << 20


def listed(shared_dir: str, *, limit: LockLimit | None = None) -> list[str]:
    """Read the names; none when there is no such file.

    Raises:
        StateUnwritable: It can't be read.
        CorruptState: It holds something else than names.
    """
    with _locked(shared_dir, limit) as folder:
        return _read(shared_dir, folder)


def add(shared_dir: str, names: Sequence[str], *, limit: LockLimit | None = None) -> None:
    """List names, each once.

    Args:
        shared_dir: The folder.
        names: The names.
        limit: How long to wait for the lock.

    Raises:
        StateUnwritable: The list can't be written.
    """
    with _locked(shared_dir, limit) as folder:
        before = _read(shared_dir, folder)
        _write(folder, [*before, *(name for name in names if name not in before)])


def remove(
    shared_dir: str,
    names: Collection[str],
    *,
    unless: Callable[[str], bool] = lambda name: False,
    limit: LockLimit | None = None,
) -> None:
    """Remove names from the list, if they are in it.

    Args:
        shared_dir: The folder.
        names: The names.
        unless: Called with each under the lock: whether it has to stay all the same.
        limit: How long to wait for the lock.

    Raises:
        StateUnwritable: The list can't be written.
    """
    with _locked(shared_dir, limit) as folder:
        before = _read(shared_dir, folder)
        left = [name for name in before if name not in names or unless(name)]
        if left != before:
            _write(folder, left)


@contextmanager
def _locked(shared_dir: str, limit: LockLimit | None) -> Iterator[int]:
    try:
        fd = os.open(shared_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StateUnwritable(f"SHARED_DIR {shared_dir}: {error.strerror}") from error
    try:
        flock_exclusive(fd, limit)
        yield fd
    except OSError as error:
        raise StateUnwritable(
            f"{os.path.join(shared_dir, FILE_NAME)}: {error.strerror}; make it writable"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _read(shared_dir: str, folder: int) -> list[str]:
    path = os.path.join(shared_dir, FILE_NAME)
    try:
        # It may be a link, as in a mounted Secret. The opening of a FIFO must not block.
        fd = os.open(FILE_NAME, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return []
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise CorruptState(f"{path} is not a regular file; remove it")
        text = file.read(_LONGEST_BYTES + 1)
    names = text.decode("utf-8", "replace").split()
    if len(text) > _LONGEST_BYTES or not all(map(is_resource_name, names)):
        raise CorruptState(f"{path} is not a list of resource names; correct or remove it")
    return names


def _write(folder: int, names: Sequence[str]) -> None:
    write_new(_NEW_NAME, "".join(f"{name}\n" for name in names).encode(), dir_fd=folder)
    try:
        os.rename(_NEW_NAME, FILE_NAME, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(_NEW_NAME, dir_fd=folder)
        raise
