"""The keeper beside a server: should it die, what was granted would no longer be renewed."""

from __future__ import annotations

import asyncio
import os

from leasectl.errors import LeaseError
from leasectl.leases.recovery import recover
from leasectl.leases.service import Service
from leasectl.server.notices import Notices
from leasectl.state import keeper_process
from leasectl.system.process import open_pidfd

_TRY_AGAIN_SECONDS = 1.0


class KeeperWatch:
    """Has another keeper started when one dies that was needed.

    Args:
        service: On the state directory that is served.
        notices: What the server's operator is told by.
    """

    def __init__(self, service: Service, notices: Notices) -> None:
        self._service = service
        self._notices = notices
        self._pidfd: int | None = None

    def look(self) -> None:
        """Watch the keeper that there is, unless it is watched; to be called after each grant."""
        if self._pidfd is not None:
            return
        loop = asyncio.get_running_loop()
        try:
            self._pidfd = self._find()
            is_missing = self._pidfd is None and self._service.handles.any_watched()
        except LeaseError as error:
            self._notices.failed("looking after the keeper", error)
            is_missing = True
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self._ended)
        elif is_missing:
            loop.call_later(_TRY_AGAIN_SECONDS, self.look)

    def close(self) -> None:
        """Watch no longer."""
        if self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _find(self) -> int | None:
        keeper = keeper_process.running(self._service.state)
        if keeper is None and self._service.handles.any_watched():
            recover(self._service)
            keeper = keeper_process.running(self._service.state)
        return None if keeper is None else open_pidfd(keeper)

    def _ended(self) -> None:
        self.close()
        self.look()
