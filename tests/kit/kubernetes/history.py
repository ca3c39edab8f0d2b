"""Each write of a Lease in a namespace, as a watch tells it, and what time it is by them."""

from __future__ import annotations

import threading
from typing import Any

from leasectl.engines.kubernetes.names import OBJECT_OF_BELONGING
from tests.kit.kubernetes.api import Object
from tests.kit.kubernetes.memberships import Write
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.waits import PATIENCE_SECONDS


class LeaseHistory:
    """All writes from its beginning on, in their order.

    Args:
        namespace: Where the Leases are; there is none yet.

    Attributes:
        writes: Them, each with its resourceVersion.
    """

    def __init__(self, namespace: Namespace) -> None:
        self.writes: list[tuple[int, Write]] = []
        self._namespace = namespace
        said = namespace.administrator.ok("GET", namespace.leases)
        self._version = str(said["metadata"]["resourceVersion"])
        self._changed = threading.Condition()
        threading.Thread(target=self._follow, daemon=True).start()

    def upto_now(self) -> list[tuple[int, Write]]:
        """All of them, once the watch has told of one that is made here and now."""
        name, path = f"mark-{OBJECT_OF_BELONGING}", self._namespace.leases
        begin = len(self.writes)
        self._namespace.administrator.ok("POST", path, {"metadata": {"name": name}})
        self._namespace.administrator.ok("DELETE", f"{path}/{name}")

        def is_told() -> bool:
            # Others may have written since; what comes at once is looked at together.
            return (name, None) in (each for _, each in self.writes[begin:])

        with self._changed:
            assert self._changed.wait_for(is_told, PATIENCE_SECONDS), (
                "a watch tells nothing any more"
            )
        return [each for each in self.writes if each[1][0] != name]

    def _follow(self) -> None:
        while True:
            query = {"resourceVersion": self._version}
            for event in self._namespace.administrator.watch(self._namespace.leases, query):
                self._take(event)

    def _take(self, event: Object) -> None:
        raw: dict[str, Any] = event["object"]
        assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
        self._version = str(raw["metadata"]["resourceVersion"])
        there = None if event["type"] == "DELETED" else raw
        with self._changed:
            self.writes.append((int(self._version), (raw["metadata"]["name"], there)))
            self._changed.notify_all()
