"""Release what is due, and what dead holders had."""

from __future__ import annotations

from collections.abc import Container

from leasectl.keeper.job import Job, Key, key_meant
from leasectl.keeper.log import Log
from leasectl.keeper.server import Server, server_of
from leasectl.leases.release import release
from leasectl.leases.service import Service
from leasectl.model import ReleaseTarget

# A server that is away for long costs little; a resource that nobody can have costs more.
_LONGEST_PAUSE_SECONDS = 10.0


class Releases(Job[ReleaseTarget, "tuple[str, ...]"]):
    """Releases targets that other parts of the keeper name."""

    def __init__(self, service: Service, log: Log) -> None:
        super().__init__(service, log)
        self._servers: dict[Key, Server] = {}  # which each release was sent to last

    def keep_only(self, known: Container[object]) -> None:
        super().keep_only(known)
        self._servers = {key: each for key, each in self._servers.items() if key in known}

    def _key(self, item: ReleaseTarget) -> Key:
        return key_meant(item)

    def _server(self, item: ReleaseTarget) -> Server | None:
        server = server_of(self._service.handles.load(item.handle_id))
        if server is not None:
            self._servers[key_meant(item)] = server
        return server

    def _do(self, service: Service, item: ReleaseTarget) -> tuple[str, ...]:
        return release(service, item)

    def _succeeded(self, item: ReleaseTarget, result: tuple[str, ...], sent_at: float) -> None:
        self._log.write(f"released {item.handle_id}: {' '.join(result) or 'held nothing'}")
        # Release at once what failed at the same server before.
        server = self._servers.pop(key_meant(item), None)
        self._retries.bring_forward(key for key, at in self._servers.items() if at == server)

    def _failed(self, item: ReleaseTarget, error: Exception) -> float:
        what = f"release {item.handle_id}"
        return self._retries.failed(key_meant(item), what, error, _LONGEST_PAUSE_SECONDS)
