"""On whose behalf leases are taken and given back."""

from __future__ import annotations

from leasectl.errors import InvalidRequest, NotAllowed
from leasectl.typed.tuples import NamedTuple


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

    @property
    def identity(self) -> str:
        """Who changes what nobody holds: ``<owner>/<host>``."""
        return f"{self.owner}/{self.host}"

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


def not_ours(name: str, holder_identity: str, caller: Caller) -> NotAllowed:
    """The error for a name that another job or build holds."""
    return NotAllowed(
        f'"{name}" is held by {holder_identity}, which is another job or build than '
        f"{caller.owner}; to end its lease all the same: leasectl release --names {name} --force"
    )
