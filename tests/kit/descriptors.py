"""Whether code leaves descriptors of this process open."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator

from tests.kit.waits import eventually


def open_descriptors() -> set[tuple[str, str]]:
    """Return the number and the target of each descriptor that this process has open."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        # The folder's own descriptor is gone by now, and a thread may close another meanwhile.
        with contextlib.suppress(FileNotFoundError):
            found.add((number, os.readlink(f"/proc/self/fd/{number}")))
    return found


@contextlib.contextmanager
def leaving_open(count: int) -> Iterator[None]:
    """Check that a block opens so many descriptors more than it closes.

    Earlier tests leave objects and threads behind, whose descriptors close at any time: those that
    were open before don't count.
    """
    gc.collect()
    before = open_descriptors()
    yield
    eventually(
        lambda: len(open_descriptors() - before) == count,
        f"{count} descriptors more than {sorted(before)}",
    )
