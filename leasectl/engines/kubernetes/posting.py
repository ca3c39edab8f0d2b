"""Post events in the background.

Whoever may not is told so once, by the first command of a state directory that finds it out; a
file there says that it was, and for a while nobody tries. A server that doesn't answer is left
alone for a moment, so that a command ends no more than a part of a second later by it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from leasectl.engines.kubernetes.api.collection import events
from leasectl.engines.kubernetes.api.refusals import Conflict, NotPermitted
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import LeaseError
from leasectl.system.clock import Clock
from leasectl.system.own_files import open_own

if TYPE_CHECKING:
    from leasectl.engines.cluster.objects import Told

_LONGEST_SECONDS = 0.7
# A process that goes on tries again after that.
_REST_SECONDS = 10.0
# As does who may not, whether by now he may.
_TRY_AGAIN_SECONDS = 600.0

Work = Callable[[], object]


class Posting:
    """Sends the events of one namespace.

    Args:
        api: Of the cluster.
        namespace: Where.
        refused_path: Of the file that says that we may not; None for none.
        warn: Called with a line for people about that, once.
        begin: Has something done beside all else; None for as `afterwards` does.
        longest_seconds: Sending one event is given up after that long.
        clock: Where times come from.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        refused_path: str | None = None,
        warn: Callable[[str], None] = lambda _: None,
        begin: Callable[[Work], object] | None = None,
        longest_seconds: float = _LONGEST_SECONDS,
        clock: Clock,
    ) -> None:
        self._api = api
        self._events = events(namespace)
        self._refused_path = refused_path
        self._warn = warn
        self._begin = begin
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._rests_until = 0.0

    def send(self, post: Told) -> None:
        """Have it be sent; nobody waits for that, and nothing comes of it if it can't be."""
        if self._begin is None:
            from leasectl.system.afterwards import begin

            self._begin = begin
        self._begin(partial(self._send, post))

    def _send(self, post: Told) -> None:
        now = self._clock.elapsed()
        if now < self._rests_until or self._was_refused_lately():
            return
        from leasectl.engines.kubernetes.post_objects import encode_post

        try:
            with self._api.limited(now + self._longest_seconds, is_strict=True):
                for body in encode_post(post, self._events.namespace):
                    with contextlib.suppress(Conflict):  # by the try before, whose answer was lost
                        self._api.create(self._events, body, is_repeatable=True)
        except LeaseError as failure:
            if isinstance(failure.__cause__, NotPermitted):
                self._note_refused(failure)
                return
            self._rests_until = self._clock.elapsed() + _REST_SECONDS
        else:
            self._note_taken()

    # Whether we may

    def _was_refused_lately(self) -> bool:
        age = self._refused_age()
        return age is not None and abs(age) < _TRY_AGAIN_SECONDS

    def _refused_age(self) -> float | None:
        """How long ago we were refused, in seconds; None if we weren't."""
        if self._refused_path is None:
            return None
        try:
            return time.time() - os.stat(self._refused_path).st_mtime
        except OSError:
            return None

    def _note_refused(self, refusal: LeaseError) -> None:
        self._rests_until = self._clock.elapsed() + _TRY_AGAIN_SECONDS
        is_new = self._refused_age() is None
        if self._refused_path is not None:
            with contextlib.suppress(OSError):
                os.close(open_own(self._refused_path, os.O_WRONLY | os.O_CREAT))
                os.utime(self._refused_path)
        if is_new:
            self._warn(f"leases work, but no events are written: {refusal}")

    def _note_taken(self) -> None:
        if self._refused_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._refused_path)
