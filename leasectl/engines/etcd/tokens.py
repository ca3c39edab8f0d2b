"""Share tokens of etcd between the gateways of a process, and the processes of a state directory.

etcd takes a tenth of a second of a processor for each password that it checks. So a token is kept
in a private file of the state directory, ``etcd.token.…``, one for each cluster and user, and one
process authenticates while others wait for its token. A token that etcd doesn't know any more is
replaced the same way.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence

from leasectl.system.backoff import draw
from leasectl.system.own_files import open_own, read_own, write_new
from leasectl.system.process import state_directory

_LONGEST_BYTES = 64 << 10
# Between two looks whether the process that authenticates is done.
_LOOK_SECONDS = 0.1

_of_process: dict[str, str] = {}


class TokenStore:
    """The token of one user at one cluster.

    Args:
        endpoints: The members' base addresses.
        user_file: Path of the file with the user; a token is good for one version of it.
    """

    def __init__(self, endpoints: Sequence[str], user_file: str) -> None:
        self._endpoints = ",".join(endpoints)
        self._user_file = user_file

    def load(self) -> str | None:
        """Return the token that was kept last; None if there is none."""
        identity = self._identity()
        path = self._path(identity)
        if path is not None:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                token = read_own(path, _LONGEST_BYTES).decode("ascii")
                if token.isprintable() and token:
                    return token
        return _of_process.get(identity)

    def keep(self, token: str) -> None:
        """Keep a token, for others as well; without room for it, each process gets its own."""
        identity = self._identity()
        _of_process[identity] = token
        path = self._path(identity)
        if path is not None and token:
            with contextlib.suppress(OSError):
                temporary = f"{path}.{os.getpid()}.new"
                write_new(temporary, token.encode("ascii"))
                os.replace(temporary, path)

    @contextlib.contextmanager
    def alone(self, seconds: float, pause: Callable[[float], object]) -> Iterator[None]:
        """Wait until no other process authenticates, for so many seconds at most.

        Args:
            seconds: How many.
            pause: Called with seconds between two looks.
        """
        path = self._path(self._identity())
        try:
            fd = -1 if path is None else open_own(f"{path}.lock", os.O_RDWR | os.O_CREAT)
        except OSError:
            fd = -1
        try:
            if fd >= 0:
                _lock(fd, time.monotonic() + seconds, pause)
            yield
        finally:
            if fd >= 0:
                os.close(fd)

    def _identity(self) -> str:
        """Return what tells apart clusters, users and versions of their files."""
        version = ""
        with contextlib.suppress(OSError, ValueError):
            found = os.stat(self._user_file)
            version = f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"
        text = "\0".join((self._endpoints, self._user_file, version))
        return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def _path(self, identity: str) -> str | None:
        directory = state_directory()
        return None if directory is None else f"{directory}/etcd.token.{identity}"


def _lock(fd: int, until: float, pause: Callable[[float], object]) -> None:
    """Lock a file; go on without that when the time is over, as its holder may be stopped."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return
            pause(_LOOK_SECONDS * (0.5 + draw()))
        else:
            return
