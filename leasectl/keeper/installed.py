"""Noticing that another version of leasectl has been installed in the place of the running one.

Modules that only servers need are imported when the first lease lives on one, so that a keeper is
small. After an upgrade in place these would be of the new version beside others of the old.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import leasectl
from leasectl.system.clock import Clock

# An installation writes one file after the other.
SETTLED_SECONDS = 3.0


class _Stamp(NamedTuple):
    inode: int
    modified_ns: int
    size: int


class Installed:
    """The package that this process has been started from.

    Args:
        clock: Where times come from.
        path: A file that every version of it has and installs anew.
    """

    def __init__(self, *, clock: Clock, path: str = leasectl.__file__) -> None:
        self._clock = clock
        self._path = path
        self._stamp = self._look(settled=False)

    def is_another(self) -> bool:
        """Tell whether another version is there, all of it; says so once."""
        found = self._look(settled=True)
        if found is None or found == self._stamp:
            return False
        self._stamp = found
        return True

    def _look(self, *, settled: bool) -> _Stamp | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None  # removed for good, or just being replaced
        if settled and self._clock.wall() - found.st_ctime < SETTLED_SECONDS:
            return None
        return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)
