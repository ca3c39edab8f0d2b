"""``$SHARED_DIR/leases``: what later steps of a test are to give back, one name a line.

Other tools read and grep the file. It is changed under a flock of the opened directory itself,
which works also where the directory can't be written, and put in place whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from leasectl.errors import CorruptState, StateUnwritable
from leasectl.system.lock_wait import flock_exclusive
from leasectl.text.naming import is_name
from leasectl.typed.hints import Callable

FILE_NAME = "leases"
# SHARED_DIR is carried as a flat Secret: no sub-folders, 1 MiB, names of letters, digits, ".-_".
_NEW_NAME = ".leases.new"
_LONGEST_BYTES = 1 << 20


def listed(shared_dir: str) -> list[str]:
    """Read the names; none when there is no such file.

    Raises:
        StateUnwritable: It can't be read.
        CorruptState: It holds something else than names.
    """
    with _locked(shared_dir):
        return _read(shared_dir)


def add(shared_dir: str, names: Sequence[str]) -> None:
    """List names, each once.

    Raises:
        StateUnwritable: The list can't be written.
    """
    with _locked(shared_dir):
        before = _read(shared_dir)
        _write(shared_dir, [*before, *(name for name in names if name not in before)])


def remove(
    shared_dir: str, names: Collection[str], *, unless: Callable[[str], bool] = lambda name: False
) -> None:
    """Take names out of the list, if they are in it.

    Args:
        shared_dir: The folder.
        names: What to take out.
        unless: Asked about each, under the lock: whether it has to stay all the same.

    Raises:
        StateUnwritable: The list can't be written.
    """
    with _locked(shared_dir):
        before = _read(shared_dir)
        left = [name for name in before if name not in names or unless(name)]
        if left != before:
            _write(shared_dir, left)


@contextmanager
def _locked(shared_dir: str) -> Iterator[None]:
    try:
        fd = os.open(shared_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise StateUnwritable(f"SHARED_DIR {shared_dir}: {error.strerror}") from error
    try:
        flock_exclusive(fd)
        yield
    except OSError as error:
        raise StateUnwritable(
            f"{os.path.join(shared_dir, FILE_NAME)}: {error.strerror}; make it writable"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _read(shared_dir: str) -> list[str]:
    path = os.path.join(shared_dir, FILE_NAME)
    try:
        with open(path, "rb") as file:
            text = file.read(_LONGEST_BYTES + 1)
    except FileNotFoundError:
        return []
    names = text.decode("utf-8", "replace").split()
    if len(text) > _LONGEST_BYTES or not all(map(is_name, names)):
        raise CorruptState(f"{path} is no list of lease names; mend or remove it")
    return names


def _write(shared_dir: str, names: Sequence[str]) -> None:
    path = os.path.join(shared_dir, FILE_NAME)
    temporary = os.path.join(shared_dir, _NEW_NAME)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in names)
        os.rename(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
