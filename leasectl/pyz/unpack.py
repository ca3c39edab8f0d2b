"""Unpacking ``leasectl.pyz`` at its first start.

All is written under a lock, beside where it is to be, and put in place by one rename: a folder
either is complete or isn't there, and of many first starts at once one does the work and the
others wait for it. Where nothing can be written, leasectl runs straight from the archive.

The lock is the kernel's, on the private folder itself: filelock is in the archive, and to run it
from there takes as long as a tenth of the unpacking.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import marshal
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import time
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from leasectl.errors import StateUnwritable

# What a folder of ours is called: as unpacked, while that is under way, and when it was replaced.
UNPACKED = re.compile(r"(?P<boot>[0-9a-f-]{36})\.[0-9a-f]{32}\.[a-z]+-\d+\.\d")
LEFT_OVER = re.compile(r"(new|old)\.[0-9a-f]{16}")

# Sources, as much again for what is compiled from them, and something to spare for others.
_ROOM_FACTOR = 4
_PATIENCE_SECONDS = 30.0
_UNCHECKED_HASH = 1  # the flags field of PEP 552: valid whatever the source looks like


def unpack(archive: str, folder: str) -> bool:
    """Unpack the archive and compile it for this Python, unless somebody has by now.

    Args:
        archive: The path of ``leasectl.pyz``.
        folder: Where to; its parent is the private folder, and is made if there is none.

    Returns:
        Whether the folder is there. It isn't where the disk is full or can't be written.

    Exits:
        With 73 and one line on stderr, when the private folder isn't ours alone.
    """
    private = os.path.dirname(folder)
    umask = os.umask(0o077)
    try:
        with _interrupt_at_once(), contextlib.suppress(OSError, zipfile.BadZipFile):
            lock = _open_private(private)
            try:
                if _locked(lock, unless=folder) and not is_complete(folder):
                    _remove_what_nobody_uses(private, boot=os.path.basename(folder)[:36])
                    _unpack(archive, folder)
                return is_complete(folder)
            finally:
                os.close(lock)
    except StateUnwritable as error:
        sys.stderr.write(f"leasectl: {error}\n")
        sys.exit(error.exit_code)
    finally:
        os.umask(umask)
    return False


def is_complete(folder: str) -> bool:
    return os.path.lexists(os.path.join(folder, "complete"))


def _open_private(private: str) -> int:
    """Open the private folder, made if need be.

    Raises:
        StateUnwritable: It isn't a folder, or not ours alone.
        OSError: It can't be made or opened.
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
    return os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _locked(lock: int, *, unless: str) -> bool:
    """Lock, and say so; or wait until somebody else has unpacked the folder, or seems stuck."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if is_complete(unless):
                return False
            time.sleep(0.02)
    return False


def _remove_what_nobody_uses(private: str, *, boot: str) -> None:
    """Remove what was left half-done, and what belongs to an earlier boot of this machine.

    What other versions unpacked since the machine started stays: a keeper or a `run` of theirs
    may still import from there.
    """
    for name in os.listdir(private):
        unpacked = UNPACKED.fullmatch(name)
        if LEFT_OVER.fullmatch(name) or (unpacked and unpacked["boot"] != boot):
            shutil.rmtree(os.path.join(private, name), ignore_errors=True)


def _unpack(archive: str, folder: str) -> None:
    beside = os.path.join(os.path.dirname(folder), f"new.{secrets.token_hex(8)}")
    try:
        with zipfile.ZipFile(archive) as source:
            _check_room(os.path.dirname(folder), source)
            for name in source.namelist():
                if name != "__main__.py":
                    _write(name, source.read(name), beside, folder)
        _write("complete", b"", beside, folder)
        with _out_of_the_way(folder):
            os.rename(beside, folder)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _check_room(private: str, source: zipfile.ZipFile) -> None:
    """Refuse to fill up a disk that others need, at every start anew."""
    disk = os.statvfs(private)
    needed = _ROOM_FACTOR * sum(member.file_size for member in source.infolist())
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


@contextmanager
def _interrupt_at_once() -> Iterator[None]:
    """Die of Ctrl-C without a traceback; the next first start removes what is left half-done."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
