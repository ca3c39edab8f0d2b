"""The network between participants and members: each pair has a link that can go wrong.

In a process of their own, so that a busy network takes no time from anybody, and whoever forks
participants has no threads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from tests.kit.forking import ending, fork
from tests.kit.relay import Hook, Relay


class Links:
    """Links from some participants to all members; what goes wrong does so on all of one's links.

    Args:
        endpoints: The members' addresses.
        participants: How many.

    Attributes:
        endpoints: For each participant, the addresses at which it finds the members.
    """

    def __init__(self, endpoints: Sequence[str], participants: int) -> None:
        self._commands, theirs = Pipe()
        self._pid = fork(lambda: _serve(theirs, endpoints, participants))
        self.endpoints: list[list[str]] = self._commands.recv()

    def cut(self, participant: int) -> None:
        """End the connections, and refuse new ones."""
        self._tell(participant, "cut")

    def silence(self, participant: int) -> None:
        """Hold back whatever is sent, in both directions, until it is mended."""
        self._tell(participant, "silence")

    def slow(self, participant: int, seconds: float) -> None:
        """Pass each piece on so much later."""
        self._tell(participant, "slow", seconds)

    def mend(self, participant: int) -> None:
        self._tell(participant, "mend")

    def close(self) -> None:
        self._commands.send(None)
        ending(self._pid)

    def _tell(self, participant: int, what: str, seconds: float = 0.0) -> None:
        self._commands.send((participant, what, seconds))
        self._commands.recv()


class _Link:
    """One participant's way to all members."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.relays = [Relay(endpoint) for endpoint in endpoints]
        self._flows = threading.Event()

    def cut(self, _seconds: float) -> None:
        for each in self.relays:
            each.cut()

    def silence(self, _seconds: float) -> None:
        self._flows.clear()
        self._listen(self._hold_back)

    def slow(self, seconds: float) -> None:
        self._listen(lambda _number, _path: time.sleep(seconds))

    def mend(self, _seconds: float) -> None:
        for each in self.relays:
            each.listen()
            each.mend()
        self._flows.set()

    def _listen(self, hook: Hook) -> None:
        for each in self.relays:
            each.listen(before=hook, after=hook)

    def _hold_back(self, _number: int, _path: str) -> None:
        self._flows.wait()


def _serve(commands: Connection, endpoints: Sequence[str], participants: int) -> None:
    links = [_Link(endpoints) for _ in range(participants)]
    commands.send([[relay.endpoint for relay in link.relays] for link in links])
    with contextlib.suppress(EOFError):
        while command := commands.recv():
            participant, what, seconds = command
            getattr(links[participant], what)(seconds)
            commands.send(None)
