"""Release by name, or by key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leasectl.backends.kinds import Context
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.protocol import (
    RELEASE,
    heeds,
    is_undone,
    is_unknown,
    was_released,
    why_kept,
    with_key,
)
from leasectl.backends.release_tries import ReleaseTries, SendRelease, Unaccounted
from leasectl.backends.unanswered import Refused
from leasectl.errors import AccessRefused, BackendUnreachable
from leasectl.text.wording import printable

_LOOK_SECONDS = 3.0


class Releases:
    """Releases at one lease proxy, each tried until it works or its time is over.

    Args:
        context: The proxy's.
        connection: How to talk to it.
    """

    def __init__(self, context: Context, connection: Connection) -> None:
        self._url = context.url
        self._connection = connection
        self._tries = ReleaseTries(context, context.url, is_up=self._is_up)
        self._clock = context.clock

    def release(self, key: str, names: Sequence[str]) -> Iterator[str]:
        """Give names back, one a request; yields each as soon as it is certain.

        Args:
            key: Of the acquisition that got them; empty when that isn't known.
            names: What the server called them. None of them: whatever the key has been granted.

        Raises:
            BackendUnreachable: In the end, when one couldn't be given back in time.
        """
        if not names and key:
            start = self._clock.elapsed()
            try:
                self.undo(key)
            except AccessRefused:
                raise
            except BackendUnreachable as error:
                raise self._tries.not_released(start, error) from error
        yield from self._tries.give_all_back(names, lambda name: self._send(name, key))

    def give_back(self, name: str, key: str, until: float | None = None) -> str | None:
        """Release one name; that it isn't leased (any more) is as good.

        Args:
            name: What the server called it.
            key: Of the acquisition that got it: a server that heeds keys doesn't release what it
                has granted to somebody else since. Empty when that isn't known.
            until: When to give up, CLOCK_BOOTTIME in seconds.

        Returns:
            What people should know of it: that it wasn't ours any more, or is `Unaccounted`. None
            where it was.

        Raises:
            BackendUnreachable: It is not certain that it was released.
        """
        return self._tries.give_back(name, self._send(name, key), until)

    def _is_up(self) -> bool:
        """Tell whether the server answers what it needs no lock for: a method that it refuses."""
        try:
            self._connection.look(RELEASE, seconds=_LOOK_SECONDS)
        except AccessRefused:
            return True
        except BackendUnreachable:
            return False
        return True

    def _send(self, name: str, key: str) -> SendRelease:
        def send(seconds: float, failures: Sequence[Exception]) -> str | None:
            answer = self._connection.tell(
                RELEASE, {"names": [name]}, headers=with_key(key), seconds=seconds
            )
            if was_released(self._url, answer):
                return None
            words = why_kept(self._url, answer)
            # What a server that heeds keys doesn't know is leased nowhere behind it.
            if is_unknown(answer) and not heeds(answer, key):
                return _unaccounted(name, words, failures)
            return None if failures else f"{printable(name)} was no longer leased to us: {words}"

        return send

    def undo(self, key: str, *, seconds: float | None = None) -> bool:
        """Give back whatever was granted to requests with a key, and end those that wait.

        It is a release of no names, which means nothing to a server that doesn't heed keys.

        Args:
            key: Of a request or an acquisition.
            seconds: Try once, for so long; None: as often and as long as a release.

        Returns:
            Whether the server heeds keys: then nothing is leased under this one any more.

        Raises:
            BackendUnreachable: It is not certain that it was undone.
        """
        end = self._clock.elapsed() + (self._tries.seconds if seconds is None else seconds)

        def once() -> bool:
            left = max(0.0, end - self._clock.elapsed())
            answer = self._connection.tell(
                RELEASE, {"names": []}, headers=with_key(key), seconds=left
            )
            return is_undone(self._url, answer, key)

        return once() if seconds is not None else self._tries.until_it_works(once, end)


def _unaccounted(name: str, words: str, failures: Sequence[Exception]) -> str | None:
    """Return what to say of a name that ci-operator's proxy doesn't know.

    It forgets a name before it asks Boskos to release it, and forgets all when it is restarted. So
    Boskos may still have the lease, without renewals. After a lost answer, it was most likely our
    own release that was carried out.
    """
    refusals = [str(each) for each in failures if isinstance(each, Refused)]
    if not refusals and failures:
        return None
    why = f"{refusals[0]}; then {words}" if refusals else words
    return Unaccounted(
        f"{printable(name)} isn't known to the lease proxy; Boskos may keep it leased for half an "
        f"hour: {why}"
    )
