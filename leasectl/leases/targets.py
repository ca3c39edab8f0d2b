"""What a release is about: from a path, names, or a scope to handles and acquisitions."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Callable, NamedTuple, Protocol

from leasectl.errors import CorruptState, InvalidRequest, NotAllowed, NotFound
from leasectl.model import Handle, ReleaseTarget, whole
from leasectl.state import shared_leases
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.text.naming import is_name
from leasectl.text.printable import printable

_LONGEST_NAMES_FILE = 1 << 20


class Caller(NamedTuple):
    """On whose behalf requests are made.

    Args:
        owner: ``<job>/<build>`` in a job, else ``<user>@<host>``.
        host: This machine's name.
        shared_dir: Where names of scope ``test`` are listed, or None.
    """

    owner: str
    host: str
    shared_dir: str | None = None

    def identity_of(self, handle_id: str) -> str:
        """What others see of whoever holds by a handle: ``<owner>/<host>/<handle>``."""
        return f"{self.owner}/{self.host}/{handle_id}"

    def is_owner(self, owner: str) -> bool:
        """Tell whether a lease's job and build are the caller's.

        Outside a job the state directory, private to one user, and the host say as much. The
        user's name may have changed: scripts give an arbitrary uid a passwd entry half-way.
        """
        outside = f"@{self.host}"
        return owner == self.owner or (owner.endswith(outside) and self.owner.endswith(outside))

    def require_shared_dir(self) -> str:
        """The path of ``SHARED_DIR``, or InvalidRequest."""
        if not self.shared_dir:
            raise InvalidRequest("scope test needs SHARED_DIR, which is not set; or use scope step")
        return self.shared_dir


class Listed(NamedTuple):
    """What the names of a list mean.

    Args:
        targets: What to release.
        stale: Names that are out of date.
        foreign: Those of them that others hold by now.
        unknown: Names that are no resources of this backend, and may be another's.
    """

    targets: list[ReleaseTarget]
    stale: list[str]
    foreign: list[str]
    unknown: list[str]


class Adopt(Protocol):
    """Puts names that no handle here holds under new ones, so that they can be released."""

    def __call__(self, names: Sequence[str], *, foreign: list[str] | None) -> Sequence[Handle]:
        """As far as the backend would release them.

        Args:
            names: Which.
            foreign: Takes those that another job or build holds; None where that is an error.

        Raises:
            NotAllowed: It is.
        """


def adopt_none(names: Sequence[str], *, foreign: list[str] | None) -> tuple[Handle, ...]:
    """Where nobody but our handles can hold anything."""
    return ()


class Targets:
    """Finds what a caller means.

    Args:
        state: The opened state directory.
        caller: Whose names may be released.
        is_resource: Whether the backend knows a resource of that name.
        adopt: For names that no handle here holds.
        backend: Whose handle is meant where two hold the same name.
    """

    def __init__(
        self,
        state: State,
        caller: Caller,
        is_resource: Callable[[str], bool],
        adopt: Adopt = adopt_none,
        *,
        backend: str = "",
    ) -> None:
        self._state = state
        self._handles = Handles(state)
        self._caller = caller
        self._is_resource = is_resource
        self._adopt = adopt
        self._backend = backend

    def of_path(self, path: str) -> list[ReleaseTarget]:
        """What ``--handle PATH`` means: a handle of ours, or a names file copied elsewhere.

        An empty path means nothing: that is what ``acquire --optional`` prints without a lease.

        Raises:
            NotFound: No such file or handle.
            NotAllowed: The file is another user's.
        """
        if not path:
            return []
        handle = self.handle_at(path)
        return [whole(handle)] if handle else self.of_names(read_names(path))

    def handle_at(self, path: str) -> Handle | None:
        """The handle that a path or a bare id names; None for a path outside our directory.

        Raises:
            NotFound: It should be one of ours, and there is no such handle.
        """
        folder, name = os.path.split(path)
        if folder and os.path.realpath(folder) != os.path.realpath(self._state.path("handles")):
            return None
        if not folder and not self._handles.load(name) and os.path.lexists(name):
            return None
        return self._handles.require(name)

    def of_names(self, names: Sequence[str]) -> list[ReleaseTarget]:
        """What bare names mean: the handles that hold them now; nothing for those that are free.

        Raises:
            NotFound: No such resource.
            NotAllowed: Another job or build holds one.
        """
        held: list[tuple[Handle, str]] = []
        unheld = []
        for name in dict.fromkeys(names):
            handle = self._handles.holding(name, prefer=self._backend)
            if handle is None:
                self._require_resource(name)
                unheld.append(name)
            elif not self._caller.is_owner(handle.owner):
                raise not_ours(name, handle.holder_identity, self._caller)
            else:
                held.append((handle, name))
        return _by_handle(held) + [whole(each) for each in self._adopt_some(unheld, None)]

    def of_scope_test(self) -> Listed:
        """What ``$SHARED_DIR/leases`` lists.

        A name may long be somebody else's by now: it is only released from a handle that was
        acquired with scope ``test`` under this very ``SHARED_DIR``.
        """
        shared_dir = self._caller.require_shared_dir()
        held: list[tuple[Handle, str]] = []
        foreign: list[str] = []
        unheld: list[str] = []
        unknown: list[str] = []
        for name in dict.fromkeys(shared_leases.listed(shared_dir)):
            handle = self._handles.holding(name, prefer=self._backend)
            if handle is None:
                (unheld if self._is_resource(name) else unknown).append(name)
            elif handle.shared_dir == shared_dir:
                held.append((handle, name))
            else:
                foreign.append(name)
        theirs: list[str] = []
        adopted = self._adopt_some(unheld, theirs)
        known = {name for handle in adopted for name in handle.names}
        stale = foreign + [name for name in unheld if name not in known]
        targets = _by_handle(held) + [whole(each) for each in adopted]
        return Listed(targets, stale, foreign + theirs, unknown)

    def of_everything(self) -> list[ReleaseTarget]:
        """All that this state directory's handles hold or wait for.

        Those that wait come first, or they would be granted what the others give back.
        """
        handles = sorted(self._handles.active(), key=lambda each: each.state != "acquiring")
        return [whole(handle) for handle in handles]

    def _adopt_some(self, names: Sequence[str], foreign: list[str] | None) -> Sequence[Handle]:
        return self._adopt(names, foreign=foreign) if names else ()

    def _require_resource(self, name: str) -> None:
        if not self._is_resource(name):
            raise NotFound(f'no resource "{printable(name)}"; list them with: leasectl status')


def not_ours(name: str, holder_identity: str, caller: Caller) -> NotAllowed:
    """The error for a name that another job or build holds."""
    return NotAllowed(
        f'"{name}" is held by {holder_identity}, which is another job or build than '
        f"{caller.owner}; only its own can release it by name"
    )


def _by_handle(held: Sequence[tuple[Handle, str]]) -> list[ReleaseTarget]:
    """One target for each handle: what is released together shares one limit of time."""
    names: dict[tuple[str, int], list[str]] = {}
    for handle, name in held:
        names.setdefault((handle.id, handle.acquisition), []).append(name)
    return [ReleaseTarget(*whose, tuple(some)) for whose, some in names.items()]


def read_names(path: str) -> list[str]:
    """Read a names file that was copied somewhere.

    Raises:
        NotFound: There is no such file, or it is none.
        NotAllowed: It is another user's, or not readable.
        CorruptState: It holds something else than names.
    """
    shown = printable(path, longest=200)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise NotAllowed(f"handle {shown} belongs to somebody else and can't be read") from None
    except (OSError, ValueError):
        raise NotFound(f"no handle {shown}; list the held ones with: leasectl status") from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(f"{shown} is no handle: it is not a regular file")
        if found.st_uid != os.geteuid():
            raise NotAllowed(f"handle {shown} belongs to user {found.st_uid}")
        text = os.read(fd, _LONGEST_NAMES_FILE + 1)
    finally:
        os.close(fd)
    names = text.decode("utf-8", "replace").split("\n")
    names = names[:-1] if names[-1] == "" else names
    if len(text) > _LONGEST_NAMES_FILE or not all(map(is_name, names)):
        raise CorruptState(f"{shown} is no handle: it holds something else than lease names")
    return names
