"""Looks at the store again and again, and writes down who holds, who waits and who leads."""

from __future__ import annotations

import time
from typing import Callable

from leasectl.engines.cluster.objects import ResourceObject, Selection, TicketObject
from leasectl.errors import BackendUnreachable
from leasectl.system.clock import boottime_seconds
from tests.cluster.participants import POOL
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer, Leadership
from tests.kit.history import Recorder

_EVERY_SECONDS = 0.3


class Observer:
    """One who only looks.

    Args:
        server: The cluster.
        prefix: Below which the pool is.
        recorder: Where it writes ``holds`` and ``waits``, and ``leads`` whenever that changes.
    """

    def __init__(self, server: EtcdServer, prefix: str, recorder: Recorder) -> None:
        self._server = server
        self._access = Access(
            server.endpoints, prefix, state_id="observer", seconds=1.0, pause=time.sleep
        )
        self._recorder = recorder
        self._leadership: Leadership | None = None

    def watch(self, is_over: Callable[[], bool]) -> None:
        """Look until it is over."""
        while not is_over():
            self.look()
            time.sleep(_EVERY_SECONDS)

    def look(self) -> bool:
        """Look once; returns whether that was possible, and with one leader all the while."""
        before = boottime_seconds()
        try:
            seen = self._seen()
        except BackendUnreachable:
            seen = []
        leadership = self._server.leadership()
        if leadership != self._leadership:
            self._leadership = leadership
            if leadership is not None:
                self._recorder.note("leads", f"m{leadership.member}", ticket=leadership.term)
            return False
        if leadership is None:
            return False
        for kind, claim_key in seen:
            self._recorder.note(kind, claim_key, at=before)
        return True

    def _seen(self) -> list[tuple[str, str]]:
        found = self._access.context.objects.list(Selection(pool=POOL)).items
        seen = []
        for each in found:
            if isinstance(each, TicketObject) and not each.is_over:
                seen.append(("waits", each.claim_key))
            elif isinstance(each, ResourceObject) and each.claim and not each.claim.is_over:
                seen.append(("holds", each.claim.claim_key))
        return seen
