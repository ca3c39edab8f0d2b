"""A process that is killed at one of its requests to etcd."""

from __future__ import annotations

import os
import signal
from typing import Callable

from tests.kit.forking import ending, fork
from tests.kit.relay import Relay
from tests.kit.waits import eventually


class Victim:
    """A process that is killed at one of its requests.

    Args:
        between: What its requests go through.
        when: ``before`` the request is passed on, or ``after`` it was answered.
        fatal: The number of the request.
    """

    def __init__(self, between: Relay, when: str, fatal: int) -> None:
        self._fatal = len(between.paths) + fatal
        self._pids: list[int] = []
        between.listen(**{when: self._kill})

    def run(self, work: Callable[[], object]) -> bool:
        """Run it in a process; returns whether it was killed before its end."""
        self._pids.append(fork(work))
        code = ending(self._pids[0])
        assert code in (0, -signal.SIGKILL)
        return code != 0

    def _kill(self, at: int, _path: str) -> bool:
        if at == self._fatal:
            os.kill(eventually(lambda: self._pids)[0], signal.SIGKILL)
        return at >= self._fatal
