"""TLS for connections that outlast its files: certificates are replaced while processes go on."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from leasectl.errors import LeaseError
from leasectl.typed.hints import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    import ssl

    from leasectl.http.settings import Settings

# What tells of each file whether it is the same.
_Look = tuple[tuple[int, ...], ...]


class Trust:
    """A context for connections, made anew when a file that it is made of has changed.

    Threads may share it.

    Args:
        make: Makes it of the files as they are then.
        files: Their paths.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[str]) -> None:
        self._make = make
        self._files = tuple(files)
        self._lock = threading.Lock()
        # Under the lock:
        self._context: ssl.SSLContext | None = None
        self._made_of: _Look = ()

    def context(self) -> ssl.SSLContext:
        """The context as it has to be now.

        While files are being replaced they may not fit each other. Then it is the one before, and
        the next time they are read again.

        Raises:
            LeaseError: There is none yet, and the files can't be used.
        """
        with self._lock:
            found = self._look()
            if self._context is None or found != self._made_of:
                try:
                    self._context, self._made_of = self._make(), found
                except LeaseError:
                    if self._context is None:
                        raise
            return self._context

    def is_outdated(self, context: ssl.SSLContext | None) -> bool:
        """Tell whether files have changed since that context was made."""
        with self._lock:
            return context is not self._context or self._look() != self._made_of

    def _look(self) -> _Look:
        return tuple(map(look_at, self._files))


def trust_of(settings: Settings) -> Trust:
    """What settings say of whom to trust, and what to show."""
    from leasectl.http.tls import client_context, client_files  # which take long to load

    return Trust(lambda: client_context(settings), client_files(settings))


def look_at(file: str) -> tuple[int, ...]:
    """What tells whether a file is the same as before; empty where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
