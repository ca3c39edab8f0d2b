"""Find a handle by its path, and read copies of names files."""

from __future__ import annotations

import contextlib
import os
import stat

from leasectl.errors import CorruptState, LeaseError, NotAllowed, NotFound
from leasectl.leases.service import Service
from leasectl.model import Handle
from leasectl.text.naming import is_name
from leasectl.text.wording import listed, printable

_TOO_LONG = 1 << 20  # a names file, in bytes


def handle_at(service: Service, path: str) -> Handle | None:
    """Return the handle of a path or a bare id; None for a path outside our directory.

    Raises:
        NotFound: It should be one of ours, and there is no such handle.
        CorruptState: Its record was lost.
    """
    folder, name = os.path.split(path)
    if folder and os.path.realpath(folder) != os.path.realpath(service.state.path("handles")):
        return None
    try:
        return service.handles.require(name)
    except NotFound:
        if not folder and os.path.lexists(name):
            return None  # a bare name of a file
        _check_not_lost(service, name)
        raise


def require_handle_at(service: Service, path: str, *, done: str) -> Handle:
    """Return the handle of a path, where only a handle of our directory will do.

    Args:
        service: On the state directory.
        path: The path, or a bare id.
        done: What is to be done with the handle, for the error.

    Raises:
        NotFound: There is no such handle, or the path is elsewhere.
        CorruptState: Its record was lost.
    """
    handle = handle_at(service, path)
    if handle is None:
        raise no_handle_here(service, path, done)
    return handle


def handles_at(service: Service, path: str, *, done: str) -> list[Handle]:
    """Return the handle of a path; for a copy, the handles here that hold its names.

    Args:
        service: On the state directory.
        path: The path, or a bare id; an empty one means no handle.
        done: What is to be done with the handles, for the error.

    Raises:
        NotFound: There is no such handle, or nothing that the copy lists is held here.
        CorruptState: Its record was lost.
    """
    record = handle_at(service, path) if path else None
    if record is not None or not path:
        return [record] if record else []
    names = read_names(path)
    holders = [service.handles.holding(name, prefer=service.is_here) for name in names]
    found = {holder.id: holder for holder in holders if holder is not None}
    if names and not found:
        raise no_handle_here(service, path, done)
    return list(found.values())


def handle_with(service: Service, path: str, name: str) -> Handle:
    """Return the one of `handles_at` that holds a name; the first if none does.

    Raises:
        NotFound: See `handles_at`.
        NotAllowed: The path is empty.
    """
    handles = handles_at(service, path, done="used")
    if not handles:
        raise NotAllowed("empty handle: nothing can be used")
    return next((each for each in handles if name in each.names), handles[0])


def no_handle_here(service: Service, path: str, done: str) -> NotFound:
    """The error for a path that is no handle of the state directory."""
    return NotFound(
        f"{printable(path, longest=200)} is not a handle of {service.state.directory}, so it can't "
        f"be {done}; name its state directory in LEASECTL_STATE_DIR"
    )


def _check_not_lost(service: Service, handle_id: str) -> None:
    """Raise CorruptState if the names file of an unknown handle shows a lost record."""
    state = service.state
    path = state.names_path(handle_id)
    if not is_name(handle_id) or not os.path.isfile(path):
        return
    names: list[str] = []
    with state.transaction():  # no process is writing or removing such a file now
        if service.handles.load(handle_id) is None:
            with contextlib.suppress(LeaseError):
                names = read_names(path)
    if not names:
        return
    kind = service.kind
    if kind.has_pools and not kind.remote and not service.resources(names):
        how = (
            "knows neither this handle nor these resources: the database and its pools were lost. "
            "If no job still uses these resources, create the pools again with: leasectl pool "
            f"apply -f FILE, and remove {path}"
        )
    else:
        how = (
            "has no record of this handle: the database's write-ahead log (state.db-wal) was "
            "lost, or this file is a copy. See who holds these resources with leasectl status, "
            f"and release them with: leasectl release --names {','.join(names)}"
        )
    database = state.path("state.db")
    raise CorruptState(f"{path} lists {listed(names)}, but {database} {how}")


def read_names(path: str) -> list[str]:
    """Read a names file that was copied somewhere.

    Raises:
        NotFound: There is no such file, or it isn't a regular file.
        NotAllowed: It is another user's, or not readable.
        CorruptState: It holds something else than names.
    """
    shown = printable(path, longest=200)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise NotAllowed(f"handle {shown} belongs to another user and can't be read") from None
    except (OSError, ValueError):
        raise NotFound(
            f"no handle {shown}; list the held ones with: leasectl status --wide"
        ) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(f"{shown} is not a handle: not a regular file")
        if found.st_uid != os.geteuid():
            raise NotAllowed(f"handle {shown} belongs to user {found.st_uid}")
        text = os.read(fd, _TOO_LONG)
    finally:
        os.close(fd)
    names = text.decode("utf-8", "replace").split("\n")
    names = names[:-1] if names[-1] == "" else names
    if len(text) == _TOO_LONG or not all(map(is_name, names)):
        raise CorruptState(
            f"{shown} is not a handle: it contains something other than resource names"
        )
    return names
