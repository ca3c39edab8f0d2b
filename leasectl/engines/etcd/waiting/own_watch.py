"""A watch with a stream and thread of its own, for who isn't a waiter."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.waiting.targets import Watched, WatchTarget
from leasectl.engines.etcd.waiting.watch import EtcdWatch
from leasectl.system.wakeup import Wakeup


class OwnWatch:
    """The watch, as `Listener`; its thread ends soon after it is closed.

    Args:
        gateway: The cluster.
        watched: What to listen for.
        revision: Only what came later is news; -1 for what comes from now on.
        longest_silence_seconds: As `EtcdWatch` has it.
    """

    def __init__(
        self,
        gateway: Gateway,
        watched: Watched,
        revision: int,
        *,
        longest_silence_seconds: float | None = None,
    ) -> None:
        self._watched = (watched,)
        self._news: tuple[KeyValue, ...] = ()
        self._wakeup = Wakeup()
        self._watch = EtcdWatch(gateway, longest_silence_seconds=longest_silence_seconds)
        self.listen(revision)
        self._watch.start()

    @property
    def fd(self) -> int:
        """Readable when there may be news."""
        return self._wakeup.fd

    def take(self) -> tuple[KeyValue, ...]:
        """What it was told; there is no more before somebody calls `listen` again."""
        self._wakeup.clear()
        news, self._news = self._news, ()
        return news

    def listen(self, revision: int) -> None:
        """Wait for what came later than a revision."""
        self._watch.listen(self, WatchTarget(self._watched, self._watched, revision))

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """End a sleep; for the thread."""
        self._news = tuple(news)
        self._wakeup.set()

    def note(self, news: KeyValue) -> None:
        """Nothing that it listens for is quiet."""

    def close(self) -> None:
        self._watch.close()
        self._wakeup.close()
