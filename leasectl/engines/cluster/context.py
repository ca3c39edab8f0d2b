"""A place of pools with the parts of the engine that remember something."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from leasectl.engines.cluster.place import Place

if TYPE_CHECKING:
    from leasectl.engines.cluster.claims import Claims
    from leasectl.engines.cluster.deletions import Deletions
    from leasectl.engines.cluster.entering import Belonging, Entering
    from leasectl.engines.cluster.renewals import Renewals
    from leasectl.engines.cluster.session import WaitSession


class Context(Place):
    """The pools of one place, as one state directory uses them; the arguments are those of `Place`.

    Its parts are made when they are first asked for: most commands need few of them.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._lock = threading.RLock()
        # Under the lock:
        self._claims: Claims | None = None
        self._session: WaitSession | None = None
        self._renewals: Renewals | None = None

    @property
    def claims(self) -> Claims:
        """The claims there, and what is remembered of those that were written here."""
        from leasectl.engines.cluster.claims import Claims

        with self._lock:
            if self._claims is None:
                self._claims = Claims(self)
            return self._claims

    @property
    def session(self) -> WaitSession:
        """What all waiters of this process share."""
        from leasectl.engines.cluster.session import WaitSession

        with self._lock:
            if self._session is None:
                self._session = WaitSession(self)
            return self._session

    @property
    def renewals(self) -> Renewals:
        """What renews claims."""
        from leasectl.engines.cluster.renewals import Renewals

        with self._lock:
            if self._renewals is None:
                self._renewals = Renewals(self, self.claims)
            return self._renewals

    @property
    def entering(self) -> Entering:
        """The flags of names that come into pools."""
        from leasectl.engines.cluster.entering import Entering

        return Entering(self)

    @property
    def belonging(self) -> Belonging:
        """What is said of where names belong."""
        from leasectl.engines.cluster.entering import Belonging

        return Belonging(self)

    @property
    def deletions(self) -> Deletions:
        """What deletes pools."""
        from leasectl.engines.cluster.deletions import Deletions

        return Deletions(self)
