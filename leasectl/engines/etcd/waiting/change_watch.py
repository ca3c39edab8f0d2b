"""Wake a follower of events or notes when there are more.

Only a hint, as every watch is: whoever is woken reads, by the numbers of events. A member that
hangs doesn't say so; therefore it is asked to say something now and then, and left if it doesn't.
"""

from __future__ import annotations

import contextlib

from leasectl.engines.etcd.events.records import last_number_at
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.waiting.own_watch import OwnWatch
from leasectl.engines.etcd.waiting.targets import Watched
from leasectl.errors import LeaseError

# A member that was asked to says where it is every 10 to 11 minutes.
_LONGEST_SILENCE_SECONDS = 900.0


class EtcdChangeWatch:
    """Implements `EventWatch` and `NoteWatch`; its thread ends soon after it is closed.

    Args:
        gateway: The cluster.
        watched: Changes of what.

    Raises:
        LeaseError: It can't be asked where it is.
    """

    def __init__(self, gateway: Gateway, watched: Watched) -> None:
        self._gateway = gateway
        self._seen = gateway.read().revision
        self._watch = OwnWatch(
            gateway,
            watched,
            self._seen,
            longest_silence_seconds=_LONGEST_SILENCE_SECONDS,
        )

    @property
    def fd(self) -> int:
        return self._watch.fd

    def clear(self) -> int:
        news = self._watch.take()
        before = 0
        if news:
            before = last_number_at(min(kv.mod_revision for kv in news) - 1)
            self._seen = max(kv.mod_revision for kv in news)
        else:  # what it has seen last may have been forgotten by etcd
            with contextlib.suppress(LeaseError):
                self._seen = self._gateway.read().revision
        self._watch.listen(self._seen)
        return before

    def close(self) -> None:
        self._watch.close()
