"""A use of leases: for as long as its holder believes in them, and written down by itself.

A holder trusts its lease for four fifths of the ttl, counted from the sending of the last renewal
that succeeded. Renewing goes on beside the use, so that a request that hangs never keeps it from
stopping in time.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Callable

from leasectl.errors import BackendUnreachable, LeaseError
from leasectl.model import Lease
from leasectl.system.clock import Clock
from tests.kit.history import Recorder

TRUSTED = 4 / 5  # of the ttl; the rest is the margin
CLOCK = Clock()


class Use:
    """What was granted, for as long as its holder believes in it.

    Args:
        recorder: Told when the use begins, when it is prolonged, and when it ends.
        handle: Whose it is.
        leases: What was granted.
    """

    def __init__(self, recorder: Recorder, handle: str, leases: Sequence[Lease]) -> None:
        ttl = leases[0].lease_duration_seconds
        assert ttl is not None
        self._ttl = ttl
        self._recorder = recorder
        self._handle = handle
        self._leases = leases
        renewed_ago = CLOCK.wall() - leases[0].renew_time
        self._until = CLOCK.elapsed() - renewed_ago + TRUSTED * ttl
        self._changed = threading.Condition()
        self._is_over = False
        recorder.write("granted", handle, leases, until=self._until)

    def last(self, seconds: float, renew: Callable[[], Sequence[str]]) -> None:
        """Use it for so long, or until it is lost.

        Args:
            seconds: How long.
            renew: Renews it; returns what is still held.
        """
        end = CLOCK.elapsed() + seconds
        threading.Thread(target=self._keep, args=(renew,), daemon=True).start()
        with self._changed:
            while (left := min(end, self._until) - CLOCK.elapsed()) > 0:
                self._changed.wait(left)
            self._is_over = True
            kind = "releasing" if end <= self._until else "lost"
            self._recorder.write(kind, self._handle, self._leases)
            self._changed.notify_all()

    def _keep(self, renew: Callable[[], Sequence[str]]) -> None:
        pause = self._ttl / 3
        while not self._ends_within(pause):
            sent = CLOCK.elapsed()
            try:
                held = renew()
            except BackendUnreachable:
                pause = self._ttl / 15
                continue
            pause = self._ttl / 3
            with self._changed:
                if not self._is_over:
                    self._renewed(sent, held)

    def _ends_within(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over, seconds)

    def _renewed(self, sent: float, held: Sequence[str]) -> None:
        if {lease.name for lease in self._leases} <= set(held):
            self._until = max(self._until, sent + TRUSTED * self._ttl)
            self._recorder.write("renewed", self._handle, self._leases, until=self._until)
        else:
            self._until = 0.0
        self._changed.notify_all()


def give_back(
    recorder: Recorder,
    handle: str,
    leases: Sequence[Lease],
    frees: Sequence[Callable[[], Sequence[str]]],
    *,
    unsure: type[LeaseError],
) -> None:
    """Release, as one caller or several at once, and record what each was told.

    Args:
        recorder: Told.
        handle: Whose it was.
        leases: What.
        frees: Frees it, one for each caller; returns what that one has freed.
        unsure: What is raised where nobody knows whether it is free.
    """
    with ThreadPoolExecutor(len(frees)) as threads:
        freeing = [threads.submit(each) for each in frees]
    told: set[str] = set()
    try:
        for each in freeing:
            names = each.result()
            told.update(names)
            recorder.write("released", handle, [x for x in leases if x.name in names])
    except unsure as error:
        recorder.note("not-released", handle, type(error).__name__)
    else:
        recorder.write("unreleased", handle, [x for x in leases if x.name not in told])
