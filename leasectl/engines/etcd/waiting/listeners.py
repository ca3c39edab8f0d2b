"""Who listens for which key, and how far each watch has told.

A waiter that is alone has watches for its own target. As soon as there is another, all of them
listen through watches of whole pools, so that one more changes nothing about the stream. What
comes is told by its key to those who wait for that key, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.waiting.targets import Watched, WatchTarget


class Listener(Protocol):
    """Who is to be woken."""

    def wake(self, news: Sequence[KeyValue] = ()) -> None:
        """Have it look again, and then say anew what it listens for.

        Args:
            news: What has changed, if that is known.
        """

    def note(self, news: KeyValue) -> None:
        """Tell it of a change that only needs to be known, and leave it asleep."""


class Listeners:
    """The listeners on one stream; for one thread at a time.

    A listener is woken once: it is told of nothing more until it has said anew what it waits for,
    but for a sequel.

    Attributes:
        revisions: The watches that the stream has to have, and the revision up to which each has
            told everything.
    """

    def __init__(self) -> None:
        self.revisions: dict[Watched, int] = {}
        self._targets: dict[Listener, WatchTarget] = {}  # also of those that have been woken
        self._registered: set[Listener] = set()
        self._by_key: dict[str, set[Listener]] = {}
        self._outdated: set[Listener] = set()  # awake while events were lost

    def put(self, listener: Listener, target: WatchTarget) -> bool:
        """Have somebody listen for a target, and for nothing else any more.

        It is woken at once if the stream is ahead of what it has seen: it may have missed
        something. What it has seen and the stream has not is no news to it when it comes.

        Returns:
            Whether the stream must have other watches from now on.
        """
        self._unregister(listener)
        self._targets[listener] = target
        self._registered.add(listener)
        for watched in target.watched:
            self._by_key.setdefault(watched.key, set()).add(listener)
        sources = self._sources(target)
        is_changed = len(sources) < len(target.watched)
        if is_changed:
            self._change_watches(target.revision)
            sources = self._sources(target)
        telling = (source for source in sources if not source.is_quiet)
        is_ahead = any(self.revisions[source] > target.revision for source in telling)
        if is_ahead or listener in self._outdated:
            self._wake(listener)
        self._outdated.discard(listener)
        return is_changed

    def remove(self, listener: Listener) -> None:
        """Have somebody listen no more, if it does."""
        self._unregister(listener)
        self._targets.pop(listener, None)
        self._outdated.discard(listener)

    @property
    def is_for_one(self) -> bool:
        """Whether there is just one who listens, or listened last."""
        return len(self._targets) == 1

    def is_alone(self, listener: Listener) -> bool:
        """Whether nobody else listens, or would after having been woken."""
        return self._targets.keys() <= {listener}

    def is_waiting_for(self, listener: Listener, target: WatchTarget) -> bool:
        """Tell whether somebody listens for that target, and hasn't been woken since it said so."""
        return listener in self._registered and self._targets[listener] is target

    def miss(self, source: Watched, revision: int) -> None:
        """A watch of the stream didn't tell of something that happened up to a revision.

        Who has looked before that looks again.
        """
        if source not in self.revisions:  # nobody listens for it any more
            return
        self.revisions[source] = max(self.revisions[source], revision)
        for listener in list(self._registered):
            target = self._targets[listener]
            if target.revision < revision and source in self._sources(target):
                self._wake(listener)

    def tell(self, source: Watched, events: Sequence[KeyValue]) -> None:
        """Pass on what a watch of the stream has told, to those that have to know of it."""
        news: dict[Listener, list[KeyValue]] = {}
        for event in events:
            for key in {event.key, source.key}:
                for listener in self._by_key.get(key, ()):
                    if event.mod_revision > self._targets[listener].revision:
                        news.setdefault(listener, []).append(event)
            self.revisions[source] = max(self.revisions[source], event.mod_revision)
        for listener, told in news.items():
            if source.is_quiet:
                for event in told:
                    listener.note(event)
            elif source.has_sequel:
                listener.wake()  # and it goes on listening
            else:
                self._wake(listener, told)

    def have_all_look(self) -> None:
        """Have everybody look again: what came since is lost, and each goes on from its look.

        A listener that is awake may have looked before, at a revision that counts no longer. It
        looks once more when it listens again.
        """
        self.revisions = {}
        self._outdated = self._targets.keys() - self._registered
        for listener in self._targets:
            self._wake(listener)

    def _sources(self, target: WatchTarget) -> list[Watched]:
        """The watches that tell of a target: one for each that it wants, if there is one."""
        found = []
        for watched in target.watched:
            possible = (watched, *target.shared)
            found += [p for p in possible if p in self.revisions and p.covers(watched)][:1]
        return found

    def _change_watches(self, revision: int) -> None:
        """Have a stream that suits all; new watches of it begin after the revision.

        The others go on where they were, or where the first begins who is still to be told by
        them: etcd takes its time, up to 0.1 s, for a watch that begins in the past.
        """
        before, targets = self.revisions, self._targets
        wanted = [t.watched if len(targets) == 1 else t.shared for t in targets.values()]
        self.revisions = {w: before.get(w, revision) for each in wanted for w in each}
        first = dict.fromkeys(self.revisions, revision)
        for listener in list(self._registered):
            seen, sources = targets[listener].revision, self._sources(targets[listener])
            if seen < revision and any(source not in before for source in sources):
                self._wake(listener)
                continue
            for source in sources:
                first[source] = min(first[source], seen)
        for source, reached in self.revisions.items():
            self.revisions[source] = max(reached, first[source])

    def _wake(self, listener: Listener, news: Sequence[KeyValue] = ()) -> None:
        if self._unregister(listener):
            listener.wake(news)

    def _unregister(self, listener: Listener) -> bool:
        """Tell it of nothing more; returns whether it would have been told until now."""
        if listener not in self._registered:
            return False
        self._registered.remove(listener)
        for watched in self._targets[listener].watched:
            self._by_key[watched.key].remove(listener)
            if not self._by_key[watched.key]:
                del self._by_key[watched.key]
        return True
