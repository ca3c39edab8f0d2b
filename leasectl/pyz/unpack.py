"""Unpack the archive at its first start, into a private folder under /tmp.

All is written under a lock, beside where it is to be, and put in place by one rename: a folder
either is complete or isn't there, and of many first starts at once one does the work and the
others wait for it. Where nothing can be written, leasectl runs straight from the archive.

The lock is filelock's, from the archive: at a first start there is time for it. Its file stays:
were it removed, two could each hold a lock of that name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import re
import secrets
import shutil
import stat
import sys
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from leasectl.errors import StateUnwritable
from leasectl.pyz.packed import MEMBER, files_in

# What a folder of ours is called: as unpacked, while that is under way, and when it was replaced.
UNPACKED = re.compile(r"(?P<boot>[0-9a-f-]{36})\.[0-9a-f]{32}\.[a-z]+-\d+\.\d")
LEFT_OVER = re.compile(r"(new|old)\.[0-9a-f]{16}")
LOCK_NAME = "lock"

# Sources, as much again for what is compiled from them, and something to spare for others.
_ROOM_FACTOR = 4
_PATIENCE_SECONDS = 30.0
# Who waits for the lock looks that often whether that is still needed.
_LOOK_SECONDS = 0.02
_UNCHECKED_HASH = 1  # the flags field of PEP 552: valid whatever the source looks like


def unpack(archive: str, folder: str) -> bool:
    """Unpack the archive and compile it for this Python, unless somebody has by now.

    Args:
        archive: The path of ``leasectl.pyz``.
        folder: Where to; its parent is the private folder, and is made if there is none.

    Returns:
        Whether the folder is there. It isn't where the disk is full or can't be written, nor, with
        one line on stderr, where the private folder isn't ours alone: another user, who may make
        it first, can't keep leasectl from running.
    """
    private = os.path.dirname(folder)
    umask = os.umask(0o077)
    try:
        with contextlib.suppress(OSError, zipfile.BadZipFile):
            _make_private(private)
            with zipfile.ZipFile(archive) as source:  # unlike the importer, it checks the archive
                files = files_in(source.read(MEMBER))
            if not os.listdir(private):  # and so nothing to tidy up, and nobody to wait for
                _check_room(private, files)
            with _lock(private, unless=folder) as is_locked:
                if is_locked and not is_complete(folder):
                    _remove_what_nobody_uses(private, boot=os.path.basename(folder)[:36])
                    _unpack(files, folder)
                return is_complete(folder)
    except StateUnwritable as error:
        sys.stderr.write(f"leasectl: {error}; running from the archive, which is slower\n")
    finally:
        os.umask(umask)
    return False


def is_complete(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, "complete"))


def _make_private(private: str) -> None:
    """Make the private folder, unless it is there.

    Raises:
        StateUnwritable: It isn't a folder, or not ours alone.
        OSError: It can't be made.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(private, 0o700)
    found = os.lstat(private)
    where = f"{private}, where this archive is to be unpacked,"
    other = "or name another folder in LEASECTL_CODE_DIR"
    if stat.S_ISLNK(found.st_mode):
        raise StateUnwritable(f"{where} is a symbolic link; remove it {other}")
    if not stat.S_ISDIR(found.st_mode):
        raise StateUnwritable(f"{where} is not a directory; remove it {other}")
    if found.st_uid != os.geteuid():
        raise StateUnwritable(f"{where} belongs to user {found.st_uid}; {other[3:]}")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise StateUnwritable(
            f"{where} is open to others (mode {mode:04o}), who may have changed what is in it; "
            f"remove it {other}"
        )


@contextmanager
def _lock(private: str, *, unless: str) -> Iterator[bool]:
    """Lock, and say so; or wait until somebody else has unpacked the folder, or seems stuck.

    Raises:
        OSError: There can't be a lock.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(os.path.join(private, LOCK_NAME), mode=0o600)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        while time.monotonic() < deadline:
            try:
                lock.acquire(timeout=0)
                break
            except NotImplementedError as error:  # a file system without flock
                raise OSError(str(error)) from error
            except Timeout:
                if is_complete(unless):
                    break
                time.sleep(_LOOK_SECONDS)
        yield lock.is_locked
    finally:
        lock.release()


def _remove_what_nobody_uses(private: str, *, boot: str) -> None:
    """Remove what was left half-done, and what belongs to an earlier boot of this machine.

    What other versions unpacked since the machine started stays: a keeper or a `run` of theirs
    may still import from there.
    """
    for name in os.listdir(private):
        unpacked = UNPACKED.fullmatch(name)
        if LEFT_OVER.fullmatch(name) or (unpacked and unpacked["boot"] != boot):
            shutil.rmtree(os.path.join(private, name), ignore_errors=True)


def _unpack(files: Mapping[str, bytes], folder: str) -> None:
    beside = os.path.join(os.path.dirname(folder), f"new.{secrets.token_hex(8)}")
    try:
        _check_room(os.path.dirname(folder), files)
        for name, content in files.items():
            _write(name, content, beside, folder)
        _write("complete", b"", beside, folder)
        with _out_of_the_way(folder):
            os.rename(beside, folder)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _check_room(private: str, files: Mapping[str, bytes]) -> None:
    """Refuse to fill up a disk that others need, at every start anew."""
    disk = os.statvfs(private)
    needed = _ROOM_FACTOR * sum(map(len, files.values()))
    # Some file systems don't know how large they are.
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < needed:
        raise OSError("too little room")


def _write(name: str, content: bytes, beside: str, folder: str) -> None:
    """Write a file and, if it is a module, what it compiles to."""
    path = os.path.join(beside, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "xb") as file:
        file.write(content)
    if not name.endswith(".py"):
        return
    with warnings.catch_warnings(), contextlib.suppress(SyntaxError):
        warnings.simplefilter("ignore")
        code = compile(content, os.path.join(folder, name), "exec", dont_inherit=True)
        flags = _UNCHECKED_HASH.to_bytes(4, "little")
        head = importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(content)
        cached = importlib.util.cache_from_source(path)
        os.makedirs(os.path.dirname(cached), exist_ok=True)
        with open(cached, "xb") as file:
            file.write(head + marshal.dumps(code))


@contextmanager
def _out_of_the_way(folder: str) -> Iterator[None]:
    """Move away what there is of the folder, if files of it were lost, and remove it at the end."""
    old = os.path.join(os.path.dirname(folder), f"old.{secrets.token_hex(8)}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(folder, old)
    yield
    shutil.rmtree(old, ignore_errors=True)
