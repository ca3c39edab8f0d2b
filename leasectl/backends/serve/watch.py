"""Wait in a thread for changes on the server.

A watch only tells that something may have changed. It also does so when it begins, and after an
outage, because a change before that has told nothing.
"""

from __future__ import annotations

import threading

from leasectl.backends.serve.connection import Calls
from leasectl.backends.serve.protocol import WAIT, WAIT_SECONDS, News
from leasectl.engines.notes import ClaimNews
from leasectl.errors import LeaseError
from leasectl.system.threads import start_thread
from leasectl.system.wakeup import Wakeup

_PATIENCE_SECONDS = 15.0
_AGAIN_SECONDS = 2.0


class ServeWatch:
    """Implements `EventWatch`, `NoteWatch` and `ClaimWatch`; its thread ends after it is closed.

    Args:
        calls: To the server; a copy of the thread's own sends its requests.
        claim_key: Only changes of these claims; None for any.
    """

    def __init__(self, calls: Calls, claim_key: str | None = None) -> None:
        self._calls = calls.again()
        self._claim_key = claim_key
        self._wakeup = Wakeup()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._news = ClaimNews()  # under the lock
        # What was there before is read by the caller, who asks once more after this.
        self._last = 0 if claim_key is not None else calls.call("events.last_number")
        start_thread("watch", self._follow, repeats=True)

    @property
    def fd(self) -> int:
        return self._wakeup.fd

    def clear(self) -> int:
        self._wakeup.clear()
        return 0

    def take(self) -> ClaimNews:
        self._wakeup.clear()
        with self._lock:
            news, self._news = self._news, ClaimNews(notes=self._news.notes)
        return news

    def close(self) -> None:
        self._closed.set()
        self._calls.close()
        self._wakeup.close()

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                if not self._last:
                    self._last = self._calls.call("events.last_number")
                    self._tell(ClaimNews())
                until = self._calls.clock.elapsed() + WAIT_SECONDS + _PATIENCE_SECONDS
                body = {"after": self._last, "claim_key": self._claim_key}
                news: News = self._calls.post(WAIT, body, until=until)
            except LeaseError:
                self._last = 0
                self._closed.wait(_AGAIN_SECONDS)
                continue
            self._last = news.last
            if news.is_changed:
                self._tell(ClaimNews(news.reason, news.notes))

    def _tell(self, news: ClaimNews) -> None:
        with self._lock:
            self._news = ClaimNews(news.reason or self._news.reason, news.notes)
        self._wakeup.set()
