"""What becomes of nodes and of their leases, as watches tell it."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from tests.crash.maintenance_judge import Happened
from tests.kit.kubernetes.api import Object
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES
from tests.kit.waits import eventually


class MaintenanceHistory:
    """All changes of Nodes, and of the Leases in a namespace, from its beginning on.

    Args:
        namespace: Where the Leases are.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._api = namespace.administrator
        self._happened: list[Happened] = []
        self._is_closed = threading.Event()
        for path, kind in ((NODES, "Node"), (namespace.leases, "Lease")):
            version = self._api.ok("GET", path)["metadata"]["resourceVersion"]
            threading.Thread(target=self._follow, args=(path, kind, version), daemon=True).start()

    def close(self) -> None:
        """Go on no longer, once the watches have ended."""
        self._is_closed.set()

    def so_far(self) -> list[Happened]:
        """Them in their order, as far as they have been told."""
        return sorted(self._happened, key=lambda each: each.version)

    def upto(self, last: Iterable[Object]) -> list[Happened]:
        """The same, once it has been told of what was seen of objects last."""
        versions = {int(each["metadata"]["resourceVersion"]) for each in last}

        def is_told() -> bool:
            return versions <= {each.version for each in self._happened}

        eventually(is_told, what="watches tell of it")
        return self.so_far()

    def _follow(self, path: str, kind: str, version: str) -> None:
        while not self._is_closed.is_set():
            for event in self._api.watch(path, {"resourceVersion": version}):
                if event["type"] not in ("ADDED", "MODIFIED"):
                    continue
                metadata = event["object"]["metadata"]
                version = metadata["resourceVersion"]
                happened = Happened(int(version), kind, metadata["name"], event["object"])
                self._happened.append(happened)
